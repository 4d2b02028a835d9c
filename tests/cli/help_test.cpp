// The help of plan and simulate, word for word. After an intended change: MGPLAN_UPDATE_SNAPSHOTS=1 ./plan_command_test.

#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "reports/table.hpp"
#include "say.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::cli::testing::help_test {
namespace {

std::vector<std::string> commands_of_mgplan() {
    std::vector<std::string> names;
    for (const auto& command : commands()) names.emplace_back(command.name);
    return names;
}

void expect_snapshot(const std::string& command) {
    const Said said = say(std::vector<std::string>{command, "--help"});
    EXPECT_EQ(said.code, kDone);
    EXPECT_EQ(said.err, "");
    for (const auto& line : split(said.out, '\n')) EXPECT_LE(reports::display_width(line), 80U) << line;
    const std::string path = fmt::format("{}/cli/data/{}_help.txt", tests::data_folder(), command);
    if (std::getenv("MGPLAN_UPDATE_SNAPSHOTS") != nullptr) {
        std::ofstream(path) << said.out;
        return;
    }
    std::ifstream file(path);
    ASSERT_TRUE(file) << path << " is missing; MGPLAN_UPDATE_SNAPSHOTS=1 writes it";
    EXPECT_EQ(said.out, std::string(std::istreambuf_iterator<char>(file), {})) << "if intended: MGPLAN_UPDATE_SNAPSHOTS=1 writes it anew";
}

TEST(Help, OfPlan) {
    expect_snapshot("plan");
}

TEST(Help, OfSimulate) {
    expect_snapshot("simulate");
}

TEST(Help, FitsIntoEightyColumns) {
    std::vector<std::string> asked{""};
    for (const auto& command : commands_of_mgplan()) asked.push_back(command + " ");
    for (const auto& command : asked) {
        // Some lines hold an ellipsis or a middle dot: bytes are no columns.
        for (const auto& line : split(say(command + "--help").out, '\n')) EXPECT_LE(reports::display_width(line), 80U) << line;
    }
}

TEST(Help, NamesTheDefaultOfEveryOption) {
    for (const char* command : {"plan", "simulate"}) {
        const auto lines = split(say(std::vector<std::string>{command, "--help"}).out, '\n');
        std::string entry;
        const auto finish = [&] {
            // Flags, files to write and what must be given have no default.
            const bool takes_value = entry.find("  --") == 0 && entry.size() > 6 && entry.find_first_of(" \n", 4) != std::string::npos &&
                                     entry.substr(entry.find(' ', 4), 2) != "  ";
            const bool excused = ::testing::Matches(
                ::testing::ContainsRegex("--(world|model|megatron-args|output|save-plan|explain|kind|timeline|memory-snapshot|html|no-"
                                         "overlap|pipeline-layout|compare|tokens|gpu-hour-price|"
                                         "global-batch-tokens) "))(entry);
            if (takes_value && !excused) {
                // A line may end anywhere.
                std::string flat = entry;
                std::replace(flat.begin(), flat.end(), '\n', ' ');
                EXPECT_THAT(flat, ::testing::HasSubstr("(default:"));
            }
            entry.clear();
        };
        for (const auto& line : lines) {
            if (line.starts_with("  --") || line.empty()) finish();
            entry += line + "\n";
        }
        finish();
    }
}

}  // namespace
}  // namespace mgplan::cli::testing::help_test
