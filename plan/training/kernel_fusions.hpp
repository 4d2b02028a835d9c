#pragma once
// Fusions of Megatron-LM's element-wise kernels that a model rules out, whatever the switches say.

#include "plan/model/model_spec.hpp"

namespace mgplan {

/// False for grouped experts with biases (megatron/core/transformer/moe/experts.py): bias, dropout and addition are kernels of their own.
[[nodiscard]] inline bool may_fuse_dropout(const ModelSpec& model) {
    return !(model.moe && model.moe->grouped_gemm && model.mlp_bias);
}

/// False for a bias in front of another activation than GELU by tanh, for which alone Megatron-LM fuses both
/// (megatron/core/fusions/fused_bias_gelu.py; transformer_config.py, bias_activation_fusion).
[[nodiscard]] inline bool may_fuse_activation(const ModelSpec& model) {
    return model.activation == Activation::gelu || model.gated_mlp || !model.mlp_bias;
}

}  // namespace mgplan
