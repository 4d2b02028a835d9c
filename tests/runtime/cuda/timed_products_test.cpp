// Products whose algorithms a card may choose by timing differ from rank to rank in their last bits: what tp ranks hold alike must not.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/kinds.hpp"
#include "tests/runtime/cuda/emulated_device.hpp"

namespace mgplan::tests::timed_products_test {
namespace {

using runtime::cuda::emulated_traits;
using runtime::cuda::EmulatedDevice;
using Values = std::vector<std::pair<std::string, std::vector<float>>>;

/// Of each of two tp ranks, what both hold, trained where the products of rank 1 that may be timed come out larger by a thousandth.
std::vector<Values> held_alike(const model::TrainingTask& task) {
    std::vector<Values> held(2);
    runtime::InProcessWorld world(2);
    std::mutex mutex;
    runtime::run_ranks(world, [&](int rank) {
        EmulatedDevice device(emulated_traits(true));
        device.launcher().timed_error = 1e-3 * rank;
        model::RankTrainer trainer(task, device, world.view(rank));
        for (int step = 0; step < 2; ++step) (void)trainer.step(tokens_of, 1e-2);
        Values mine;
        for (const auto& chunk : trainer.parameters()) {
            for (const Parameter& parameter : chunk->parameters()) {
                if (parameter.shard_axis || parameter.expert) continue;
                const model::Tensor& value = chunk->weights().at(parameter.name).value;
                auto& values = mine.emplace_back(parameter.name, std::vector<float>(static_cast<std::size_t>(value.elements()))).second;
                device.read(value, values.data());
            }
        }
        const std::scoped_lock lock(mutex);
        held[static_cast<std::size_t>(rank)] = std::move(mine);
    });
    return held;
}

struct Replicated {
    std::string name;
    ModelSpec model;
    bool sequence_parallel = false;
    OptimizerKind optimizer = OptimizerKind::adam;
};

/// Latent attention in dense layers, which train without sequence parallelism too.
ModelSpec dense_latent() {
    ModelSpec model = model::small_deepseek_v3();
    model.moe.reset();
    model.moe_layers.clear();
    model.mtp_layers = 0;
    return model;
}

class TimedProducts : public testing::TestWithParam<Replicated> {};

TEST_P(TimedProducts, LeaveWhatTpRanksHoldTheSameToTheBit) {
    const Replicated& c = GetParam();
    auto task = task_for(c.model, {.name = "", .tp = 2, .sequence_parallel = c.sequence_parallel}, Precision::fp32,
                         std::min(kPlaces, c.model.max_positions));
    task.training.megatron.optimizer = c.optimizer;
    const std::vector<Values> held = held_alike(task);
    ASSERT_FALSE(held[0].empty());
    ASSERT_EQ(held[0].size(), held[1].size());
    for (std::size_t i = 0; i < held[0].size(); ++i) EXPECT_EQ(held[0][i].second, held[1][i].second) << held[0][i].first;
}

INSTANTIATE_TEST_SUITE_P(Of, TimedProducts,
                         testing::Values(Replicated{"gpt", small_gpt(kScale)}, Replicated{"llama", small_llama(kScale)},
                                         Replicated{"muon", small_llama(kScale), false, OptimizerKind::muon},
                                         Replicated{"latent_attention", dense_latent()},
                                         Replicated{"latent_attention_by_rows", dense_latent(), true},
                                         Replicated{"kimi_delta_attention", model::small::small_kimi_linear(), true},
                                         Replicated{"mixture_of_latents", model::small::small_nemotron_latent(), true}),
                         [](const auto& test) { return test.param.name; });

/// Counts products by whether they may be timed.
std::pair<std::int64_t, std::int64_t> counted(const model::TrainingTask& task) {
    runtime::InProcessWorld world(static_cast<int>(task.layout.sizes.world));
    std::pair<std::int64_t, std::int64_t> counts;
    runtime::run_ranks(world, [&](int rank) {
        EmulatedDevice device(emulated_traits(true));
        model::RankTrainer trainer(task, device, world.view(rank));
        (void)trainer.step(tokens_of, 1e-2);
        if (rank == 0) counts = {device.launcher().timed, device.launcher().not_timed};
    });
    return counts;
}

// Four layers of four linear weights each and the output layer, three products each, for eight sequences.
TEST(TimedProductsOfAStep, AreThoseOfAllLinearLayers) {
    const std::int64_t all = 8 * 3 * (4 * small_llama(kScale).layers + 1);
    EXPECT_EQ(counted(task_for(small_llama(kScale), {.name = ""}, Precision::bf16, kPlaces)), std::pair(all, std::int64_t{0}));
    EXPECT_EQ(counted(task_for(small_llama(kScale), {.name = "", .tp = 2}, Precision::bf16, kPlaces)), std::pair(all, std::int64_t{0}));
}

// The two down projections of each layer are held by both ranks.
TEST(TimedProductsOfAStep, LeaveOutWhatTpRanksComputeAlike) {
    const auto layers = dense_latent().layers;
    const auto places = std::min(kPlaces, dense_latent().max_positions);
    const auto one = counted(task_for(dense_latent(), {.name = ""}, Precision::fp32, places));
    const auto two = counted(task_for(dense_latent(), {.name = "", .tp = 2}, Precision::fp32, places));
    const auto rows = counted(task_for(dense_latent(), {.name = "", .tp = 2, .sequence_parallel = true}, Precision::fp32, places));
    EXPECT_EQ(one.first - two.first, 8 * 3 * 2 * layers);
    EXPECT_EQ(two.second - one.second, 8 * 3 * 2 * layers);
    EXPECT_EQ(rows, one);
}

}  // namespace
}  // namespace mgplan::tests::timed_products_test
