#pragma once
// The training step whose speed is measured on a card, and whose kernels docs/kernels.md counts.

#include <memory>

#include "model/training/training_task.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::tests {

/// Llama-3-8B's layers, 4 of them, with a smaller vocabulary.
inline ModelSpec llama_shape() {
    return llama_of("llama-3-8b-shaped, 4 layers", {.layers = 4,
                                                    .hidden = 4096,
                                                    .ffn = 14336,
                                                    .heads = 32,
                                                    .kv_heads = 8,
                                                    .head_dim = 128,
                                                    .vocab = 32000,
                                                    .vocab_divisor = 128,
                                                    .max_positions = 4096});
}

inline constexpr std::int64_t kSequence = 4096, kSequences = 2;

inline model::TrainingTask layers_task() {
    model::TrainingTask task;
    task.model = llama_shape();
    task.batch = {kSequences, kSequence};
    task.training.precision = Precision::bf16;
    task.training.distributed_optimizer = true;
    task.layout.sizes = {1, 1, 1, 1, 1, 1, AxisOrder{}, 1};
    task.layout.vpp = 1;
    task.layout.group_size = 1;
    task.layout.micro_batch = kSequences;
    task.layout.num_microbatches = 1;
    task.layout.split = std::make_shared<const StageSplit>(automatic_stage_split(task.model.layers, 0, 1, 1).value());
    return task;
}

}  // namespace mgplan::tests
