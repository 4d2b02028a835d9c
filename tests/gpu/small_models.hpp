#pragma once
// What the tests of training on a GPU, real or emulated, share: models, layouts, and what is expected of a run.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/small_training.hpp"

namespace mgplan::tests {

inline constexpr int kSteps = 3;

/// Heads of 16, and sequences of as many places as learned positions have.
inline constexpr int kScale = 2;
inline constexpr std::int64_t kPlaces = 32;

/// One dense layer, then three mixtures with a shared expert. capacity: room for an expert's copies, as a factor of an even
/// share; 0: all of them.
inline ModelSpec small_mixture(RouterScore score, double capacity = 0, bool padded = false) {
    ModelSpec model = small_llama(kScale);
    model.name = "small-mixture";
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 40, .shared_ffn = 16, .auxiliary_loss = 0.02};
    model.moe->score = score;
    model.moe->shared_gate = score == RouterScore::sigmoid;
    model.moe->capacity_factor = capacity;
    model.moe->pad_to_capacity = padded;
    model.moe_layers = {false, true, true, true};
    return model;
}

/// The same with sizes whose shares on two ranks 16 divides, for products in fp8.
inline ModelSpec wide_mixture() {
    ModelSpec model = small_mixture(RouterScore::softmax);
    model.moe->expert_ffn = model.moe->shared_ffn = 32;
    return model;
}

inline std::vector<Case> cases() {
    return {
        {.name = "one"},
        {.name = "mbs2", .micro_batch = 2},
        {.name = "full_recompute", .recompute = Recompute::full},
        {.name = "dp2", .dp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "pp2", .pp = 2},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp2_gather", .cp = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "tp2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2", .tp = 2, .cp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "on_the_host", .dp = 2, .offload = {.optimizer = 0.5, .modules = {OffloadModule::attn_norm, OffloadModule::core_attn}}},
    };
}

/// The bytes and the traffic of every rank are those of the same rank on shapes that stand for `traits`, with its routing.
inline void expect_as_predicted(const model::TrainingTask& task, const model::KernelTraits& traits, const Outcome& outcome) {
    for (std::size_t rank = 0; rank < outcome.memory.size(); ++rank) {
        model::RoutingLog routing = outcome.routing[rank];
        const Prediction predicted = predict_rank(task, static_cast<int>(rank), kSteps, traits, &routing);
        for (int i = 0; i < model::kMemoryCategories; ++i) {
            const auto index = static_cast<std::size_t>(i);
            EXPECT_EQ(predicted.memory.high_water[index], outcome.memory[rank].high_water[index])
                << "rank " << rank << " " << to_string(static_cast<model::MemoryCategory>(i));
        }
        EXPECT_EQ(predicted.host, outcome.host[rank]) << "rank " << rank << " on the host";
        EXPECT_EQ(predicted.traffic.totals(), outcome.traffic[rank].totals()) << "rank " << rank;
    }
}

/// Relative tolerances of the losses, and of the gradients' norms and the auxiliary losses.
inline void expect_losses_near(const Outcome& actual, const Outcome& expected, double tolerance, double of_norms) {
    ASSERT_EQ(actual.steps.size(), expected.steps.size());
    EXPECT_LT(expected.steps.back().loss, expected.steps.front().loss);
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
        EXPECT_NEAR(actual.steps[i].loss / expected.steps[i].loss, 1, tolerance) << "step " << i;
        EXPECT_NEAR(actual.steps[i].result.grad_norm / expected.steps[i].result.grad_norm, 1, of_norms) << "step " << i;
        EXPECT_NEAR(actual.steps[i].auxiliary_loss, expected.steps[i].auxiliary_loss, of_norms * expected.steps[i].auxiliary_loss)
            << "step " << i;
    }
}

inline void expect_losses_near(const Outcome& actual, const Outcome& expected, double tolerance) {
    expect_losses_near(actual, expected, tolerance, 10 * tolerance);
}

}  // namespace mgplan::tests
