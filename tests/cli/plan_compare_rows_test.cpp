// `mgplan plan --compare` takes what the table of --wide prints of each row.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "say.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::cli::testing::plan_compare_rows_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

/// Cells of a table's line, which stand where the rule of dashes under the header has its dashes.
std::vector<std::string> cells_of(const std::string& line, const std::string& rule) {
    std::vector<std::string> cells;
    for (std::size_t at = 0; at < rule.size();) {
        const std::size_t end = std::min(rule.find(' ', at), rule.size());
        const std::string cell = at < line.size() ? line.substr(at, end - at) : "";
        const std::size_t first = std::min(cell.find_first_not_of(' '), cell.size()), last = cell.find_last_not_of(' ') + 1;
        cells.push_back(first < last ? cell.substr(first, last - first) : "");
        at = std::min(rule.find_first_not_of(' ', end), rule.size());
    }
    return cells;
}

/// Rank and layout of each row, in the words of its cells.
std::vector<std::pair<std::size_t, std::string>> rows_of(const std::string& text) {
    std::vector<std::pair<std::size_t, std::string>> rows;
    const std::vector<std::string> lines = split(text, '\n');
    const auto rule = std::ranges::find_if(
        lines, [](const std::string& line) { return line.starts_with('-') && line.find_first_not_of("- ") == std::string::npos; });
    if (rule == lines.begin() || rule == lines.end()) return rows;
    const std::vector<std::string> names = cells_of(*(rule - 1), *rule);
    for (auto line = rule + 1; line != lines.end() && !line->empty(); ++line) {
        const std::vector<std::string> cells = cells_of(*line, *rule);
        if (cells.front().empty()) continue;  // more lines of the reasons
        std::string words;
        for (std::size_t i = 1; i < cells.size(); ++i) {
            const std::string& name = names[i];
            if (name == "rec" || name == "features" || name == "schedule" || name == "order") words += cells[i] + " ";
            for (const char* const size : {"tp", "cp", "ep", "etp", "dp", "pp", "mbs"}) {
                if (name == size) words += name + cells[i] + " ";
            }
        }
        rows.emplace_back(std::stoul(cells.front()), words);
    }
    return rows;
}

/// Every row of the first `top`. A plain search without --search: no cell tells a split by the layers' work from the automatic one.
void expect_each_row_taken(const std::string& given, int top = 12) {
    const std::string job = given.find("--search") == std::string::npos ? given + " --search plain" : given;
    SCOPED_TRACE(job);
    const Json plans = Json::parse(say(fmt::format("{} --format json --top {}", job, top)).out)["plans"];
    const auto rows = rows_of(say(fmt::format("{} --all --wide --top {}", job, top)).out);
    ASSERT_GE(rows.size(), std::min<std::size_t>(3, static_cast<std::size_t>(top)));
    for (const auto& [rank, words] : tests::sanitized_share(rows, 3)) {
        std::vector<std::string> line = split(job + " --format json --compare", ' ');
        line.push_back(words);
        const Said said = say(line);
        ASSERT_EQ(said.code, kDone) << words << ": " << said.err;
        const Json answer = Json::parse(said.out);
        EXPECT_EQ(answer["compared"]["rank"], rank) << words;
        const Json compared = answer["compared"]["b"];
        const Json& plan = plans[rank - 1];
        for (const auto& [field, value] : compared["layout"].items()) EXPECT_EQ(value, plan["layout"][field]) << words << ", " << field;
        EXPECT_EQ(compared["predicted"], plan["predicted"]) << words;  // switches too
    }
}

TEST(PlanCompareRows, TakesWhatATableOfAWideSearchPrints) {
    expect_each_row_taken("plan --world 8 --model qwen3-30b-a3b --global-batch 64 --search wide --micro-batch 1,2 --cp 1 --headroom 0");
}

TEST(PlanCompareRows, TakesBlocksAndGraphs) {
    expect_each_row_taken(
        "plan --world 8 --model llama3-8b --global-batch 64 --search block,cuda-graphs,tp-overlap --tp 2 --cp 1 --recompute full");
    expect_each_row_taken("plan --world 8 --model qwen3-30b-a3b --global-batch 64 --search cuda-graphs,recompute --micro-batch 1 --cp 1");
}

TEST(PlanCompareRows, TakesTheWayKeysTravelAndRowsThatAreNotSequenceParallel) {
    const std::string long_job =
        "plan --world 32 --model llama3-8b --seq 131072 --global-batch 8 --cp 4,8 --tp 2,4 --cp-comm-type a2a,all_gather";
    EXPECT_THAT(say(long_job + " --all").out, AllOf(HasSubstr("ag  "), HasSubstr("+sp  ")));
    expect_each_row_taken(long_job, 4);
    const std::string off =
        "plan --world 16 --model llama3-8b --global-batch 128 --sequence-parallel auto --tp 4 --cp 1 --pp 1 --recompute none";
    EXPECT_THAT(say(off + " --search plain --all --top 8").out,
                AllOf(HasSubstr("4+sp"), HasSubstr("4-sp"), HasSubstr("-sp: not sequence parallel")));
    expect_each_row_taken(off, 6);
    expect_each_row_taken("plan --world 16 --model llama3-8b --global-batch 128 --sequence-parallel off --tp 2,4", 3);
}

TEST(PlanCompareRows, TakesWhatTheSearchPinsAndNoCellSays) {
    const std::string dense = "plan --world 16 --model llama3-8b --global-batch 128 --cp 1 ";
    expect_each_row_taken(dense + "--recompute full --recompute-num-layers 4", 3);
    expect_each_row_taken(dense + "--recompute full --recompute-method block --recompute-num-layers 3", 3);
    expect_each_row_taken(dense + "--recompute selective --recompute-modules layernorm,mlp", 3);
    expect_each_row_taken(dense + "--cuda-graphs attn --recompute none", 3);
    expect_each_row_taken(dense + "--pp 4 --vpp 2,4 --group-size 8", 3);
    expect_each_row_taken(dense + "--pipeline-layout Et*9|t*8|t*8|t*7L", 3);
    expect_each_row_taken(dense + "--offload optimizer:0.5", 3);
    expect_each_row_taken(dense + "--engine mgplan", 3);
}

TEST(PlanCompareRows, TakesOrdersAndSchedules) {
    // One order alone has no column; of several the cell names the axes of more than one rank.
    expect_each_row_taken("plan --world 64 --model mixtral-8x7b --global-batch 128 --cp 1 --order tp-cp-pp-ep-dp", 3);
    expect_each_row_taken(
        "plan --world 64 --model mixtral-8x7b --global-batch 128 --cp 1 --order tp-cp-ep-dp-pp,tp-cp-pp-ep-dp,pp-dp-tp-cp-ep", 6);
    expect_each_row_taken(
        "plan --world 64 --model llama3-8b --global-batch 128 --order tp-cp-ep-dp-pp,tp-cp-pp-ep-dp --tp 1 --cp 1 --pp 1,2", 4);
    expect_each_row_taken("plan --world 16 --model llama3-8b --global-batch 64 --pp 4 --tp 1,2 --schedule auto,zb-h1,zb-v --engine mgplan",
                          4);
    // A single stage has no schedule.
    expect_each_row_taken(
        "plan --world 32 --model olmoe-1b-7b --global-batch 128 --micro-batch 1 --tp 1,2 --vpp 1 --schedule auto,zb-h1 --engine mgplan", 3);
}

TEST(PlanCompareRows, TakesOverlapsInTheGraphOfAnIteration) {
    expect_each_row_taken(
        "plan --world 16 --model gpt-oss-20b --global-batch 64 --micro-batch 1 --cp 1 --tp 1 --search moe-overlap --dispatcher hybridep "
        "--cuda-graphs full_iteration --recompute none",
        6);
}

TEST(PlanCompareRows, HoldWhatFollowsFromTheSizesAgainstThem) {
    const std::string job = "plan --world 16 --model llama3-8b --global-batch 128 --top 1 --compare ";
    EXPECT_EQ(say(job + "tp2,pp2,dp4").code, kDone);
    expect_refused(job + "tp2,pp2,dp8", {"--compare: dp = 8 is not what tp·cp·pp = 2·1·2 of 16 GPUs leave, which is 4"});
    EXPECT_EQ(say(job + "pp2,1f1b").code, kDone);
    expect_refused(job + "pp2,interleaved", {"--compare: interleaved is not the schedule of pp = 2 and vpp = 1, which is 1f1b"});
    expect_refused(job + "tp,pp2", {"--compare: 'tp' is a size without its number, or an order of the axes"});
    expect_refused(job + "tp2,pp-tp --order tp-cp-ep-dp-pp,tp-cp-pp-ep-dp",
                   {"is none of the orders of these sizes that are searched; use tp-dp, or"});
    EXPECT_EQ(say(job + "tp2,pp2,tp-cp-ep-dp-pp --order tp-cp-ep-dp-pp").code, kDone) << "a whole order";
    expect_refused(job + "tp2,dp-tp", {"--compare: dp-tp is none of the orders of these sizes that are searched; use tp-dp"});
    expect_refused(job + "tp2,-,tp-overlap", {"--compare: ", "'-' says that nothing is switched on, and tp-overlap stands there too"});
    expect_refused(job + "tp2+sp,nosp", {"--compare: ", "sp stands twice"});
}

TEST(PlanCompareRows, ReadsGraphsBehindCommasAndTabsToo) {
    const std::string plan =
        "plan --world 8 --model qwen3-30b-a3b --global-batch 64 --micro-batch 1 --cp 1 --cuda-graphs attn --format json --compare";
    const auto graphs = [&](const std::string& words) {
        std::vector<std::string> line = split(plan, ' ');
        line.push_back(words);
        const Said said = say(line);
        EXPECT_EQ(said.code, kDone) << said.err;
        return Json::parse(said.out)["compared"]["b"]["layout"]["cuda_graphs"];
    };
    EXPECT_EQ(graphs("tp2 ep8"), Json::array({"attn"}));
    for (const std::string words : {"tp2 ep8 graphs=none", "tp2,ep8,graphs=none", "tp2\tep8\tgraphs=none", "tp2\nep8\r\ngraphs=none"})
        EXPECT_EQ(graphs(words), Json::array()) << words;
    EXPECT_EQ(graphs("tp2,ep8,graphs"), Json::array({"attn"}));
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_compare_rows_test
