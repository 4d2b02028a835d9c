// `mgplan rl`: a step of reinforcement learning.

#include <string>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::rl_command_test {
namespace {

using Json = nlohmann::ordered_json;

const std::string kJob = "rl --world 16 --model llama3.1-8b --prompts 64 --samples 4 --prompt 128 --response 2k ";

Json planned(const std::string& words) {
    const Said said = say(kJob + words + " --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    return Json::parse(said.out);
}

TEST(Rl, ASharedStepIsTheSumOfItsPhases) {
    const Json answer = planned("--headroom 5%");
    double seconds = 0;
    for (const Json& phase : answer["phases"]) seconds += phase["seconds"].get<double>();
    EXPECT_NEAR(answer["step_seconds"].get<double>(), seconds, 1e-6);
    EXPECT_TRUE(answer["fits"]);
}

TEST(Rl, TheCacheFollowsTheDocumentedRuleOfVllm) {
    const Json answer = planned("--role rollout=gpus=8,tp=2,utilization=0.6"), &engine = answer["roles"]["rollout"]["engine"];
    const double total = 85018877624.0;
    EXPECT_NEAR(answer["kv_bytes"].get<double>(),
                0.6 * total - answer["roles"]["rollout"]["weight_bytes"].get<double>() - engine["activation_bytes"].get<double>() -
                    engine["outside_bytes"].get<double>() - engine["graph_bytes"].get<double>(),
                2);
}

/// vLLM captures 51 batch sizes up to 512, and 19 up to twice 64 sequences.
TEST(Rl, GraphsAreOfTheSizesThatVllmCaptures) {
    const auto bytes = [](const std::string& more) {
        return planned("--role rollout=gpus=8,tp=1" + more)["roles"]["rollout"]["engine"]["graph_bytes"].get<std::int64_t>();
    };
    EXPECT_EQ(bytes(",sequences=256") * 19, bytes(",sequences=64") * 51);
    EXPECT_EQ(bytes(""), bytes(",sequences=256"));
}

TEST(Rl, ASamplerThatSortsLeavesLessToTheCache) {
    const auto answer = [](const std::string& more) { return planned("--role rollout=gpus=8,tp=1,sequences=1024" + more); };
    const Json selects = answer(""), sorts = answer(",sampler=sorts");
    EXPECT_EQ(selects["kv_bytes"].get<std::int64_t>() - sorts["kv_bytes"].get<std::int64_t>(),
              sorts["roles"]["rollout"]["engine"]["activation_bytes"].get<std::int64_t>() -
                  selects["roles"]["rollout"]["engine"]["activation_bytes"].get<std::int64_t>());
    EXPECT_LT(sorts["kv_bytes"], selects["kv_bytes"]);
}

TEST(Rl, AnEngineThatKeepsItsWeightsMovesThemBothWays) {
    const Json dropped = planned("--role rollout=tp=4"), kept = planned("--role rollout=tp=4,sleep=1");
    EXPECT_EQ(kept["offload_bytes"].get<std::int64_t>() - dropped["offload_bytes"].get<std::int64_t>(),
              2 * kept["roles"]["rollout"]["weight_bytes"].get<std::int64_t>());
    EXPECT_GT(kept["host_bytes_per_node"], dropped["host_bytes_per_node"]);
}

/// vLLM issue 10634: the GPU waits 5 to 6 ms between two steps of decoding.
TEST(Rl, AnEngineThatDoesNotScheduleAheadWaitsAfterEachStep) {
    const auto rollout = [](const std::string& more) {
        return planned("--role rollout=gpus=8,tp=1" + more)["phases"][0]["seconds"].get<double>();
    };
    EXPECT_NEAR(rollout(",async_scheduling=no") - rollout(",async_scheduling=yes"), 2048 * 5.5e-3, 1e-3) << "a step for each token";
    EXPECT_EQ(rollout(""), rollout(",async_scheduling=yes"));
}

/// 32 sequences of 4,096 tokens and a quarter of it on average end one by one, so that a cache for 13 of full length holds all of them.
TEST(Rl, ShorterResponsesLeaveTheirPagesToOthers) {
    const auto rollout = [](const std::string& bytes) {
        const std::string words =
            "rl --world 16 --model llama3.1-8b --prompts 32 --samples 8 --prompt 128 --response 3968 --mean-response 992 ";
        return Json::parse(say(words + "--role rollout=gpus=8,tp=1,kv_bytes=" + bytes + " --format json").out);
    };
    const Json tight = rollout("7GiB"), ample = rollout("30GiB");
    EXPECT_EQ(tight["concurrency"], 8 * 14) << "of full length";
    EXPECT_EQ(tight["phases"][0]["seconds"], ample["phases"][0]["seconds"]);
    EXPECT_LT(ample["phases"][0]["seconds"], rollout("1GiB")["phases"][0]["seconds"]);
}

TEST(Rl, TheTrainersLayoutIsThatOfItsRole) {
    const std::string role = "--role actor=tp=1,cp=1,pp=2,vpp=1,micro_batch=1,recompute=";
    const Json full = planned(role + "full")["roles"]["actor"]["layout"], none = planned(role + "none")["roles"]["actor"]["layout"];
    EXPECT_EQ(full["recompute"], "full");
    EXPECT_EQ(none["recompute"], "none");
    EXPECT_TRUE(full["cuda_graphs"].empty()) << "packs differ in their lengths";
    EXPECT_EQ(say(kJob + role + "some").code, kBadInput);
    const Said uneven = say("rl --world 16 --model llama3.1-8b --prompts 9 --samples 3 --response 1k " + role + "full --format json");
    EXPECT_EQ(uneven.code, kDone) << "27 packs on 8 ranks: " << uneven.err;
}

/// GPUs of a split that the stated engine does not divide are passed over.
TEST(Rl, AStatedEngineIsSplitInWholeEngines) {
    const Json answer = Json::parse(say("rl --world 8 --model llama3-8b --prompts 8 --response 1k --role rollout=tp=4 --format json").out);
    EXPECT_EQ(answer["split"]["rollout"], 4);
    EXPECT_EQ(answer["split"]["trainer"], 4);
}

TEST(Rl, BadInputIsRefused) {
    expect_refused(kJob + "--role critic=gpus=4", "the role has no model");
    expect_refused(kJob + "--role critic=llama3.1-8b,gpus=16", "take 16 of --world 16");
    expect_refused(kJob + "--role actor=gpus=8", "use gpus=16");
    expect_refused(kJob + "--role rollout=tp=3", "does not divide 32 attention heads");
    expect_refused(kJob + "--async", "cannot share GPUs");
    expect_refused(kJob + "--role rollout=utilisation=1", "did you mean utilization?");
    expect_refused(kJob + "--role rollout=utilization=1.5", "is no share of a card");
    expect_refused(kJob + "--role rollout=kv_bytes=abc", "is no size");
    expect_refused(kJob + "--role rollout=sampler=fast", "use selects or sorts");
    expect_refused(kJob + "--role rollout=sleep=3", "is no level");
    expect_refused(kJob + "--role rollout=tp=2,tp=4", "--role rollout: tp is given twice; give it once");
    expect_refused(kJob + "--role reference=none,gpus=2", "none has no keys");
}

TEST(Rl, AModelThatIsTooLargeDoesNotFit) {
    EXPECT_EQ(say("rl --world 8 --model llama3.1-405b --prompts 8 --response 1k").code, kNothingFits);
}

}  // namespace
}  // namespace mgplan::cli::testing::rl_command_test
