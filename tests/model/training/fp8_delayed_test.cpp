// fp8 with delayed scaling: chunks of several steps against an implementation of its own, every layout against one rank and against the
// same ranks on shapes, and what is kept and refused.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/layers/fp8_delayed.hpp"
#include "model/ops/fp8_history.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/fp8_reference.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_test {
namespace {

namespace reference = tests::fp8_reference;
using testing::ElementsAre;

/// Latent attention in front of MLPs.
ModelSpec latent_llama() {
    ModelSpec model = tests::small_llama(2);
    model.name = "latent-llama";
    model.kv_heads = model.heads;
    model.head_dim = 0;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 32, .kv_lora_rank = 16, .qk_nope_head_dim = 16, .qk_rope_head_dim = 16, .v_head_dim = 16};
    return model;
}

void expect_reference_of_steps(const ModelSpec& model, const std::vector<ChunkCase>& cases) {
    const ChunkTokens given = chunk_tokens();
    for (ChunkCase c : tests::sanitized_share(cases, 3)) {
        c.scaling = OwnFp8::delayed;
        SCOPED_TRACE(testing::Message() << "tp " << c.tp << " cp " << c.cp << (c.sequence_parallel ? " sp" : "") << " steps " << c.steps);
        WeightsByRank weights;
        const reference::Result result = run_chunk(model, c, weights);
        reference::Follow follow{.row_gradient = 1.0F / kTokens};
        reference::Result expected;
        for (int step = 0; step < c.steps; ++step) {
            reference::LayeredModel loops(sizes_of(model, c), weights, {}, {}, latent_sizes_of(model, c));
            loops.follow(&follow);
            expected = loops.run(given.tokens, given.targets);
            follow.end_step();
        }
        expect_those_of_the_reference(model, c, result, expected);
    }
}

TEST(Fp8Delayed, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    // A first step, without history, and one with that of the first; other layouts cast by the largest of all their ranks.
    expect_reference_of_steps(plain_llama(), {{},
                                              {.steps = 2},
                                              {.tp = 2, .steps = 2},
                                              {.tp = 2, .sequence_parallel = true, .steps = 2},
                                              {.tp = 2, .sequence_parallel = true, .modules = {layernorm, mlp, core_attn}, .steps = 2},
                                              {.cp = 2, .steps = 2},
                                              {.tp = 2, .cp = 2, .sequence_parallel = true, .steps = 2}});
    ModelSpec latent = latent_llama();
    latent.layers = 2;
    latent.vocab = 64;
    latent.position = PositionEmbedding::none;
    latent.rotary_fraction = 0;
    for (const std::int64_t q_rank : {32, 0}) {
        latent.mla->q_lora_rank = q_rank;
        expect_reference_of_steps(
            latent, {{.steps = 2}, {.tp = 2, .steps = 2}, {.tp = 2, .sequence_parallel = true, .modules = {mla_up_proj}, .steps = 2}});
    }
}

TEST(Fp8Delayed, ScalesFollowTheLargestOfAWindowOfSteps) {
    runtime::CpuDevice device;
    const auto floats = [&](const Shape& shape, const std::vector<double>& values) { return make(device, shape, Dtype::fp32, values); };
    const Tensor now = floats({2}, {0, 0}), scales = floats({2, 2}, {3, 1, 0, 1});
    const Tensor history = device.zeros({2, kFp8HistoryLength + 1}, Dtype::fp32, MemoryCategory::parameters, "history");
    const auto step = [&](double first, double second) {
        raise_largest(floats({3}, {first / 2, -first, 0}), now.slice(0, 1));
        raise_largest(floats({2}, {first / 4, first / 8}), now.slice(0, 1));
        raise_largest(floats({1}, {second}), now.slice(1, 2));
        follow_largest(now, history, scales, 0.5);
        EXPECT_THAT(read(now), ElementsAre(0, 0));
        const auto read_scales = read(scales);
        return std::pair(read_scales[0], read_scales[2]);
    };
    EXPECT_EQ(step(0, 0), std::pair(3.0, 0.0)) << "nothing was seen";
    EXPECT_EQ(step(8, 1), std::pair(8.0, 1.0));
    EXPECT_EQ(step(2, 4), std::pair(8.0, 4.0));
    EXPECT_EQ(read(history)[0], 16) << "in units";
    EXPECT_EQ(read(history)[kFp8HistoryLength], 2) << "the place of the next";
    for (std::int64_t i = 2; i < kFp8HistoryLength; ++i) (void)step(1, 1);
    EXPECT_EQ(step(1, std::numeric_limits<double>::infinity()), std::pair(2.0, 4.0)) << "what is infinite changes no scale";
    EXPECT_EQ(step(1, 1), std::pair(1.0, 4.0));
    for (std::int64_t i = 2; i < kFp8HistoryLength; ++i) EXPECT_EQ(step(1, 1).second, 4) << "nor does another while it is in the window";
    EXPECT_EQ(step(1, 2), std::pair(1.0, 2.0)) << "until it is pushed out";
}

std::vector<Case> delayed_cases() {
    using enum RecomputeModule;
    return {
        {.name = "one"},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "dp2", .dp = 2},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "tp2_sp_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "modules", .tp = 2, .sequence_parallel = true, .recompute = Recompute::selective, .modules = {core_attn, mlp, layernorm}},
        {.name = "tp2_sp_cp2", .tp = 2, .cp = 2, .sequence_parallel = true},
        {.name = "full", .recompute = Recompute::full},
        {.name = "zb", .pp = 2, .schedule = SplitSchedule::zb_h1}};
}

class Fp8DelayedLayouts : public testing::TestWithParam<Case> {};

TEST_P(Fp8DelayedLayouts, TrainAndHoldWhatShapesPredict) {
    Case c = GetParam();
    ModelSpec predicting = tests::small_llama(2);
    predicting.name = "predicting";
    predicting.mtp_layers = 1;
    for (const ModelSpec& model : {tests::small_llama(2), tests::small_gpt(2), predicting, latent_llama()}) {
        if (model.mtp_layers > 0 && c.schedule) continue;  // refused by name
        SCOPED_TRACE(model.name);
        c.micro_batch = model.mla && c.sequence_parallel ? 2 : 1;  // whose rows it divides over tp
        const std::int64_t sequence = 16 * c.cp;
        const TrainingTask task = task_of(model, c, sequence, Fp8Recipe::delayed);
        Outcome outcome = train(task);
        for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        // All ranks have the same scales, those of a step before. What differs is rounding to bf16 of sums that ranks of tp and cp have
        // parts of, and after a step of Adam where such a sum is near 0.
        const Outcome one = train(task_of(model, {.name = "one", .micro_batch = c.micro_batch}, sequence, Fp8Recipe::delayed));
        const bool same_sums = c.tp * c.cp == 1;
        ASSERT_EQ(outcome.steps.size(), one.steps.size());
        for (std::size_t i = 0; i < one.steps.size(); ++i)
            EXPECT_NEAR(outcome.steps[i].loss / one.steps[i].loss, 1, i == 0 && same_sums ? 1e-12 : i == 0 || same_sums ? 5e-3 : 0.15) << i;
        EXPECT_NEAR(outcome.steps[0].result.grad_norm / one.steps[0].result.grad_norm, 1, same_sums ? 1e-5 : 0.05);
        EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8DelayedLayouts, testing::ValuesIn(tests::sanitized_share(delayed_cases(), 4)),
                         [](const auto& c) { return c.param.name; });

TEST(Fp8Delayed, HoldsAHistoryForThreeTensorsOfEachLayer) {
    const ModelSpec model = tests::small_llama(2);
    const TrainingTask delayed = task_of(model, {.name = "one"}, 16, Fp8Recipe::delayed), current = task_of(model, {.name = "one"});
    const auto held = [](const TrainingTask& task, MemoryCategory category) {
        return predict(task, 0, nullptr).memory.high_water[static_cast<std::size_t>(category)];
    };
    const std::int64_t weights = 4 * model.layers;
    EXPECT_EQ(held(delayed, MemoryCategory::parameters),
              held(current, MemoryCategory::parameters) + weights * (3 * 4 * (1024 + 1 + 1 + 2) - 8));
    EXPECT_LT(held(delayed, MemoryCategory::activations), held(current, MemoryCategory::activations)) << "no scale beside what is kept";
}

}  // namespace
}  // namespace mgplan::model::fp8_test
