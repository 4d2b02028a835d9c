// `mgplan check`: a Megatron-LM command is judged, and bettered.

#include <nlohmann/json.hpp>

#include "cli/plan_file.hpp"
#include "reports/megatron_check.hpp"
#include "say.hpp"

namespace mgplan::cli::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

/// Llama-3-8B's shape in Megatron-LM's flags, with a layout behind it.
std::string command(const std::string& layout) {
    return "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
           "--num-query-groups 8 --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear "
           "--untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 4096 --max-position-embeddings 4096 "
           "--vocab-size 128256 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 "
           "--global-batch-size 128 " +
           layout;
}

TEST(CheckCommand, JudgesALegalCommandAndTellsWhichFlagsMakeItFaster) {
    const TempFile file("slow.args", command("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2"));
    const Said said = say("check --megatron-args " + file.path() + " --world 16 --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const Json json = Json::parse(said.out);
    EXPECT_EQ(json["legal"], true);
    EXPECT_EQ(json["fits"], true);
    EXPECT_EQ(json["layout"]["tp"], 8);
    ASSERT_FALSE(json["better"].empty());
    const Json& best = json["better"][0];
    EXPECT_GT(best["gain"], 0.01);
    EXPECT_LT(best["predicted"]["iteration_seconds"], json["predicted"]["iteration_seconds"]);
    EXPECT_DOUBLE_EQ(json["predicted"]["iteration_seconds"].get<double>() / best["predicted"]["iteration_seconds"].get<double>() - 1,
                     best["gain"].get<double>());
    EXPECT_THAT(best["changes"].get<std::vector<std::string>>(), Contains(HasSubstr("--tensor-model-parallel-size 8 -> ")));
    EXPECT_GT(json["evaluated"], 10);

    const Said text = say("check --megatron-args " + file.path() + " --world 16 --top 1");
    EXPECT_THAT(text.out, AllOf(HasSubstr("legal:  yes, tp8"), HasSubstr("memory: fits: "), HasSubstr("speed:  "), HasSubstr("  1 +"),
                                Not(HasSubstr("\n  2 +"))));
}

TEST(CheckCommand, FindsNothingBetterThanTheBest) {
    const TempFile plan("best.json"), best("best.args");
    ASSERT_EQ(say("plan --engine megatron --world 16 --model llama3-8b --global-batch 128 --seq 4096 --save-plan " + plan.path()).code,
              kDone);
    ASSERT_EQ(say("export " + plan.path() + " --to megatron-args --output " + best.path()).code, kDone);
    const Said said = say("check --megatron-args " + best.path() + " --world 16");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.out, HasSubstr("better: none that is faster, of "));
    EXPECT_THAT(say("check --megatron-args " + best.path() + " --world 16 --top 0").out, HasSubstr("better: not looked for (--top 0)\n"));
}

TEST(CheckCommand, NamesTheBrokenRuleAndWhatWouldBeLegal) {
    const TempFile file("illegal.args", command("--tensor-model-parallel-size 16 --pipeline-model-parallel-size 3"));
    const Said said = say("check --megatron-args " + file.path() + " --world 16");
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.out, AllOf(HasSubstr("legal:  no\n"), HasSubstr("16·1·3 does not divide world = 16"), HasSubstr("possible: tp")));
    const Json json = Json::parse(say("check --megatron-args " + file.path() + " --world 16 --format json").out);
    EXPECT_EQ(json["legal"], false);
    EXPECT_TRUE(json["predicted"].is_null());
    EXPECT_FALSE(json["problems"].empty());
    EXPECT_TRUE(json["better"][0]["gain"].is_null());
}

TEST(CheckCommand, ShowsWhatFitsWhereTheCommandDoesNot) {
    const TempFile file("large.args", command("--micro-batch-size 16"));
    const Said said = say("check --megatron-args " + file.path() + " --world 8");
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(said.out, AllOf(HasSubstr("memory: does not fit: "), HasSubstr("over the limit"), HasSubstr("legal and fitting, of "),
                                HasSubstr("--micro-batch-size 16 -> ")));
}

TEST(CheckCommand, SavesTheCommandAsAPlan) {
    const TempFile file("saved.args", command("--tensor-model-parallel-size 4 --sequence-parallel"));
    const TempFile plan("saved_plan.json");
    ASSERT_EQ(say("check --top 0 --megatron-args " + file.path() + " --world 16 --save-plan " + plan.path()).code, kDone);
    const Plan saved = load_plan(plan.path());
    EXPECT_EQ(saved.layout.sizes.tp, 4);
    EXPECT_EQ(saved.layout.engine, Engine::megatron);
    EXPECT_EQ(saved.batch.global_batch, 128);
}

TEST(CheckCommand, NeedsACommandToJudge) {
    expect_refused("check --world 16 --model llama3-8b", "--megatron-args is missing");
    expect_refused("check", "--megatron-args is missing");
}

TEST(FlagChanges, AreThoseThatWereAddedChangedAndDropped) {
    reports::MegatronJob from, to;
    from.parts = {{"layout", {{"--tp", {"4"}}, {"--sequence-parallel", {}}, {"--pp", {"2"}}}}};
    to.parts = {{"layout", {{"--tp", {"2"}}, {"--pp", {"2"}}, {"--recompute-modules", {"mlp", "moe"}}}}};
    EXPECT_THAT(reports::flag_changes(from, to), ElementsAre("--tp 4 -> 2", "add --recompute-modules mlp moe", "drop --sequence-parallel"));
}

}  // namespace
}  // namespace mgplan::cli::testing
