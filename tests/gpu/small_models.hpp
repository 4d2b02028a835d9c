#pragma once
// Small models that train in a moment, on whatever device, alone or as ranks in one process.

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/layers/routing_log.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"

namespace mgplan::tests {

inline constexpr int kSteps = 3;

inline ModelSpec small_gpt() {
    ModelSpec model;
    model.name = "small-gpt";
    model.layers = 4;
    model.hidden = 64;
    model.ffn = 96;
    model.heads = 4;
    model.kv_heads = 4;
    model.head_dim = 16;
    model.vocab = 61;
    model.vocab_divisor = 8;
    model.max_positions = 32;
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.tied_embeddings = true;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

inline ModelSpec small_llama() {
    ModelSpec model = small_gpt();
    model.name = "small-llama";
    model.kv_heads = 2;
    model.activation = Activation::silu;
    model.gated_mlp = true;
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.tied_embeddings = false;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    return model;
}

/// One dense layer, then three mixtures with a shared expert. capacity: room for an expert's copies, as a factor of an even
/// share; 0: all of them.
inline ModelSpec small_mixture(RouterScore score, double capacity = 0, bool padded = false) {
    ModelSpec model = small_llama();
    model.name = "small-mixture";
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 40, .shared_ffn = 16, .auxiliary_loss = 0.02};
    model.moe->score = score;
    model.moe->shared_gate = score == RouterScore::sigmoid;
    model.moe->capacity_factor = capacity;
    model.moe->pad_to_capacity = padded;
    model.moe_layers = {false, true, true, true};
    return model;
}

/// A layout's sizes; what is left out is 1 or off.
struct Case {
    std::string name;
    int tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1, ep = 1, etp = 1;  ///< etp: of mixtures alone
    int micro_batch = 1;
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    Recompute recompute = Recompute::none;
};

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
    };
}

inline model::TrainingTask task_for(const ModelSpec& model, const Case& c, Precision precision) {
    model::TrainingTask task;
    task.model = model;
    task.batch = {8, 32};
    task.training.precision = precision;
    task.training.distributed_optimizer = true;
    Layout& layout = task.layout;
    layout.sizes = {c.tp * c.cp * c.pp * c.dp, c.tp, c.cp, c.ep, model.moe ? c.etp : c.tp, c.pp, AxisOrder{}, 1};
    layout.vpp = c.vpp;
    layout.group_size = c.pp;
    layout.micro_batch = c.micro_batch;
    layout.num_microbatches = task.batch.global_batch / (c.dp * c.micro_batch);
    layout.sequence_parallel = c.sequence_parallel;
    layout.cp_comm_type = c.cp_comm_type;
    layout.recompute = c.recompute;
    if (c.recompute == Recompute::full) {
        layout.recompute_method = RecomputeMethod::uniform;
        layout.recompute_num_layers = 1;
    }
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, c.pp, c.vpp).value());
    return task;
}

/// Every step sees the same eight sequences, so that the loss must fall.
inline void tokens_of(std::int64_t sequence, std::span<std::int32_t> tokens) {
    std::uint64_t state = static_cast<std::uint64_t>(sequence % 8) * 7919 + 17;
    for (auto& token : tokens) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        token = static_cast<std::int32_t>((state >> 33U) % 61);
    }
}

struct Outcome {
    std::vector<model::StepReport> steps;
    std::vector<model::MemoryUse> memory;           ///< by rank
    std::vector<model::CollectiveCounter> traffic;  ///< by rank, as the transport counted it
    std::vector<model::RoutingLog> routing;         ///< by rank
};

/// make(rank) makes a rank's device on its thread; restart(device) forgets its maxima, and use(device) tells what it held.
template <class Make, class Restart, class Use>
Outcome train(const model::TrainingTask& task, Make make, Restart restart, Use use) {
    const int ranks = static_cast<int>(task.layout.sizes.world);
    Outcome outcome;
    outcome.memory.resize(static_cast<std::size_t>(ranks));
    outcome.routing.resize(static_cast<std::size_t>(ranks));
    runtime::InProcessWorld world(ranks);
    std::mutex mutex;
    runtime::run_ranks(world, [&](int rank) {
        auto device = make(rank);
        model::RoutingLog routing;
        model::RankTrainer trainer(task, *device, world.view(rank), &routing);
        restart(*device);
        std::vector<model::StepReport> steps;
        for (int step = 0; step < kSteps; ++step) steps.push_back(trainer.step(tokens_of, 1e-2));
        const std::scoped_lock lock(mutex);
        outcome.memory[static_cast<std::size_t>(rank)] = use(*device);
        outcome.routing[static_cast<std::size_t>(rank)] = std::move(routing);
        if (rank == 0) outcome.steps = steps;
    });
    for (int rank = 0; rank < ranks; ++rank) outcome.traffic.push_back(world.traffic(rank));
    return outcome;
}

/// The bytes and the traffic of every rank are those of the same rank on shapes that stand for `traits`, with its routing.
inline void expect_as_predicted(const model::TrainingTask& task, const model::KernelTraits& traits, const Outcome& outcome) {
    for (std::size_t rank = 0; rank < outcome.memory.size(); ++rank) {
        model::MetaDevice device({.keep_allocations = false, .keep_ops = false, .stands_for = traits});
        model::CollectiveCounter traffic;
        model::RoutingLog routing = outcome.routing[rank];
        model::RankTrainer trainer(
            task, device, model::recording_world(static_cast<int>(rank), static_cast<int>(task.layout.sizes.world), &traffic), &routing);
        device.restart_high_water();
        for (int step = 0; step < kSteps; ++step) (void)trainer.step(tokens_of, 1e-2);
        for (int i = 0; i < model::kMemoryCategories; ++i) {
            const auto index = static_cast<std::size_t>(i);
            EXPECT_EQ(device.memory().high_water[index], outcome.memory[rank].high_water[index])
                << "rank " << rank << " " << to_string(static_cast<model::MemoryCategory>(i));
        }
        EXPECT_EQ(traffic.totals(), outcome.traffic[rank].totals()) << "rank " << rank;
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
