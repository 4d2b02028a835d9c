// fp8 with a scale for each block, of mixtures and of latent attention: chunks against an implementation of its own, every layout against
// one rank and against the same ranks on shapes.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_block_mixture_test {
namespace {

using namespace fp8_test;  // NOLINT(google-build-using-namespace): the chunk of all tests in fp8
namespace reference = tests::fp8_reference;
using testing::HasSubstr;

/// A dense layer and a mixture with a shared expert, all of whose shares on two ranks 32 divides.
ModelSpec block_mixture(bool latent) {
    ModelSpec model = small_mixture();
    model.name = latent ? "latent-mixture-in-blocks" : "mixture-in-blocks";
    model.hidden = 64;
    model.ffn = 64;
    model.head_dim = latent ? 0 : 16;
    model.vocab = 64;
    model.moe->expert_ffn = 64;
    model.moe->shared_ffn = 64;
    if (!latent) return model;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 32, .kv_lora_rank = 32, .qk_nope_head_dim = 16, .qk_rope_head_dim = 32, .v_head_dim = 16};
    return model;
}

/// As the reference has it: without positions, and the one layer a mixture.
ModelSpec plain_mixture(bool latent) {
    ModelSpec model = block_mixture(latent);
    model.layers = 1;
    model.moe_layers = {true};
    model.position = PositionEmbedding::none;
    model.rotary_fraction = latent ? 0 : 1;
    model.moe->auxiliary_loss = 0;
    return model;
}

void expect_loops(const ModelSpec& model, const std::vector<ChunkCase>& cases) {
    for (const OwnFp8 scaling : {OwnFp8::blockwise, OwnFp8::mxfp8}) {
        for (ChunkCase c : tests::sanitized_share(cases, 3)) {
            SCOPED_TRACE(testing::Message() << model.name << " tp " << c.tp << " cp " << c.cp << " ep " << c.ep << " etp " << c.etp
                                            << (c.sequence_parallel ? " sp" : "") << (scaling == OwnFp8::mxfp8 ? " mxfp8" : ""));
            c.scaling = scaling;
            WeightsByRank weights;
            const reference::Result result = run_chunk(model, c, weights);
            expect_those_of_the_reference(model, c, result, mixture_reference(model, c, weights));
        }
    }
}

TEST(Fp8BlocksOfMixtures, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    expect_loops(plain_mixture(false),
                 {{.tokens = 32},
                  {.tp = 2, .sequence_parallel = true, .ep = 2, .tokens = 32},
                  {.tp = 2, .sequence_parallel = true, .modules = {moe_act, shared_experts, layernorm}, .etp = 2, .tokens = 32},
                  {.modules = {moe}, .tokens = 32},
                  {.cp = 2, .tokens = 64}});
}

TEST(Fp8BlocksOfLatentAttention, LossesAndGradientsAreThoseOfPlainLoops) {
    ModelSpec model = plain_mixture(true);
    const std::vector<ChunkCase> cases{
        {.tokens = 32}, {.tp = 2, .sequence_parallel = true, .modules = {RecomputeModule::mla_up_proj}, .ep = 2, .tokens = 64}};
    expect_loops(model, cases);
    model.mla->q_lora_rank = 0;
    expect_loops(model, cases);
}

std::vector<Case> mixtures_in_blocks() {
    using enum RecomputeModule;
    return {{.name = "one"},
            {.name = "ep2", .dp = 2, .ep = 2},
            {.name = "tp2_sp_ep2_etp2", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
            {.name = "pp2_dp2_ep2", .pp = 2, .dp = 2, .ep = 2},
            {.name = "modules",
             .tp = 2,
             .sequence_parallel = true,
             .recompute = Recompute::selective,
             .modules = {core_attn, layernorm, moe_act, shared_experts}},
            {.name = "moe", .recompute = Recompute::selective, .modules = {moe}},
            {.name = "full", .recompute = Recompute::full},
            {.name = "zb", .pp = 2, .schedule = SplitSchedule::zb_h1}};
}

class Fp8BlockMixtures : public testing::TestWithParam<std::pair<Fp8Recipe, Case>> {};

TEST_P(Fp8BlockMixtures, TrainAndHoldWhatShapesPredict) {
    const auto& [recipe, c] = GetParam();
    for (const bool latent : {false, true}) {
        ModelSpec model = block_mixture(latent);
        if (latent && c.schedule) continue;  // multi-token prediction with it is refused by name
        if (latent) model.mtp_layers = 1;
        SCOPED_TRACE(model.name);
        const std::int64_t sequence = 64;
        const TrainingTask task = task_of(model, c, sequence, recipe);
        Outcome outcome = train(task);
        for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        static std::map<std::pair<Fp8Recipe, std::string>, Outcome> known;
        Outcome& one = known[{recipe, model.name}];
        if (one.steps.empty()) one = train(task_of(model, {.name = "one"}, sequence, recipe));
        const bool casts_alike = c.tp * c.cp * c.ep == 1;
        expect_steps_near(outcome, one, casts_alike, 0.1);
    }
}

std::vector<std::pair<Fp8Recipe, Case>> mixtures_of_recipes() {
    std::vector<std::pair<Fp8Recipe, Case>> list;
    for (const Case& c : mixtures_in_blocks()) {
        for (const Fp8Recipe recipe : {Fp8Recipe::blockwise, Fp8Recipe::mxfp8}) list.emplace_back(recipe, c);
    }
    return list;
}

INSTANTIATE_TEST_SUITE_P(All, Fp8BlockMixtures, testing::ValuesIn(tests::sanitized_share(mixtures_of_recipes(), 4)),
                         [](const auto& c) { return (c.param.first == Fp8Recipe::mxfp8 ? "mxfp8_" : "blockwise_") + c.param.second.name; });

TEST(Fp8BlocksOfMixtures, SharesThatProductsDoNotMultiplyAreRefusedByName) {
    ModelSpec model = block_mixture(false);
    model.moe->expert_ffn = 48;
    EXPECT_EQ(refusal_of(task_of(model, {.name = "one"}, 32, Fp8Recipe::blockwise)), "");
    EXPECT_THAT(refusal_of(task_of(model, {.name = "one"}, 32, Fp8Recipe::mxfp8)),
                HasSubstr("mxfp8 products of 48 columns of mlp.experts.linear_fc2.weight0 on a rank, no multiple of 32"));
}

}  // namespace
}  // namespace mgplan::model::fp8_block_mixture_test
