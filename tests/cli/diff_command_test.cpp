// `mgplan diff`: two plans, term by term.

#include <map>
#include <regex>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::diff_command_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class DiffCommand : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(say(std::string(kJob) + "--tp 4 --pp 2 --save-plan " + a_.path()).code, kDone);
        ASSERT_EQ(say(std::string(kJob) + "--tp 2 --pp 4 --save-plan " + b_.path()).code, kDone);
    }

    static constexpr const char* kJob =
        "--search plain --world 16 --model llama3-8b --cp 1 --vpp 1 --micro-batch 1 --recompute none --sequence-parallel on ";
    TempFile a_{"diff_a.json"}, b_{"diff_b.json"};
};

TEST_F(DiffCommand, NamesWhatDiffersAndTheTermsOfBoth) {
    const Said said = say("diff " + a_.path() + " " + b_.path() + " --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const Json json = Json::parse(said.out);
    std::map<std::string, Json> fields;
    for (const auto& field : json["fields"]) fields[field["field"]] = field;
    EXPECT_EQ(fields.at("layout.tp")["a"], 4);
    EXPECT_EQ(fields.at("layout.tp")["b"], 2);
    EXPECT_EQ(fields.count("model.layers"), 0U);
    const double there = json["b"]["predicted"]["iteration_seconds"], here = json["a"]["predicted"]["iteration_seconds"];
    EXPECT_DOUBLE_EQ(json["difference_seconds"].get<double>(), there - here);
    double sum = 0;
    for (const auto& term : json["terms"]) sum += term["difference_seconds"].get<double>();
    EXPECT_NEAR(sum, there - here, 1e-9);
    // Each is what simulate predicts of it.
    EXPECT_EQ(Json::parse(say("simulate " + b_.path() + " --format json").out)["predicted"]["iteration_seconds"], there);
}

TEST_F(DiffCommand, PrintsATableAndCsv) {
    const Said table = say("diff " + a_.path() + " " + b_.path());
    EXPECT_THAT(table.out, AllOf(HasSubstr("layout.tp"), HasSubstr(a_.path() + " against " + b_.path()), HasSubstr("An iteration takes "),
                                 HasSubstr("memory (GiB)")));
    EXPECT_THAT(say("diff " + a_.path() + " " + b_.path() + " --format csv").out, HasSubstr("compute,seconds,"));
    EXPECT_THAT(say("diff " + a_.path() + " " + a_.path()).out, HasSubstr("are the same plan"));
}

TEST_F(DiffCommand, NamesTheLargestTermsThatGoTheWayOfTheWholeFirst) {
    const std::string files = a_.path() + " " + b_.path();
    const Json json = Json::parse(say("diff " + files + " --format json").out);
    const double whole = json["difference_seconds"];
    double largest = 0, largest_against = 0;
    std::string term, term_against;
    for (const auto& one : json["terms"]) {
        const double difference = one["difference_seconds"].get<double>() * (whole < 0 ? -1 : 1);
        if (difference > largest) std::tie(largest, term) = std::pair(difference, one["term"].get<std::string>());
        if (difference < largest_against) std::tie(largest_against, term_against) = std::pair(difference, one["term"].get<std::string>());
    }
    ASSERT_LT(largest_against, -0.1 * largest) << "terms go both ways";
    const std::string out = std::regex_replace(say("diff " + files).out, std::regex("\\s+"), " ");  // wherever its lines end
    const std::string more = whole < 0 ? "more " : "less ", less = whole < 0 ? "less " : "more ";
    EXPECT_THAT(out, ::testing::MatchesRegex(".*; most of it: [0-9.]+ s " + more + term + "[,;].*; against it: [0-9.]+ s " + less +
                                             term_against + ".*"));
}

TEST_F(DiffCommand, NamesWhatIsOnForBoth) {
    const TempFile switched("diff_switched.json");
    ASSERT_EQ(
        say("--search plain --world 16 --model qwen3-30b-a3b --tp 1 --cp 1 --ep 8 --pp 2 --vpp 4 --micro-batch 1 --recompute selective "
            "--recompute-modules moe_act --dispatcher deepep --overlap moe --save-plan " +
            switched.path())
            .code,
        kDone);
    EXPECT_THAT(say("diff " + switched.path() + " " + a_.path()).out, HasSubstr(" p2p selective moe_act deepep moe-overlap\n"));
}

TEST_F(DiffCommand, AsksForTwoPlans) {
    expect_refused("diff", {"diff compares two plans, and none is given"});
    expect_refused("diff " + a_.path(), {"diff compares two plans, and one is given"});
    expect_refused("diff " + a_.path() + " no-such-plan.json", {"no-such-plan.json"});
}

}  // namespace
}  // namespace mgplan::cli::testing::diff_command_test
