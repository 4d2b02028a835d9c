// `mgplan plan --compare` takes what the table prints of each row.

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "say.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::cli::testing::plan_compare_rows_test {
namespace {

using Json = nlohmann::ordered_json;

/// Cells of a table's line: two blanks stand between them at least.
std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    for (std::size_t at = line.find_first_not_of(' '); at != std::string::npos;) {
        const std::size_t end = std::min(line.find("  ", at), line.size());
        cells.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(' ', end);
    }
    return cells;
}

/// Rank and layout of each row, in the words of its cells.
std::vector<std::pair<std::size_t, std::string>> rows_of(const std::string& text) {
    std::vector<std::pair<std::size_t, std::string>> rows;
    std::vector<std::string> names;
    for (const std::string& line : split(text, '\n')) {
        const std::vector<std::string> cells = cells_of(line);
        if (cells.empty()) {
            if (!names.empty()) break;
        } else if (cells.front() == "#") {
            names = cells;
        } else if (!names.empty() && cells.front().front() != '-') {
            EXPECT_EQ(cells.size(), names.size()) << line;
            std::string words;
            for (std::size_t i = 1; i < cells.size(); ++i) {
                const std::string& name = names[i];
                if (name == "rec" || (name == "on" && cells[i] != "-")) words += cells[i] + " ";
                for (const char* const size : {"tp", "cp", "ep", "etp", "pp", "vpp", "mbs"}) {
                    if (name == size) words += name + cells[i] + " ";
                }
            }
            rows.emplace_back(std::stoul(cells.front()), words);
        }
    }
    return rows;
}

void expect_each_row_taken(const std::string& job) {
    SCOPED_TRACE(job);
    const Json plans = Json::parse(say(job + " --format json --top 12").out)["plans"];
    const auto rows = rows_of(say(job + " --all --top 12").out);
    ASSERT_GT(rows.size(), 3U);
    for (const auto& [rank, words] : tests::sanitized_share(rows, 6)) {
        std::vector<std::string> line = split(job + " --format json --compare", ' ');
        line.push_back(words);
        const Said said = say(line);
        ASSERT_EQ(said.code, kDone) << words << ": " << said.err;
        const Json compared = Json::parse(said.out)["compared"]["b"];
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
    for (const std::string words : {"tp2 ep8 graphs=none", "tp2,ep8,graphs=none", "tp2\tep8\tgraphs=none"})
        EXPECT_EQ(graphs(words), Json::array()) << words;
    EXPECT_EQ(graphs("tp2,ep8,graphs"), Json::array({"attn"}));
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_compare_rows_test
