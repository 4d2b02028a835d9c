// --markdown: the tables of plan and simulate for a pull request.
#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::markdown_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPlan = "plan --world 16 --model llama3-8b ";

std::vector<std::string> lines_of(const Said& said) {
    EXPECT_EQ(said.code, kDone) << said.err;
    return split(said.out, '\n');
}

/// Rows of Markdown tables, with as many cells each: the marks between them that are not escaped.
std::size_t cells_of(const std::string& row) {
    std::size_t marks = 0;
    for (std::size_t i = 0; i < row.size(); ++i) marks += row[i] == '|' && (i == 0 || row[i - 1] != '\\') ? 1 : 0;
    return marks - 1;
}

TEST(Markdown, OfAPlanIsOneTableUnderTheJob) {
    const std::string two = kPlan + "--tp 1 --cp 1,2 --pp 1 --micro-batch 1 --recompute none --headroom 0 --search plain ";
    const auto lines = lines_of(say(two + "--markdown --top 2"));
    EXPECT_EQ(lines[0], "**llama3-8b on 16 GPUs (dgx-h100), batch of 1,024 x 4,096 tokens, bf16**");
    EXPECT_EQ(lines[1], "");
    EXPECT_EQ(lines[2], "all rows: tp 1, pp 1");
    EXPECT_EQ(lines[3], "");
    EXPECT_EQ(lines[4], "| \\# | cp | dp | mbs | rec | s/step | worst | tok/s | TFLOP/s | GiB | why |");
    EXPECT_EQ(lines[5], "| ---: | ---: | ---: | ---: | :--- | ---: | ---: | ---: | ---: | ---: | :--- |");
    const auto plans = nlohmann::json::parse(say(two + "--top 1 --format json").out)["plans"];
    EXPECT_THAT(lines[6],
                StartsWith(fmt::format("| 1 | 1 | 16 | 1 | none | {:.3f} |", plans[0]["predicted"]["iteration_seconds"].get<double>())));
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("|"); }), 4);
    EXPECT_THAT(say(kPlan + "--markdown").out, HasSubstr("\nassumed: cluster dgx-h100, sequence of 4,096 tokens, "));
}

TEST(Markdown, OfAWidePlanAndOfALayoutTellsTimeAndMemory) {
    for (const std::string& words :
         {kPlan + "--markdown --wide", std::string("simulate --world 16 --model llama3-8b --tp 2 --pp 2 --markdown")}) {
        const auto lines = lines_of(say(words));
        std::vector<std::size_t> tables;
        for (std::size_t i = 1; i < lines.size(); ++i) {
            if (!lines[i].starts_with("|")) continue;
            if (!lines[i - 1].starts_with("|")) {
                EXPECT_EQ(lines[i - 1], "") << words;
                EXPECT_THAT(lines[i + 1], StartsWith("| -")) << words;
                tables.push_back(i);
            } else {
                EXPECT_EQ(cells_of(lines[i]), cells_of(lines[i - 1])) << lines[i];
            }
        }
        EXPECT_EQ(tables.size(), 3U) << words;
        EXPECT_EQ(lines[tables[1] - 2], "Where the time of a step goes:");
        EXPECT_EQ(lines[tables[2] - 2], "What fills the fullest GPU, in GiB:");
    }
}

TEST(Markdown, EscapesWhatAModelIsCalled) {
    const TempFile model("a|b*<i>.json", R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
                                            "vocab_size": 512, "intermediate_size": 1024})");
    EXPECT_THAT(lines_of(say({"plan", "--world", "8", "--model", model.path(), "--markdown"}))[0], HasSubstr("a\\|b\\*\\<i\\> on 8 GPUs"));
}

TEST(Markdown, OfNothingThatFitsIsTheNearestMisses) {
    const Said said = say("plan --world 2 --model llama3-70b --markdown");
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(said.out, HasSubstr("\n```text\nNo layout fits. Nearest misses:\n"));
    const auto lines = split(said.out, '\n');
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("```"); }), 2);
}

TEST(Markdown, GoesWithNoOtherForm) {
    for (const std::string words :
         {"plan --world 16 --model llama3-8b --markdown --format json", "plan --world 16 --model llama3-8b --markdown --explain 1",
          "plan --world 8,16 --model llama3-8b --markdown", "plan --world 16 --model llama3-8b --markdown --tokens 1T",
          "simulate --world 16 --model llama3-8b --markdown --per-rank", "simulate --world 16 --model llama3-8b --markdown --format csv"}) {
        const Said said = say(words);
        EXPECT_EQ(said.code, kBadInput) << words;
        EXPECT_THAT(said.err, StartsWith("mgplan: --markdown ")) << words;
        EXPECT_THAT(said.err, HasSubstr("; drop ")) << words;
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::markdown_test
