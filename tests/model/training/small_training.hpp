#pragma once
// Small models and layouts for the tests of one training step's parts, and ways to run them: ranks as threads on the CPU,
// or one rank on shapes.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::model::small {

/// GPT: tied table, learned positions, LayerNorm, biases.
inline ModelSpec gpt() {
    ModelSpec model;
    model.name = "small-gpt";
    model.layers = 4;
    model.hidden = 32;
    model.ffn = 48;
    model.heads = model.kv_heads = 4;
    model.head_dim = 8;
    model.vocab = 61;
    model.vocab_divisor = 8;
    model.max_positions = 16;
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.tied_embeddings = true;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

/// Llama: untied, rotary, RMSNorm, gated, grouped kv heads.
inline ModelSpec llama() {
    ModelSpec model = gpt();
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

struct Sizes {
    int tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1;
    bool sequence_parallel = false;
    int group = 0;  ///< microbatch group of the interleaved schedule; 0: pp
};

/// fp64, 8 sequences of 16 tokens, micro-batches of one; nothing overlaps.
inline TrainingTask task(const ModelSpec& model, const Sizes& sizes) {
    TrainingTask task;
    task.model = model;
    task.batch = {8, 16};
    task.training.precision = Precision::fp64;
    task.training.overlap_grad_reduce = task.training.overlap_param_gather = false;
    Layout& layout = task.layout;
    layout.sizes = {sizes.tp * sizes.cp * sizes.pp * sizes.dp, sizes.tp, sizes.cp, 1, sizes.tp, sizes.pp, AxisOrder{}, 1};
    layout.vpp = sizes.vpp;
    layout.group_size = sizes.group == 0 ? sizes.pp : sizes.group;
    layout.num_microbatches = task.batch.global_batch / sizes.dp;
    layout.sequence_parallel = sizes.sequence_parallel;
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, sizes.pp, sizes.vpp).value());
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

/// Bytes of all parameter buffers of a trainer.
inline std::vector<std::byte> parameter_bytes(RankTrainer& trainer) {
    std::vector<std::byte> all;
    for (const auto& chunk : trainer.parameters()) {
        for (const FlatBuffer& buffer : chunk->buffers()) {
            const std::size_t begin = all.size();
            all.resize(begin + static_cast<std::size_t>(buffer.parameters.bytes()));
            buffer.parameters.device().read(buffer.parameters, all.data() + begin);
        }
    }
    return all;
}

/// What one rank does with its trainer.
using RankBody = std::function<void(int rank, RankTrainer& trainer, runtime::CpuDevice& device)>;

/// Runs body on every rank of the task's world, each a thread with a CPU of its own.
inline void on_all_ranks(const TrainingTask& task, runtime::InProcessWorld& world, const RankBody& body) {
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        RankTrainer trainer(task, device, world.view(rank));
        device.restart_high_water();
        body(rank, trainer, device);
    });
}

struct Outcome {
    std::vector<StepReport> steps;           ///< of rank 0
    std::vector<MemoryUse> memory;           ///< by rank
    std::vector<CollectiveCounter> traffic;  ///< by rank, as the transport counted it
};

inline Outcome train(const TrainingTask& task, int steps) {
    const auto ranks = static_cast<int>(task.layout.sizes.world);
    runtime::InProcessWorld world(ranks);
    Outcome outcome;
    outcome.memory.resize(static_cast<std::size_t>(ranks));
    std::mutex mutex;
    on_all_ranks(task, world, [&](int rank, RankTrainer& trainer, runtime::CpuDevice& device) {
        std::vector<StepReport> reports;
        for (int step = 0; step < steps; ++step) reports.push_back(trainer.step(tokens_of, 1e-2));
        const std::scoped_lock lock(mutex);
        outcome.memory[static_cast<std::size_t>(rank)] = device.memory();
        if (rank == 0) outcome.steps = std::move(reports);
    });
    for (int rank = 0; rank < ranks; ++rank) outcome.traffic.push_back(world.traffic(rank));
    return outcome;
}

/// The same rank on shapes alone.
struct Prediction {
    BytesByCategory high_water{};
    CollectiveCounter traffic;
};

inline Prediction predict(const TrainingTask& task, int rank, int steps) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    Prediction prediction;
    RankTrainer trainer(task, device, recording_world(rank, static_cast<int>(task.layout.sizes.world), &prediction.traffic));
    device.restart_high_water();
    for (int step = 0; step < steps; ++step) (void)trainer.step(tokens_of, 1e-2);
    prediction.high_water = device.memory().high_water;
    return prediction;
}

}  // namespace mgplan::model::small
