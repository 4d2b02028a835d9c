// --lengths and --routing: what the prediction follows, and what is refused.

#include <fstream>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::lengths_option_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

std::string file_of(const std::string& name, const std::string& text) {
    std::string path = ::testing::TempDir() + "/lengths_option_" + name + ".json";
    std::ofstream(path) << text;
    return path;
}

const std::string kJob = "simulate --world 64 --model llama3-8b --seq 32768 --global-batch 64 --tp 8 --cp 1 --pp 1 --micro-batch 1 ";

Json simulated(const std::string& options) {
    const Said said = say(kJob + "--format json" + (options.empty() ? "" : " " + options));
    EXPECT_EQ(said.code, kDone) << said.err;
    return Json::parse(said.out);
}

double seconds(const Json& answer) {
    return answer["predicted"]["iteration_seconds"].get<double>();
}

TEST(LengthsOption, ShortensAttentionAndWaitsForTheBusiestRank) {
    const Json one = simulated(""), whole = simulated("--lengths " + file_of("whole", "[[32768, 5]]")),
               even = simulated("--lengths " + file_of("even", "[[4096, 1]]")),
               // As many pairs in the mean (half of the tokens in either), in unequal parts.
        uneven = simulated("--lengths " + file_of("uneven", "[[7168, 1], [1024, 7]]"));
    EXPECT_EQ(whole["predicted"]["iteration_seconds"], one["predicted"]["iteration_seconds"]);
    EXPECT_LT(seconds(even), seconds(one));
    EXPECT_GT(seconds(uneven), seconds(even));
    EXPECT_LT(seconds(uneven), seconds(one));
    EXPECT_EQ(even["predicted"]["memory"], one["predicted"]["memory"]);
    EXPECT_THAT(say(kJob + "--lengths " + file_of("even", "[[4096, 1]]")).out, HasSubstr("tokens of packed documents, bf16"));
    // Attention that is not there counts for no FLOPs.
    const auto flops = [](const Json& answer) { return answer["predicted"]["model_tflops_per_gpu"].get<double>() * seconds(answer); };
    EXPECT_LT(flops(even), flops(one));
    EXPECT_NEAR(flops(even), flops(uneven), 1e-6 * flops(even));
}

TEST(LengthsOption, APlanKeepsThemAndRunRefusesThem) {
    const std::string lengths = file_of("plan", "[[16, 3], [32, 1]]"), plan = ::testing::TempDir() + "/lengths_option_saved.json";
    ASSERT_EQ(say("plan --world 2 --model tiny-llama --seq 32 --global-batch 8 --lengths " + lengths + " --save-plan " + plan).code, kDone);
    EXPECT_EQ(Json::parse(say("export " + plan + " --to mgplan").out)["batch"]["lengths"], (Json{{16, 3}, {32, 1}}));
    const Said again = say("simulate " + plan);
    EXPECT_EQ(again.code, kDone) << again.err;
    EXPECT_THAT(again.out, HasSubstr("of packed documents"));
    const Said run = say("run " + plan + " --steps 1");
    EXPECT_EQ(run.code, kBadInput);
    EXPECT_THAT(run.err, HasSubstr("--lengths"));
}

TEST(LengthsOption, RefusesWhatIsNoHistogram) {
    for (const auto& [text, problem] :
         {std::pair{"{}", "is no list of 1 to"}, std::pair{"[[1, 2, 3]]", "that is no pair"},
          std::pair{"[[0, 1]]", "a length that is no whole number"},
          std::pair{"[[8, -1]]", "a count of documents of 8 tokens that is no number"},
          std::pair{"[[8, 1], [8, 2]]", "documents of 8 tokens twice"}, std::pair{"[[8, 0]]", "has no document: all counts are 0"}}) {
        const Said said = say(kJob + "--lengths " + file_of("bad", text));
        EXPECT_EQ(said.code, kBadInput) << text;
        EXPECT_THAT(said.err, HasSubstr(problem));
        EXPECT_THAT(said.err, HasSubstr("as in [[512, 900], [4096, 35]]"));
    }
    const std::string good = file_of("good", "[[512, 1]]");
    EXPECT_THAT(say(kJob + "--engine mgplan --lengths " + good).err, HasSubstr("use --engine megatron"));
    EXPECT_THAT(say(kJob + "--attention unfused --lengths " + good).err, HasSubstr("use --attention flash"));
}

TEST(RoutingOption, ForcedDrawsExpertsAndIsNoAssumption) {
    const std::string job = "simulate --world 8 --model mixtral-8x7b --tp 1 --pp 1 --ep 8 --micro-batch 1 --format json ";
    Json natural = Json::parse(say(job + "--routing natural").out), forced = Json::parse(say(job + "--routing forced").out);
    EXPECT_THAT(natural["assumed"].dump(), HasSubstr("uniform routing"));
    EXPECT_THAT(forced["assumed"].dump(), Not(HasSubstr("uniform routing")));
    // Random draws are what is assumed, but not in adverse conditions.
    EXPECT_GT(natural["predicted"].at("adverse_seconds"), forced["predicted"].at("adverse_seconds"));
    natural["predicted"].erase("adverse_seconds");
    forced["predicted"].erase("adverse_seconds");
    EXPECT_EQ(natural["predicted"], forced["predicted"]);
    const Said both = say(job + "--routing forced --routing-skew zipf");
    EXPECT_EQ(both.code, kBadInput);
    EXPECT_THAT(both.err, HasSubstr("drop one of the two"));
    EXPECT_THAT(say("simulate --world 8 --model llama3-8b --routing forced").err,
                HasSubstr("--routing has no effect: llama3-8b has no experts"));
}

}  // namespace
}  // namespace mgplan::cli::testing::lengths_option_test
