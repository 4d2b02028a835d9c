#pragma once
// For the tests of one training step's parts: small models and layouts without overlap, on the CPU or on shapes.

#include <functional>
#include <memory>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::model::small {

inline ModelSpec gpt() {
    return tests::small_gpt();
}
inline ModelSpec llama() {
    return tests::small_llama();
}

struct Sizes {
    int tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1;
    bool sequence_parallel = false;
    int group = 0;  ///< microbatch group of the interleaved schedule; 0: pp
};

/// fp64, 8 sequences of 16 tokens, micro-batches of one; nothing overlaps.
inline TrainingTask task(const ModelSpec& model, const Sizes& sizes) {
    TrainingTask task = tests::task_for(model,
                                        {.name = "",
                                         .tp = sizes.tp,
                                         .cp = sizes.cp,
                                         .pp = sizes.pp,
                                         .vpp = sizes.vpp,
                                         .dp = sizes.dp,
                                         .sequence_parallel = sizes.sequence_parallel,
                                         .group_size = sizes.group},
                                        Precision::fp64);
    task.training.overlap_grad_reduce = task.training.overlap_param_gather = false;
    return task;
}

using tests::Outcome;
using tests::tokens_of;

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

inline Outcome train(const TrainingTask& task, int steps) {
    return tests::train_ranks(task, steps, [](int) { return std::make_unique<runtime::CpuDevice>(); });
}

/// The same rank on shapes alone.
struct Prediction {
    BytesByCategory high_water{};
    CollectiveCounter traffic;
};

inline Prediction predict(const TrainingTask& task, int rank, int steps) {
    const tests::Prediction predicted = tests::predict_rank(task, rank, steps);
    return {predicted.memory.high_water, predicted.traffic};
}

}  // namespace mgplan::model::small
