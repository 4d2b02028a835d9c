#pragma once
// The training step whose speed is measured on a card, and whose kernels docs/kernels.md counts.

#include <memory>

#include "model/training/training_task.hpp"

namespace mgplan::tests {

/// Llama-3-8B's layers, 4 of them, with a smaller vocabulary.
inline ModelSpec llama_shape() {
    ModelSpec model;
    model.name = "llama-3-8b-shaped, 4 layers";
    model.layers = 4;
    model.hidden = 4096;
    model.ffn = 14336;
    model.heads = 32;
    model.kv_heads = 8;
    model.head_dim = 128;
    model.vocab = 32000;
    model.vocab_divisor = 128;
    model.max_positions = 4096;
    model.activation = Activation::silu;
    model.gated_mlp = true;
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.tied_embeddings = false;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    return model;
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
