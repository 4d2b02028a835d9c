#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "plan/json/cluster_json.hpp"
#include "reports/table.hpp"

namespace mgplan::cli::clusters_command_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Result {
    int code;
    std::string out;
    std::string err;
};

Result run(const std::vector<std::string>& args) {
    std::ostringstream out, err;
    Console console{out, err};
    const int code = run_mgplan(args, console);
    return {code, out.str(), err.str()};
}

void expect_at_most_100_columns(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(reports::display_width(line), 100U) << line;
}

TEST(ClustersCommand, ListsEveryPresetWithin100Columns) {
    const Result result = run({"clusters"});
    EXPECT_EQ(result.code, kDone) << result.err;
    for (const auto& name : cluster_preset_names()) EXPECT_THAT(result.out, HasSubstr("\n" + name + " "));
    // The longest name sets how wide the first column is.
    EXPECT_THAT(result.out, ContainsRegex("\ndgx-h100 +H100-SXM5-80GB    79.2    989.4    3350      8       8     450       3200\n"));
    expect_at_most_100_columns(result.out);
}

TEST(ClustersCommand, ShowsFiguresWithSourcesWithin100Columns) {
    for (const auto& name : cluster_preset_names()) {
        const Result result = run({"clusters", "show", name});
        EXPECT_EQ(result.code, kDone) << result.err;
        EXPECT_THAT(result.out, HasSubstr("data sheet"));
        EXPECT_EQ(result.out.find("not stated"), std::string::npos);
        expect_at_most_100_columns(result.out);
    }
}

TEST(ClustersCommand, JsonReadsBackAsAClusterFile) {
    const std::string name = std::to_string(getpid()) + "_mgplan_clusters_command_test.json";
    const std::string file = (std::filesystem::temp_directory_path() / name).string();
    EXPECT_EQ(run({"clusters", "show", "gb200-nvl72", "--format", "json", "--output", file}).code, kDone);
    EXPECT_EQ(load_cluster(file), load_cluster("gb200-nvl72"));
    EXPECT_EQ(run({"clusters", "show", file, "--format", "json"}).out, run({"clusters", "show", "gb200-nvl72", "--format", "json"}).out);
    std::filesystem::remove(file);
}

TEST(ClustersCommand, ListsAsJsonAndCsv) {
    const auto json = nlohmann::json::parse(run({"clusters", "--format", "json"}).out);
    ASSERT_EQ(json.at("clusters").size(), cluster_preset_names().size());
    for (const auto& cluster : json.at("clusters")) EXPECT_TRUE(cluster.at("memory_bytes").is_number_integer());
    const std::string csv = run({"clusters", "--format", "csv"}).out;
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\r'), std::ssize(cluster_preset_names()) + 1);
}

TEST(ClustersCommand, RefusesUnknownNamesAndWords) {
    EXPECT_EQ(run({"clusters", "show", "dgx-a100"}).code, kBadInput);
    EXPECT_THAT(run({"clusters", "show", "dgx-a100"}).err, HasSubstr("did you mean dgx-a100-40g, dgx-a100-80g"));
    EXPECT_THAT(run({"clusters", "show"}).err, HasSubstr("needs a name"));
    EXPECT_THAT(run({"clusters", "list"}).err, HasSubstr("unknown word 'list'"));
}

}  // namespace
}  // namespace mgplan::cli::clusters_command_test
