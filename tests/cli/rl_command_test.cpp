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

TEST(Rl, AnEngineThatKeepsItsWeightsMovesThemBothWays) {
    const Json dropped = planned("--role rollout=tp=4"), kept = planned("--role rollout=tp=4,sleep=1");
    EXPECT_EQ(kept["offload_bytes"].get<std::int64_t>() - dropped["offload_bytes"].get<std::int64_t>(),
              2 * kept["roles"]["rollout"]["weight_bytes"].get<std::int64_t>());
    EXPECT_GT(kept["host_bytes_per_node"], dropped["host_bytes_per_node"]);
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
    expect_refused(kJob + "--role rollout=sleep=3", "is no level");
    expect_refused(kJob + "--role rollout=tp=2,tp=4", "--role rollout: tp is given twice; give it once");
    expect_refused(kJob + "--role reference=none,gpus=2", "none has no keys");
}

TEST(Rl, AModelThatIsTooLargeDoesNotFit) {
    EXPECT_EQ(say("rl --world 8 --model llama3.1-405b --prompts 8 --response 1k").code, kNothingFits);
}

}  // namespace
}  // namespace mgplan::cli::testing::rl_command_test
