// `--routing-skew` on plan and simulate: what it changes, what files it reads, what it refuses.

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::routing_skew_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kMixtral = "--world 64 --model mixtral-8x7b";
const std::string kLayout = kMixtral + " --ep 8 --pp 4";

Json memory_of(const std::string& words, int code = kDone) {
    const Said said = say("simulate " + words + " --format json");
    EXPECT_EQ(said.code, code) << words << "\n" << said.err;
    return Json::parse(said.out)["predicted"]["memory"];
}

std::int64_t bytes(const Json& memory, const char* quantile) {
    return memory["routing"][quantile].get<std::int64_t>();
}

TEST(RoutingSkewOption, MovesTheQuantilesAndNotTheEvenPeak) {
    const Json fair = memory_of(kLayout), balanced = memory_of(kLayout + " --routing-skew balanced");
    EXPECT_EQ(fair["routing"]["skew"], "uniform");
    EXPECT_EQ(fair["breakdown"], balanced["breakdown"]);
    EXPECT_EQ(bytes(balanced, "p99_bytes"), balanced["peak_bytes"].get<std::int64_t>());
    EXPECT_LT(fair["peak_bytes"].get<std::int64_t>(), bytes(fair, "p50_bytes"));
    EXPECT_LT(bytes(fair, "p50_bytes"), bytes(fair, "p99_bytes"));
    EXPECT_LT(bytes(fair, "p99_bytes"), bytes(fair, "worst_bytes"));
    const Json zipf = memory_of(kLayout + " --routing-skew zipf", kNothingFits);
    EXPECT_EQ(zipf["peak_bytes"], fair["peak_bytes"]);
    EXPECT_GT(bytes(zipf, "p50_bytes"), bytes(fair, "p99_bytes"));
    const Json worst = memory_of(kLayout + " --routing-skew worst", kNothingFits);
    EXPECT_EQ(bytes(worst, "p50_bytes"), bytes(fair, "worst_bytes"));
    EXPECT_FALSE(memory_of("--world 8 --model llama3-8b --tp 2 --routing-skew zipf").contains("routing"));
}

TEST(RoutingSkewOption, ReadsCountsFromAFile) {
    TempFile even("even.json", "[7, 7, 7, 7, 7, 7, 7, 7]"), odd("odd.json", "[40, 9, 9, 9, 9, 9, 9, 9]");
    EXPECT_EQ(bytes(memory_of(kLayout + " --routing-skew " + even.path()), "p99_bytes"), bytes(memory_of(kLayout), "p99_bytes"));
    const Json memory = memory_of(kLayout + " --routing-skew " + odd.path(), kNothingFits);
    EXPECT_EQ(memory["routing"]["skew"], "histogram of 8 experts");
    EXPECT_GT(bytes(memory, "p50_bytes"), bytes(memory_of(kLayout), "p99_bytes"));
    // The first one of 32 layers routes to few.
    std::string layers = "[[40, 40, 0, 0, 0, 0, 0, 0]";
    for (int i = 1; i < 32; ++i) layers += ", [1, 1, 1, 1, 1, 1, 1, 1]";
    TempFile each("each.json", layers + "]");
    EXPECT_EQ(memory_of(kLayout + " --routing-skew " + each.path())["routing"]["skew"], "histogram of 32 layers x 8 experts");
}

TEST(RoutingSkewOption, IsRefusedWhereItCannotBeRead) {
    expect_refused("simulate " + kLayout + " --routing-skew zip",
                   {"--routing-skew = 'zip' is neither balanced, uniform, zipf", "nor a file that is there"});
    expect_refused(kMixtral + " --routing-skew zipf:-1", {"--routing-skew: 'zipf:-1': the exponent is no number from 0 to 10"});
    TempFile few("few.json", "[1, 2, 3]"), broken("broken.json", "[1, 2,"), text("text.json", "{\"a\": 1}");
    expect_refused(kMixtral + " --routing-skew " + few.path(), {few.path(), "has counts of 3 experts, mixtral-8x7b has 8"});
    expect_refused(kMixtral + " --routing-skew " + broken.path(), {broken.path(), "not valid JSON"});
    expect_refused(kMixtral + " --routing-skew " + text.path(), {text.path(), "is no histogram; write a list of counts"});
    expect_refused(kMixtral + " --routing-skew " + ::testing::TempDir(), {"--routing-skew", "is a folder"});
}

TEST(RoutingSkewOption, IsInTheTableAndOfEachRank) {
    const Said table = say("simulate " + kLayout);
    EXPECT_THAT(table.out, AllOf(HasSubstr("routing uniform: peak "), HasSubstr("fits at p99: "), HasSubstr("uniform routing")));
    EXPECT_THAT(say("simulate " + kLayout + " --routing-skew worst").out, HasSubstr("does not fit at p99: "));
    EXPECT_THAT(say("simulate --world 8 --model llama3-8b --tp 2").out, AllOf(Not(HasSubstr("routing")), HasSubstr("  fits: ")));
    const Json json = Json::parse(say("simulate " + kLayout + " --per-rank --format json").out);
    std::int64_t most = 0;
    for (const auto& rank : json["ranks"]) most = std::max(most, bytes(rank["memory"], "p99_bytes"));
    EXPECT_EQ(most, bytes(json["predicted"]["memory"], "p99_bytes"));
}

TEST(RoutingSkewOption, DecidesWhatThePlannerTakes) {
    const auto plan = [](const std::string& words) {
        return Json::parse(say(kMixtral + " " + words + " --search plain --exhaustive --format json").out);
    };
    const auto rejected = [](const Json& report, const char* reason) {
        const auto& all = report["search"]["rejected"];
        return all.contains(reason) ? all[reason].get<std::int64_t>() : 0;
    };
    constexpr const char* kUneven = "fits_in_memory_at_p99";
    const Json balanced = plan("--routing-skew balanced"), skewed = plan("--routing-skew zipf:0.8");
    EXPECT_EQ(rejected(balanced, kUneven), 0);
    EXPECT_GT(rejected(skewed, kUneven), 0);
    constexpr const char* kReplayed = "fits_in_memory_when_replayed";
    EXPECT_EQ(skewed["search"]["feasible"].get<std::int64_t>() + rejected(skewed, kUneven) + rejected(skewed, kReplayed),
              balanced["search"]["feasible"].get<std::int64_t>() + rejected(balanced, kReplayed));
    for (const auto& found : skewed["plans"]) {
        const Json& memory = found["predicted"]["memory"];
        EXPECT_LE(bytes(memory, "p99_bytes"), memory["limit_bytes"].get<std::int64_t>());
    }
    for (const auto& kind : skewed["search"]["too_large"]) {
        if (kind["rule"] == kReplayed) continue;
        const Json& miss = kind["nearest"];
        const auto limit = skewed["search"]["limit_bytes"].get<std::int64_t>();
        EXPECT_EQ(miss["missing_bytes"].get<std::int64_t>(), miss["peak_bytes"].get<std::int64_t>() - limit);
        EXPECT_EQ(kind["rule"] == kUneven, miss["even_peak_bytes"].get<std::int64_t>() <= limit);
        EXPECT_EQ(kind["rule"] == kUneven, kind["largest_term"].is_null());
        if (kind["rule"] == kUneven) {
            EXPECT_EQ(kind["layouts"].get<std::int64_t>(), rejected(skewed, kUneven));
        }
    }
    EXPECT_THAT(say(kMixtral + " --routing-skew zipf:0.8 --wide").out,
                AllOf(HasSubstr("fits with even routing, not at p99 of the routing skew"), HasSubstr("routing skew  ")));
}

TEST(RoutingSkewOption, IsRefusedWhereNoRouterChooses) {
    TempFile command("forced.sh", R"(--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --ffn-hidden-size 4096 --seq-length 1024
--max-position-embeddings 1024 --vocab-size 32000 --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8
--micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer --moe-router-force-load-balancing
)");
    const std::string job = " --world 8 --megatron-args " + command.path();
    for (const std::string word : {"simulate", "check"})
        expect_refused(word + job + " --routing-skew zipf",
                       {"--moe-router-force-load-balancing", "drop --routing-skew", "--routing natural"});
    expect_refused("plan --world 8 --model " + command.path() + " --routing-skew zipf", {"--moe-router-force-load-balancing"});
    EXPECT_EQ(say("simulate" + job + " --routing natural --routing-skew zipf").code, kDone);
    TempFile plan("forced.json");
    ASSERT_EQ(say("plan --world 8 --top 1 --model " + command.path() + " --save-plan " + plan.path()).code, kDone);
    expect_refused("simulate " + plan.path() + " --routing-skew zipf", {"--moe-router-force-load-balancing", "drop --routing-skew"});
}

TEST(RoutingSkewOption, NamesBothPeaksOfNearestMisses) {
    const std::string hopeless = "--world 8 --model mixtral-8x22b --cluster dgx-a100-40g --routing-skew zipf";
    const Said json = say(hopeless + " --format json");
    EXPECT_EQ(json.code, kNothingFits);
    const Json report = Json::parse(json.out);
    for (const auto& miss : report["nearest"])
        EXPECT_LE(miss["even_peak_bytes"].get<std::int64_t>(), miss["peak_bytes"].get<std::int64_t>());
    EXPECT_THAT(say(hopeless).out, AllOf(HasSubstr(" at p99 of the routing skew, "), HasSubstr("    with even routing ")));
}

TEST(RoutingSkewOption, StaysWithASavedPlan) {
    TempFile skewed("skewed.json"), fair("fair.json");
    EXPECT_EQ(say(kLayout + " --routing-skew zipf:0.8 --save-plan " + skewed.path()).code, kDone);
    EXPECT_EQ(say(kLayout + " --save-plan " + fair.path()).code, kDone);
    EXPECT_FALSE(Json::parse(fair.text()).contains("routing_skew")) << "as in plans written before there was one";
    const Json memory = memory_of(skewed.path());
    EXPECT_EQ(memory["routing"]["skew"], "zipf:0.8");
    const Json again = memory_of(skewed.path() + " --routing-skew uniform");
    EXPECT_EQ(again["routing"]["skew"], "uniform");
    EXPECT_LT(bytes(again, "p99_bytes"), bytes(memory, "p99_bytes"));
    EXPECT_EQ(memory_of(fair.path())["routing"]["skew"], "uniform");
}

}  // namespace
}  // namespace mgplan::cli::testing::routing_skew_test
