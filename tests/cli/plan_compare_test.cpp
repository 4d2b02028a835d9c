// `mgplan plan --compare`: a layout in words, of a plan or of Megatron-LM arguments beside the first plan.

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::plan_compare_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = "plan --world 16 --model llama3-8b --global-batch 128 --search plain ";

Json compared(const std::string& given) {
    std::vector<std::string> words = split(kJob + "--format json --compare", ' ');
    words.push_back(given);
    const Said said = say(words);
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.err, "");
    return Json::parse(said.out)["compared"];
}

TEST(PlanCompare, PutsALayoutBesideTheFirstTermByTerm) {
    const Json found = compared("tp4 pp2 mbs1");
    EXPECT_TRUE(found["fits"].get<bool>());
    EXPECT_EQ(found["missing_bytes"], 0);
    const Json plans = Json::parse(say(kJob + "--format json --top 1").out);
    EXPECT_GT(found["rank"].get<int>(), 10);
    EXPECT_LE(found["rank"].get<int>(), plans["search"]["feasible"].get<int>() + 10) << "some do not fit when replayed";
    EXPECT_EQ(found["a"]["predicted"], plans["plans"][0]["predicted"]);
    // What simulate says of the same layout.
    Json alone = Json::parse(say("simulate --world 16 --model llama3-8b --global-batch 128 --tp 4 --pp 2 --format json").out);
    alone["predicted"]["memory"].erase("allocator_replay");  // simulate alone lists its figures
    EXPECT_EQ(found["b"]["predicted"], alone["predicted"]);
    double sum = 0;
    for (const auto& term : found["terms"]) sum += term["difference_seconds"].get<double>();
    EXPECT_NEAR(sum, found["difference_seconds"].get<double>(), 1e-9);
    EXPECT_GT(found["difference_seconds"].get<double>(), 0);
    std::map<std::string, Json> fields;
    for (const auto& field : found["fields"]) fields[field["field"]] = field["b"];
    EXPECT_EQ(fields.at("layout.pp"), 2);
}

TEST(PlanCompare, ReadsARowOfTheTableAsTheTableMeansIt) {
    const Said said = say("--world 64 --model mixtral-8x7b --global-batch 64 --format json --top 1 --compare tp2+sp,ep4,sel");
    ASSERT_EQ(said.code, kDone) << said.err;
    const Json layout = Json::parse(said.out)["compared"]["b"]["layout"];
    EXPECT_EQ(layout["tp"], 2);
    EXPECT_EQ(layout["etp"], 1) << "a size that is left out is 1, not tp";
    EXPECT_EQ(layout["recompute"], "selective");
}

TEST(PlanCompare, APlanSavedWithWhatTheSearchSwitchedOnIsItself) {
    const std::string job = "--world 32 --model mixtral-8x7b --global-batch 64 --search dispatcher,optimizer --format json ";
    TempFile plan("switched.json");
    const Json plans = Json::parse(say(job + "--top 1 --pick 1 --save-plan " + plan.path()).out);
    ASSERT_TRUE(plans["plans"][0]["layout"]["dispatcher"] != "alltoall" || !plans["plans"][0]["layout"]["optimizer_dtypes"].is_null())
        << "this test shows nothing";
    const Said said = say(job + "--top 1 --compare " + plan.path());
    EXPECT_EQ(said.err, "");
    const Json found = Json::parse(said.out)["compared"];
    EXPECT_EQ(found["rank"], 1);
    EXPECT_EQ(found["difference_seconds"], 0);
    // The plan is priced with its own switches wherever it is shown.
    EXPECT_EQ(found["a"]["predicted"]["memory"]["peak_bytes"], plans["plans"][0]["predicted"]["memory"]["peak_bytes"]);
    EXPECT_EQ(found["b"]["predicted"], found["a"]["predicted"]);
}

TEST(PlanCompare, TheSecondPlanIsSecondHoweverItIsGiven) {
    TempFile plan("second.json"), args("second.sh");
    ASSERT_EQ(say(kJob + "--save-plan " + plan.path() + " --pick 2").code, kDone);
    const Json by_plan = compared(plan.path());
    EXPECT_EQ(by_plan["rank"], 2);
    EXPECT_TRUE(by_plan["rank_is_exact"].get<bool>());
    ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + args.path()).code, kDone);
    const Json by_arguments = compared(args.path());
    EXPECT_EQ(by_arguments["rank"], 2);
    EXPECT_EQ(by_arguments["b"]["layout"], by_plan["b"]["layout"]);
    const Said table = say(kJob + "--compare " + plan.path());
    EXPECT_THAT(table.out,
                AllOf(HasSubstr("second.json compared with plan 1: place 2 among the "), Not(HasSubstr("by the search's estimate")),
                      HasSubstr("plan 1 against "), HasSubstr("An iteration takes ")));
    EXPECT_THAT(say(kJob + "--compare tp4").out, HasSubstr(", by the search's estimate; "));
}

TEST(PlanCompare, TakesTheLayoutAloneOfAnotherJob) {
    TempFile plan("other.json");
    ASSERT_EQ(say("plan --world 16 --model llama3-8b --global-batch 64 --tp 2 --pp 2 --save-plan " + plan.path()).code, kDone);
    const Said said = say(kJob + "--compare " + plan.path());
    EXPECT_EQ(said.code, kDone);
    EXPECT_THAT(said.err, HasSubstr("its batch is not that of this search; its layout alone is compared"));
}

TEST(PlanCompare, OfALayoutThatDoesNotFitSaysByHowMuch) {
    const Json found =
        Json::parse(say({"plan", "--world", "32", "--model", "llama3-70b", "--format", "json", "--compare", "tp2 mbs4"}).out)["compared"];
    EXPECT_FALSE(found["fits"].get<bool>());
    EXPECT_TRUE(found["rank"].is_null());
    EXPECT_GT(found["missing_bytes"].get<std::int64_t>(), 0);
    EXPECT_THAT(say({"plan", "--world", "32", "--model", "llama3-70b", "--compare", "tp2 mbs4"}).out,
                HasSubstr("tp2 mbs4 compared with plan 1: it does not fit, "));
    const Said nothing = say({"plan", "--world", "2", "--model", "llama3-70b", "--compare", "tp2"});
    EXPECT_EQ(nothing.code, kNothingFits);
    EXPECT_THAT(nothing.err, HasSubstr("nothing fits, so there is no plan that --compare could compare the layout with"));
}

TEST(PlanCompare, WordsNameWhatIsSwitchedOnAndWhatTheyLeaveOutIsSaid) {
    const std::string job = "plan --world 32 --model mixtral-8x7b --global-batch 64 --top 1 --compare ";
    const Json found = Json::parse(say(job + "tp1,ep8,pp2,mbs1,full,deepep --format json").out)["compared"];
    const Json alone =
        Json::parse(say("simulate --world 32 --model mixtral-8x7b --global-batch 64 --ep 8 --etp 1 --pp 2 --recompute full --dispatcher "
                        "deepep --format json")
                        .out);
    EXPECT_EQ(found["b"]["predicted"]["iteration_seconds"], alone["predicted"]["iteration_seconds"]);
    const std::string left_out = "Sizes that its words leave out count as 1";
    EXPECT_THAT(say(job + "tp1,ep8,pp2,mbs1,full").out, Not(HasSubstr(left_out)));
    const Said misses = say(job + "tp2");
    EXPECT_THAT(misses.out, AllOf(HasSubstr("it does not fit, "), HasSubstr(left_out), Not(HasSubstr("% slower"))));
    expect_refused("simulate --world 16 --model llama3-8b --dispatcher deepep", {"--dispatcher needs experts, and llama3-8b has none"});
    EXPECT_THAT(say(kJob + "--compare tp2,deepep").err, HasSubstr("'deepep' dispatches the tokens of experts, and llama3-8b has none"));
}

TEST(PlanCompare, GraphsAreThoseOfTheWordsAndJudgedByTheirDispatcher) {
    const std::string job =
        "plan --world 8 --model qwen3-30b-a3b --cluster gb200-nvl72 --global-batch 64 --tp 1 --pp 1 --cp 1 --ep 8 --micro-batch 1 --top 1 "
        "--compare ";
    const Json found = Json::parse(say(job + "ep8,mbs1,hybridep,graphs=full_iteration --format json").out)["compared"]["b"]["layout"];
    EXPECT_EQ(found["cuda_graphs"].dump(), R"(["full_iteration"])");
    expect_refused(job + "ep8,mbs1,alltoall,graphs=full_iteration",
                   {"--compare: cuda graphs: full_iteration captures the experts of qwen3-30b-a3b", "the dispatcher reads on the host"});
}

TEST(PlanCompare, RefusesWhatIsNoLayoutOfTheJob) {
    expect_refused(kJob + "--compare tp3", {"--compare: ", "tp"});
    expect_refused(kJob + "--compare no/such.json",
                   {"--compare: 'no/such.json' is neither a file that is there", "is no part of a layout"});
    expect_refused("plan --world 8,16 --model llama3-8b --compare tp2", {"--compare is for the plans of one world"});
    expect_refused(kJob + "--compare tp2 --markdown", {"--markdown shows the plans of a search"});
    expect_refused(kJob + "--compare tp2 --tokens 1T", {"not of a study"});
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_compare_test
