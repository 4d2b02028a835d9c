// fp8 with delayed scaling of mixtures: chunks of several steps against an implementation of its own, every layout against one rank and
// against the same ranks on shapes, and what each expert's histories hold.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/fp8_grouped.hpp"
#include "model/ops/fp8_history.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/model/training/fp8_chunk.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::fp8_test {
namespace {

namespace reference = tests::fp8_reference;
using testing::ElementsAre;

void expect_reference_of_mixtures(const ModelSpec& model, const std::vector<ChunkCase>& cases) {
    for (ChunkCase c : tests::sanitized_share(cases, 3)) {
        c.scaling = OwnFp8::delayed;
        SCOPED_TRACE(testing::Message() << model.name << " tp " << c.tp << " cp " << c.cp << " ep " << c.ep << " etp " << c.etp
                                        << (c.sequence_parallel ? " sp" : "") << " steps " << c.steps);
        WeightsByRank weights;
        const reference::Result result = run_chunk(model, c, weights);
        reference::Follow follow{.row_gradient = 1.0F / kTokens};
        reference::Result expected;
        for (int step = 0; step < c.steps; ++step) {
            expected = mixture_reference(model, c, weights, &follow);
            follow.end_step();
        }
        expect_those_of_the_reference(model, c, result, expected);
    }
}

TEST(Fp8DelayedMixture, LossesAndGradientsAreThoseOfPlainLoops) {
    using enum RecomputeModule;
    expect_reference_of_mixtures(
        plain(mixture()), {{},
                           {.steps = 2},
                           {.tp = 2, .sequence_parallel = true, .steps = 2},
                           {.tp = 2, .sequence_parallel = true, .ep = 2, .steps = 2},
                           {.tp = 2, .sequence_parallel = true, .modules = {moe_act, shared_experts, layernorm}, .etp = 2, .steps = 2},
                           {.modules = {moe}, .steps = 2},
                           {.cp = 2, .steps = 2},
                           {.cp = 2, .ep = 2, .steps = 2}});
    // Sums are in fp32 here and in fp64 there, so that a value on the border of two codes may have either: these weights have none.
    ModelSpec latent = plain(latent_mixture());
    latent.name = "a";
    expect_reference_of_mixtures(latent, {{.steps = 2}, {.tp = 2, .sequence_parallel = true, .ep = 2, .steps = 2}});
}

TEST(Fp8DelayedMixture, GroupsWithoutRowsHaveNoMagnitude) {
    runtime::CpuDevice device;
    const Tensor x = make(device, {3, 2}, Dtype::fp32, {1, -8, 0, 2, 4, -4});
    const Tensor scales = make(device, {3, 2}, Dtype::fp32, {448, 0, 448, 0, 896, 0}), largest = make(device, {3}, Dtype::fp32, {3, 5, 1});
    const std::vector<std::int64_t> rows{2, 0, 1};
    const std::vector<Tensor> by_group{largest.slice(0, 1), largest.slice(1, 2), largest.slice(2, 3)};
    const Fp8Tensor cast = quantise_groups(x, Dtype::fp8, rows, scales, by_group, "cast");
    EXPECT_THAT(read(largest), ElementsAre(8, 5, 4));
    EXPECT_THAT(read(cast.scale), ElementsAre(448, 1, 448, 0, 896, 2)) << "by the scales that were there";
}

std::vector<Case> delayed_mixture_cases() {
    std::vector<Case> all = mixture_layouts();
    for (const Case& more :
         {Case{.name = "dp2", .dp = 2}, Case{.name = "ep2_dp4", .dp = 4, .ep = 2}, Case{.name = "pp2_vpp2", .pp = 2, .vpp = 2}})
        all.push_back(more);
    return all;
}

class Fp8DelayedMixtureLayouts : public testing::TestWithParam<Case> {};

TEST_P(Fp8DelayedMixtureLayouts, TrainAndHoldWhatShapesPredict) {
    Case c = GetParam();
    for (const ModelSpec& model : {mixture(), latent_mixture()}) {
        if (model.mtp_layers > 0 && c.name != "one" && c.name != "tp2_sp_ep4" && c.name != "pp2_dp2_ep2") continue;
        SCOPED_TRACE(model.name);
        c.micro_batch = model.mla && c.sequence_parallel ? 2 : 1;  // whose rows it divides over tp
        const std::int64_t sequence = 16 * c.cp;
        const TrainingTask task = task_of(model, c, sequence, Fp8Recipe::delayed);
        Outcome outcome = train(task);
        for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
        // All ranks have an expert's scale alike, those with other experts others, as one rank has. What differs is rounding to bf16 of
        // sums that ranks of tp and cp have parts of.
        const Outcome one = train(task_of(model, {.name = "one", .micro_batch = c.micro_batch}, sequence, Fp8Recipe::delayed));
        const bool same_sums = c.tp * c.cp == 1;
        EXPECT_NEAR(outcome.steps[1].loss / one.steps[1].loss, 1, 5e-3);
        expect_steps_near(outcome, one, same_sums, 0.1);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8DelayedMixtureLayouts, testing::ValuesIn(tests::sanitized_share(delayed_mixture_cases(), 4)),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace mgplan::model::fp8_test
