// --sharding and --optimizer: what the prediction and the export follow, and what is refused.

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::sharding_options_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = "simulate --world 16 --model llama3-8b --tp 1 --pp 1 --micro-batch 1 --global-batch 64 --recompute full ";

Json simulated(const std::string& options) {
    const Said said = say(kJob + "--format json" + (options.empty() ? "" : " " + options));
    EXPECT_TRUE(said.code == kDone || said.code == kNothingFits) << said.err;
    return Json::parse(said.out);
}

std::int64_t term(const Json& answer, const char* name) {
    return answer["predicted"]["memory"]["breakdown"][name].get<std::int64_t>();
}

TEST(ShardingOptions, DivideWhatTheyName) {
    const Json none = simulated("--sharding none"), optimizer = simulated("--sharding optimizer"),
               gradients = simulated("--sharding optimizer_gradients"), full = simulated("--sharding full");
    EXPECT_EQ(optimizer["predicted"], simulated("")["predicted"]);  // as it is without the option
    EXPECT_EQ(none["predicted"], simulated("--no-distributed-optimizer")["predicted"]);
    EXPECT_GT(term(none, "optimizer"), 8 * term(optimizer, "optimizer"));
    EXPECT_GT(term(optimizer, "gradients"), 4 * term(gradients, "gradients"));
    EXPECT_GT(term(gradients, "parameters"), 3 * term(full, "parameters"));  // the embedding stays gathered
    EXPECT_EQ(full["layout"]["sharding"], "full");
    EXPECT_EQ(gradients["layout"]["sharding"], "optimizer_gradients");
    EXPECT_EQ(none["layout"]["sharding"], "none");
    EXPECT_EQ(optimizer["layout"]["offload"], Json::object());

    const Json hybrid = simulated("--sharding hybrid:2");
    EXPECT_EQ(hybrid["layout"]["sharding"], "hybrid");
    EXPECT_EQ(hybrid["layout"]["optimizer_instances"], 2);
    EXPECT_GT(term(hybrid, "optimizer"), term(full, "optimizer"));
}

TEST(ShardingOptions, OptimizersKeepTheirState) {
    const Json adam = simulated("--sharding none"), sgd = simulated("--sharding none --optimizer sgd");
    EXPECT_EQ(sgd["layout"]["optimizer"], "sgd");
    EXPECT_LT(term(sgd, "optimizer"), term(adam, "optimizer"));
}

TEST(ShardingOptions, ASavedPlanIsExportedWithThem) {
    const std::string file = ::testing::TempDir() + "/sharding_options.json";
    ASSERT_EQ(say("plan --world 16 --model llama3-8b --sharding full --optimizer sgd --save-plan " + file).code, kDone);
    const Said exported = say("export " + file + " --to megatron-args");
    EXPECT_EQ(exported.code, kDone) << exported.err;
    for (const char* flag : {"--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params", "--optimizer sgd"})
        EXPECT_THAT(exported.out, HasSubstr(flag));
}

TEST(ShardingOptions, WhatContradictsItselfIsRefused) {
    const auto refused = [](const std::string& options) {
        const Said said = say(kJob + options);
        EXPECT_EQ(said.code, kBadInput) << options;
        return said.err;
    };
    EXPECT_THAT(refused("--sharding zero3"), HasSubstr("--sharding = 'zero3' is not known; use one of none, optimizer, "));
    EXPECT_THAT(refused("--sharding hybrid"), HasSubstr("hybrid:N with N of at least 2"));
    EXPECT_THAT(refused("--sharding full --no-distributed-optimizer"), HasSubstr("drop one of the two"));
    EXPECT_THAT(refused("--sharding full --optimizer muon"), HasSubstr("use --optimizer adam or sgd, or --sharding optimizer"));
    EXPECT_THAT(refused("--sharding full --engine mgplan"), HasSubstr("is a choice of Megatron-LM, not of engine mgplan"));
    EXPECT_THAT(refused("--optimizer ademamix --engine mgplan"), HasSubstr("use adam, sgd, lion or muon, or --engine megatron"));
    EXPECT_THAT(refused("--optimizer adamw2"), HasSubstr("--optimizer"));
}

}  // namespace
}  // namespace mgplan::cli::testing::sharding_options_test
