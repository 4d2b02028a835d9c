// Flags of batches that grow, of documents of unequal length, and of the vocabulary.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/megatron/read_flags.hpp"

namespace mgplan::formats::megatron_batch_flags_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::megatron::kSmall, tests::megatron::read, tests::megatron::refusal;

TEST(MegatronBatchFlags, TakesTheVocabularyFromWhoAsks) {
    const std::string nameless = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 64 ";
    EXPECT_EQ(read_megatron_text(nameless, "flags", {.vocab = 777, .folder = ""}).model.vocab, 777);
    const Job both = read_megatron_text(kSmall + "--tokenizer-type Llama3Tokenizer", "flags", {.vocab = 777, .folder = ""});
    EXPECT_EQ(both.model.vocab, 777);
    EXPECT_THAT(both.flags.without_effect, ElementsAre("--vocab-size", "--tokenizer-type")) << "what does not count is not used";
    const Job named = read(nameless + "--vocab-file /data/gpt2-vocab.json --vocab-extra-ids 3");
    EXPECT_EQ(named.model.vocab, 50260);
    EXPECT_THAT(named.assumptions, Contains(HasSubstr("50,260 tokens (tokenizer of GPT-2, by --vocab-file /data/gpt2-vocab.json)")));
    EXPECT_THAT(refusal(nameless + "--vocab-file my-vocab.json"), HasSubstr("--vocab-size is missing"));
}

TEST(MegatronBatchFlags, KeepsTheBatchOfACommandWithoutALength) {
    const Job job = read("--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --global-batch-size 256");
    EXPECT_FALSE(job.batch.has_value());
    EXPECT_EQ(job.model.default_global_batch, 256);
}

TEST(MegatronBatchFlags, ReadsABatchThatGrowsByItsLastStep) {
    const Job job = read(kSmall + "--step-batch-size-schedule '0:384 200B:768 400B:1152'");
    EXPECT_EQ(job.batch->global_batch, 1152);
    EXPECT_THAT(job.assumptions, Contains(HasSubstr("the batch of the schedule's last step, 1152")));
    EXPECT_THAT(job.flags.used, Contains("--step-batch-size-schedule"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8 --global-batch-size 8"), HasSubstr("exclude each other"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8,1B:x"), HasSubstr("'1B:x' is no step"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8,1K:16,1K:32"), HasSubstr("two steps begin with 1000 tokens"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 5:8"), Not(HasSubstr("begins with"))) << "within the first sequence";
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 64:8"), HasSubstr("begins with 64 tokens, after the first sequence"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8 --decrease-batch-size-if-needed"),
                HasSubstr("--step-batch-size-schedule and --decrease-batch-size-if-needed exclude each other"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8,9e18:16"), HasSubstr("'9e18:16' is no step"));
    EXPECT_EQ(read(kSmall + "--step-batch-size-schedule 0:8,2M:32,1M:16").batches.steps[1].batch, 16) << "Megatron-LM sorts them";
}

TEST(MegatronBatchFlags, ChecksABatchThatRampsUp) {
    EXPECT_THAT(read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 16 1000").assumptions,
                Contains(HasSubstr("the batch after its ramp-up, 64")));
    const BatchSchedule grouped = read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 16 1_000 --train-samples 5_000").batches;
    EXPECT_EQ(grouped.ramp_up->samples, 1000) << "as Python reads integers";
    EXPECT_EQ(grouped.train_samples, 5000);
    EXPECT_EQ(read(kSmall + "--global-batch-size 2_56").model.default_global_batch, 256) << "all integers alike";
    EXPECT_THAT(refusal(kSmall + "--global-batch-size 2__56"), HasSubstr("--global-batch-size = '2__56'"));
    EXPECT_THAT(refusal(kSmall + "--global-batch-size _256"), HasSubstr("--global-batch-size = '_256'"));
    EXPECT_EQ(read(kSmall + "--rotary-base 1_000_000.0").model.rotary_base, 1e6);
    const Job counted = read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 16 1000 --train-iters 10");
    EXPECT_FALSE(counted.batches.ramp_up.has_value());
    EXPECT_THAT(counted.flags.without_effect, Contains("--rampup-batch-size"));
    EXPECT_THAT(counted.assumptions, Contains(HasSubstr("releases up to core 0.17 stop, for it goes by --train-samples")));
    const Job both = read(kSmall + "--train-iters 10 --train-samples 5");
    EXPECT_FALSE(both.batches.train_samples.has_value());
    EXPECT_THAT(both.assumptions, Contains(HasSubstr("Megatron-LM stops where both are given")));
    ASSERT_EQ(both.flags.not_computed.size(), 1U);
    EXPECT_EQ(both.flags.not_computed[0].decides, Decides::legal);
    EXPECT_THAT(read(kSmall + "--train-iters 10 --train-samples 5 --skip-train").assumptions,
                Contains("--train-iters counts, not --train-samples"))
        << "which is not checked";
    EXPECT_EQ(read(kSmall + "--train-iters $ITERATIONS --train-samples 5").batches.train_samples, 5) << "it may be nothing";
    EXPECT_THAT(counted.flags.used, Contains("--train-iters"));
    EXPECT_THAT(read(kSmall + "--train-iters $ITERATIONS").flags.without_effect, Contains("--train-iters")) << "that nobody knows";
    EXPECT_THAT(refusal(kSmall + "--train-iters many"), HasSubstr("--train-iters = 'many' is not a whole number"));
    EXPECT_THAT(refusal(kSmall + "--rampup-batch-size 16 16"), HasSubstr("as in 16 16 1000000"));
    EXPECT_THAT(refusal(kSmall + "--global-batch-size 64 --rampup-batch-size 128 16 1000"), HasSubstr("begin with at most that"));
    const Job unmet = read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 10 1000");
    EXPECT_FALSE(unmet.batches.ramp_up);
    EXPECT_THAT(unmet.assumptions, Contains(HasSubstr("it does not come from 16 by 10 to 64")));
}

TEST(MegatronBatchFlags, SpreadsDocumentsOverTheRanksThatTheyNeed) {
    const std::string words = kSmall + "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 32 ";
    EXPECT_EQ(read(words + "--calculate-per-token-loss").most_of_a_document, 32);
    EXPECT_THAT(refusal(words), HasSubstr("needs --calculate-per-token-loss"));
    EXPECT_THAT(refusal(kSmall + "--hybrid-context-parallel --calculate-per-token-loss"), HasSubstr("needs --max-seqlen-per-dp-cp-rank"));
    for (const char* other : {"--pipeline-model-parallel-size 2", "--enable-cuda-graph", "--use-megatron-fsdp", "--dataloader-type cyclic",
                              "--multi-latent-attention"})
        EXPECT_THAT(refusal(words + "--calculate-per-token-loss " + other), HasSubstr("--hybrid-context-parallel")) << other;
    const Job alone = read(kSmall + "--max-seqlen-per-dp-cp-rank 32");
    EXPECT_FALSE(alone.most_of_a_document.has_value());
    EXPECT_EQ(alone.flags.not_computed.size(), 1U);
}

TEST(MegatronBatchFlags, DecreasesABatchThatIsStated) {
    const Job job = read(kSmall + "--global-batch-size 100 --decrease-batch-size-if-needed");
    EXPECT_TRUE(job.batches.decreases);
    EXPECT_THAT(job.flags.used, Contains("--decrease-batch-size-if-needed"));
    const Job follows = read(kSmall + "--decrease-batch-size-if-needed");
    EXPECT_FALSE(follows.batches.decreases);
    EXPECT_THAT(follows.flags.without_effect, Contains("--decrease-batch-size-if-needed")) << "a microbatch for each dp rank divides";
}

TEST(MegatronBatchFlags, TakesTheRowsThatAPaddedVocabularyGives) {
    // argument_utils.py, gpt_config_from_args: args.padded_vocab_size is the table's size, and is padded no more.
    const auto rows = [](const std::string& flags) { return read(kSmall + flags).model.padded_vocab(2); };
    EXPECT_EQ(rows("--vocab-size 50257"), 50432);
    EXPECT_EQ(rows("--vocab-size 50257 --padded-vocab-size 50258"), 50258);
    EXPECT_EQ(rows("--no-pad-vocab-size --vocab-size 50257 --padded-vocab-size 50258"), 50258);
    for (const std::string flags : {"--vocab-size 50257 --padded-vocab-size 50258 --make-vocab-size-divisible-by 64",
                                    "--vocab-size 50257 --padded-vocab-size 50432"}) {
        const ModelSpec model = read(kSmall + flags).model;
        EXPECT_EQ(model.vocab, 50257) << flags;
        for (const int tp : {1, 2, 4, 8}) EXPECT_EQ(model.padded_vocab(tp), model.padded_rows) << flags << " over " << tp;
    }
    EXPECT_THAT(read(kSmall + "--padded-vocab-size 50432 --make-vocab-size-divisible-by 64").flags.without_effect,
                testing::Contains("--make-vocab-size-divisible-by"));
    EXPECT_THAT(
        refusal(kSmall + "--vocab-size 50257 --padded-vocab-size 40000"),
        HasSubstr("--padded-vocab-size = 40000 is less than the 50257 tokens of --vocab-size, which have a row each; use 50257 or more"));
    EXPECT_THAT(refusal(kSmall + "--no-pad-vocab-size"), HasSubstr("--no-pad-vocab-size without --padded-vocab-size"));
}

}  // namespace
}  // namespace mgplan::formats::megatron_batch_flags_test
