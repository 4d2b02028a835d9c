// `mgplan check` of batches that grow, stop or hold documents of unequal length.

#include "check_commands.hpp"
#include "cli/plan_file.hpp"

namespace mgplan::cli::testing::check_batches_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

TEST(CheckCommand, SaysWhatTrainingTakesOverAScheduleOfBatches) {
    const std::string layout = "--tensor-model-parallel-size 4 --sequence-parallel ";
    const TempFile plain("plain.args", command(layout)), counted("counted.args", command(layout + "--train-iters 1000"));
    EXPECT_TRUE(judged(plain)["training"].is_null());
    const Json all = judged(counted);
    EXPECT_EQ(all["training"]["steps"], 1000);
    EXPECT_EQ(all["training"]["seconds"].get<double>(), 1000 * all["predicted"]["iteration_seconds"].get<double>());
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + counted.path()).out, HasSubstr("train:  1,000 steps, "));

    const TempFile ramped("ramped.args", command(layout + "--rampup-batch-size 32 32 10_000 --train-samples 20_000"));
    const Json json = judged(ramped);
    const Json& stages = json["training"]["stages"];
    ASSERT_EQ(stages.size(), 4U);
    EXPECT_EQ(stages[0]["global_batch"], 32);
    EXPECT_EQ(stages[3]["iteration_seconds"], json["predicted"]["iteration_seconds"]) << "the last is the one that is predicted";
    EXPECT_LT(stages[0]["iteration_seconds"], stages[3]["iteration_seconds"]);
    EXPECT_EQ(json["training"], Json::parse(say("simulate --format json --world 16 --megatron-args " + ramped.path()).out)["training"]);
    EXPECT_EQ(judged(ramped, "--world 16 --global-batch 256")["training"]["stages"].size(), 1U) << "which holds from the first step on";
    const Json plan = Json::parse(say("plan --top 1 --format json --world 16 --engine megatron --model " + counted.path()).out);
    EXPECT_THAT(plan["used"], Not(Contains("--train-iters"))) << "a search does not ask for it";

    const std::string odd = layout + "--rampup-batch-size 2 2 10000 --train-samples 20000";
    const TempFile stops("stops.args", command(odd)), resumed("resumed.args", command(odd + " --load checkpoints"));
    EXPECT_THAT(judged(stops, "--world 16", kBadInput)["problems"][0], HasSubstr("the batch of 2 from sample 0 on"));
    EXPECT_TRUE(judged(resumed)["training"]["stages"][0]["iteration_seconds"].is_null()) << "it was run on other GPUs";
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + resumed.path()).out, HasSubstr(" for what was not run before:"));
    const Said simulated = say("simulate --format json --world 16 --megatron-args " + stops.path());
    EXPECT_THAT(simulated.err, HasSubstr("nothing is said of the whole training: the batch of 2 from sample 0 on"));
    EXPECT_TRUE(Json::parse(simulated.out)["training"].is_null()) << "the last batch is predicted all the same";
    const TempFile decreased("decreased.args",
                             command(layout + "--global-batch-size 130 --train-samples 1300 --decrease-batch-size-if-needed"));
    const Json rounded = judged(decreased);
    EXPECT_EQ(rounded["training"]["stages"][0]["global_batch"], 128);
    EXPECT_EQ(rounded["training"]["steps"], 10) << "counted by whole batches";
    EXPECT_THAT(rounded["assumed"].dump(), HasSubstr("global batch of 128, which is 130 decreased"));
    EXPECT_EQ(Json::parse(say("simulate --format json --world 16 --megatron-args " + decreased.path()).out)["training"],
              rounded["training"]);
    const TempFile nothing("nothing.args", command(layout + "--global-batch-size 1 --decrease-batch-size-if-needed"));
    expect_refused("check --top 0 --world 16 --megatron-args " + nothing.path(),
                   "--decrease-batch-size-if-needed leaves nothing of the global batch of 1");
    const TempFile none("none.args", command(layout + "--train-samples 100 --global-batch-size 128"));
    EXPECT_THAT(say("check --top 0 --world 16 --megatron-args " + none.path()).out,
                HasSubstr("train:  no step: fewer samples than a batch"));
    const TempFile bare("bare.args", command(layout + "--train-iters"));
    EXPECT_TRUE(judged(bare)["training"].is_null()) << "as where a script's argument was not given";
    const TempFile ages("ages.args", command(layout + "--train-iters 4_000_000_000_000"));
    EXPECT_THAT(
        say("check --top 0 --world 16 --megatron-args " + ages.path()).out,
        ::testing::ContainsRegex("train:  4.0 trillion steps, [0-9.]+ quintillion tokens, [0-9.,]+ (thousand |million |billion )?years"));
    const TempFile endless("endless.args", command(layout + "--train-iters 99999999999999999999"));
    expect_refused("check --top 0 --world 16 --megatron-args " + endless.path(), "is not a whole number from 0 to 2^62");
}

TEST(CheckCommand, SpreadsDocumentsOfGivenLengthsOverTheRanksThatTheyNeed) {
    const std::string words = "--tensor-model-parallel-size 2 --sequence-parallel --calculate-per-token-loss --hybrid-context-parallel ";
    const TempFile dynamic("dynamic.args", command(words + "--max-seqlen-per-dp-cp-rank 1024 --train-iters 10"));
    const TempFile narrow("narrow.args", command(words + "--max-seqlen-per-dp-cp-rank 256"));
    const TempFile lengths("dynamic_lengths.json", "[[512, 40], [4096, 10]]");
    const Json json = judged(dynamic, "--world 16 --lengths " + lengths.path());
    EXPECT_EQ(json["legal"], true);
    EXPECT_THAT(json["used"].dump(), HasSubstr("--hybrid-context-parallel"));
    EXPECT_TRUE(json["training"].is_null());
    EXPECT_TRUE(json["better"].empty());
    EXPECT_THAT(judged(narrow, "--world 16 --lengths " + lengths.path(), kBadInput)["problems"][0],
                HasSubstr("a document of 4,096 tokens needs 16 ranks, and dp·cp has 8"));
    EXPECT_THAT(judged(dynamic, "--world 48 --global-batch 96 --lengths " + lengths.path())["not_computed"].dump(),
                HasSubstr("where dp·cp is no power of two"));
    EXPECT_THAT(judged(dynamic, "--world 16 --global-batch 65536 --lengths " + lengths.path())["not_computed"].dump(),
                HasSubstr("documents a step, more than 65,536"));
    const Json open = judged(dynamic, "--world 16");
    EXPECT_TRUE(open["legal"].is_null() && open["fits"].is_null());
    EXPECT_THAT(open["not_computed"].dump(), HasSubstr("dynamic context parallelism without --lengths"));
    EXPECT_THAT(say("simulate --format json --world 16 --lengths " + lengths.path() + " --megatron-args " + dynamic.path()).out,
                HasSubstr("dynamic context parallelism, but by check"));
}

TEST(CheckCommand, SaysOfDocumentsOverManyRanksWhatItDoesNotKnow) {
    const std::string words =
        "--tensor-model-parallel-size 2 --sequence-parallel --calculate-per-token-loss --hybrid-context-parallel "
        "--max-seqlen-per-dp-cp-rank 1024 ";
    const TempFile dynamic("documents.args", command(words + "--train-iters 10"));
    const TempFile lengths("document_lengths.json", "[[512, 40], [4096, 10]]");
    const std::string asked = "--world 16 --lengths " + lengths.path();
    for (const std::string graphs : {"--cuda-graph-impl local", "--cuda-graph-impl transformer_engine --cuda-graph-scope attn"}) {
        const TempFile graphed("graphed.args", command(words + graphs));
        const Json json = judged(graphed, asked);
        EXPECT_TRUE(json["legal"].is_null() && json["fits"].is_null()) << graphs;
        EXPECT_THAT(json["not_computed"].dump(), HasSubstr("with CUDA graphs"));
        EXPECT_EQ(say("check --gate --megatron-args " + graphed.path() + " " + asked).code, kCannotSay);
    }
    const TempFile exchanged("exchanged.args", command(words + "--cp-comm-type a2a"));
    EXPECT_THAT(judged(exchanged, asked)["not_computed"].dump(), HasSubstr("by another exchange than p2p"));

    const TempFile stateful("stateful.args", command(words + "--experimental-attention-variant gated_delta_net --linear-attention-freq 4"));
    EXPECT_THAT(judged(stateful, asked)["not_computed"].dump(), HasSubstr("over layers with a state along the sequence"));

    for (const char* one : {"check --top 0 --megatron-args ", "simulate --megatron-args ", "plan --model "})
        expect_refused(one + dynamic.path() + " --world 16 --strict", "--strict: --hybrid-context-parallel (dynamic context parallelism");
    expect_refused(
        "check --top 0 --strict --megatron-args " + dynamic.path() + " --world 16 --global-batch 65536 --lengths " + lengths.path(),
        "documents a step, more than 65,536");

    const Said gated =
        say("check --gate --strict --megatron-args " + dynamic.path() + " --world 16 --global-batch 65536 --lengths " + lengths.path());
    EXPECT_EQ(gated.code, kBadInput);
    EXPECT_THAT(gated.out, HasSubstr("illegal: --strict")) << "a gate has a line for every answer";

    const TempFile plan("documents.plan.json", "");
    std::filesystem::remove(plan.path());
    const Said said = say("check --megatron-args " + dynamic.path() + " " + asked + " --save-plan " + plan.path());
    EXPECT_EQ(said.code, kDone);
    EXPECT_FALSE(std::filesystem::exists(plan.path())) << "it would hold another job";
    EXPECT_THAT(said.err, HasSubstr("no plan holds documents over as many ranks as each needs"));
    EXPECT_THAT(said.out, HasSubstr("better: not looked for (each document over the ranks that it needs)"));
    EXPECT_THAT(judged(dynamic, asked)["assumed"].dump(), HasSubstr("the search and how long training takes left out"));
}

TEST(CheckCommand, JudgesTheLastBatchThatTrainingComesTo) {
    const auto scheduled = [](const std::string& schedule) {
        std::string text = command("--tensor-model-parallel-size 2 --sequence-parallel --step-batch-size-schedule " + schedule);
        const std::string batch = "--global-batch-size 128 ";
        return text.erase(text.find(batch), batch.size());
    };
    const TempFile early("early.args", scheduled("'0:32 1T:33' --train-iters 100"));
    const Json json = judged(early);
    EXPECT_EQ(json["legal"], true) << "the step of 33 is never taken";
    EXPECT_THAT(json["assumed"].dump(), HasSubstr("global batch of 32: training ends before the later steps"));
    EXPECT_EQ(json["predicted"]["iteration_seconds"], json["training"]["stages"][0]["iteration_seconds"]);
    const TempFile late("late.args", scheduled("'0:32 1M:33' --train-iters 100000"));
    EXPECT_THAT(judged(late, "--world 16", kBadInput)["problems"].dump(), HasSubstr("33"));
}

TEST(CheckCommand, LeavesOpenWhetherACommandOfTwoLengthsStarts) {
    // arguments.py, validate_args: "expected iteration-based training".
    const TempFile both("two_lengths.args", command("--tensor-model-parallel-size 8 --train-iters 10 --train-samples 1280"));
    const Said gate = say("check --gate --world 16 --megatron-args " + both.path());
    EXPECT_EQ(gate.code, kCannotSay) << gate.out;
    EXPECT_THAT(gate.out, StartsWith("cannot say: --train-samples (with --train-iters, where Megatron-LM stops at both)"));
    const Json json = judged(both);
    EXPECT_TRUE(json["legal"].is_null());
    EXPECT_EQ(json["fits"], true) << "which they do not decide";
    const TempFile skipped("skipped.args", command("--tensor-model-parallel-size 8 --train-iters 10 --train-samples 1280 --skip-train"));
    EXPECT_EQ(judged(skipped)["legal"], true);
}

TEST(CheckCommand, SavesHowTheBatchGrowsWithItsPlan) {
    const TempFile file("grows.args", command("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --train-iters 100"));
    const TempFile plan("grows.json", "");
    ASSERT_EQ(say("check --top 0 --world 16 --megatron-args " + file.path() + " --save-plan " + plan.path()).code, kDone);
    const Said simulated = say("simulate " + plan.path() + " --format json");
    ASSERT_EQ(simulated.code, kDone) << simulated.err;
    EXPECT_EQ(Json::parse(simulated.out)["training"], judged(file)["training"]);
    EXPECT_EQ(Json::parse(simulated.out)["training"]["steps"], 100);
}

TEST(CheckCommand, KeepsTheBatchOfACommandWithoutALength) {
    std::string text = command("");
    text.erase(text.find("--seq-length 4096"), std::string("--seq-length 4096").size());
    const TempFile file("lengthless.args", text);
    EXPECT_EQ(judged(file, "--world 16 --seq 1024")["layout"]["num_microbatches"], 8) << "128 sequences over 16 ranks";
}

}  // namespace
}  // namespace mgplan::cli::testing::check_batches_test
