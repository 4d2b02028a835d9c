// fp8 with current scaling of mixtures and of latent attention: chunks against an implementation of its own, every layout against one
// rank and against the same ranks on shapes, and what a layer keeps.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/fp8_mixture_reference.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_test {
namespace {

namespace reference = tests::fp8_reference;
using testing::HasSubstr;

void expect_reference(const ModelSpec& model, const std::vector<ChunkCase>& cases) {
    for (const ChunkCase& c : tests::sanitized_share(cases, 3)) {
        SCOPED_TRACE(testing::Message() << model.name << " tp " << c.tp << " cp " << c.cp << " ep " << c.ep << " etp " << c.etp
                                        << (c.sequence_parallel ? " sp" : ""));
        WeightsByRank weights;
        const reference::Result result = run_chunk(model, c, weights);
        expect_those_of_the_reference(model, c, result, mixture_reference(model, c, weights));
    }
}

TEST(Fp8Mixture, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    expect_reference(plain(mixture()), {{},
                                        {.tp = 2, .sequence_parallel = true},
                                        {.tp = 2, .sequence_parallel = true, .ep = 2},
                                        {.tp = 2, .sequence_parallel = true, .modules = {moe_act, shared_experts, layernorm}, .etp = 2},
                                        {.modules = {moe}},
                                        {.cp = 2},
                                        {.cp = 2, .ep = 2}});
}

TEST(Fp8LatentAttention, LossesAndGradientsAreThoseOfPlainLoops) {
    ModelSpec model = plain(latent_mixture());
    const std::vector<ChunkCase> cases{{},
                                       {.tp = 2, .sequence_parallel = true, .ep = 2},
                                       {.tp = 2, .sequence_parallel = true, .modules = {RecomputeModule::mla_up_proj}, .ep = 2},
                                       {.cp = 2}};
    expect_reference(model, cases);
    model.mla->q_lora_rank = 0;
    expect_reference(model, cases);
}

class Fp8MixtureLayouts : public testing::TestWithParam<Case> {};

TEST_P(Fp8MixtureLayouts, TrainAndHoldWhatShapesPredict) {
    Case c = GetParam();
    for (const ModelSpec& model : {mixture(), latent_mixture()}) {
        if (model.mtp_layers > 0 && c.schedule) continue;  // refused by name
        SCOPED_TRACE(model.name);
        c.micro_batch = model.mla && c.sequence_parallel ? 2 : 1;  // whose rows it divides over tp
        const std::int64_t sequence = 16 * c.cp;
        const TrainingTask task = task_of(model, c, sequence);
        Outcome outcome = train(task);
        for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        // Rows and shares are cast by their own largest values on every rank, so that losses are near one rank's.
        const Outcome one = train(task_of(model, {.name = "one", .micro_batch = c.micro_batch}, sequence));
        const bool casts_alike = c.tp * c.cp * c.ep == 1;
        expect_steps_near(outcome, one, casts_alike, 0.1);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8MixtureLayouts, testing::ValuesIn(tests::sanitized_share(mixture_layouts(), 4)),
                         [](const auto& c) { return c.param.name; });

TEST(Fp8Mixture, SharesThatProductsDoNotMultiplyAreRefusedByName) {
    const auto refusal = [](const ModelSpec& model, const Case& c) { return refusal_of(task_of(model, c)); };
    EXPECT_EQ(refusal(mixture(), {.name = "one"}), "");
    EXPECT_EQ(refusal(latent_mixture(), {.name = "one"}), "");
    EXPECT_THAT(refusal(small_mixture(), {.name = "one"}),
                HasSubstr("fp8-current products of 24 columns of mlp.experts.linear_fc2.weight0 on a rank, no multiple of 16"));
    EXPECT_THAT(refusal(mixture(), {.name = "etp4", .tp = 4, .etp = 4, .sequence_parallel = true}),
                HasSubstr("8 columns of mlp.experts.linear_fc2.weight0 on a rank, no multiple of 16"));
    ModelSpec odd = latent_mixture();
    odd.mla->qk_rope_head_dim = 8;
    EXPECT_THAT(refusal(odd, {.name = "one"}), HasSubstr("24 rows of self_attention.linear_kv_down_proj.weight on a rank"));
    // Multi-token prediction, whose projection alone has a share of the hidden size for rows.
    ModelSpec predicting = tests::small_llama(2);
    predicting.hidden = 48;
    predicting.ffn = 64;
    predicting.head_dim = 16;
    const Case tp2{.name = "tp2", .tp = 2};
    EXPECT_EQ(refusal(predicting, tp2), "");
    predicting.mtp_layers = 1;
    EXPECT_THAT(refusal(predicting, tp2), HasSubstr("24 rows of eh_proj.weight on a rank, no multiple of 16"));
    ModelSpec indexed = latent_mixture();
    indexed.mla->index_heads = 2;
    indexed.mla->index_head_dim = indexed.mla->index_top_k = 16;
    EXPECT_THAT(refusal(indexed, {.name = "one"}), HasSubstr("fp8-current with attention to keys that an indexer chooses (use bf16)"));
}

TEST(Fp8Mixture, RowsThatSequenceParallelismLeavesARankAreRefusedByName) {
    const Case tp2{.name = "tp2_sp", .tp = 2, .sequence_parallel = true};
    const auto refusal = [&](const ModelSpec& model, std::int64_t sequence) { return refusal_of(task_of(model, tp2, sequence)); };
    const auto is_named = HasSubstr("fp8-current products of 8 rows of a microbatch that sequence parallelism leaves a rank, no multiple");
    EXPECT_EQ(refusal(mixture(), 16), "");
    EXPECT_THAT(refusal(latent_mixture(), 16), is_named);
    EXPECT_EQ(refusal(latent_mixture(), 32), "");
    ModelSpec narrow = mixture();
    narrow.moe->latent = 32;
    EXPECT_THAT(refusal(narrow, 16), is_named);
    EXPECT_EQ(refusal(narrow, 32), "");
    Case whole = tp2;
    whole.sequence_parallel = false;
    ModelSpec dense = latent_mixture();
    dense.moe.reset();
    dense.moe_layers.clear();
    EXPECT_EQ(refusal_of(task_of(dense, whole, 16)), "");
    EXPECT_THAT(refusal(dense, 16), is_named);
}

TEST(Fp8Mixture, RowsAreNamedBesideSharesThatALayoutDoesNotDivide) {
    const std::string text = refusal_of(task_of(mixture(), {.name = "tp8", .tp = 8, .sequence_parallel = true}, 8));
    EXPECT_THAT(text, HasSubstr("8 rows of a microbatch on a rank, no multiple of 16"));
    EXPECT_THAT(text, HasSubstr("tp = 8 over 4 heads"));
}

}  // namespace
}  // namespace mgplan::model::fp8_test
