#pragma once
// Fusions of Megatron-LM's element-wise kernels that a model rules out, whatever the switches say.

#include "plan/model/model_spec.hpp"

namespace mgplan {

/// False for grouped experts with biases (megatron/core/transformer/moe/experts.py): bias, dropout and addition are kernels of their own.
[[nodiscard]] inline bool may_fuse_dropout(const ModelSpec& model) {
    return !(model.moe && model.moe->grouped_gemm && model.mlp_bias);
}

/// False for GELU by erf with a bias: Megatron-LM's fused GELU is the form by tanh (megatron/core/fusions/fused_bias_gelu.py).
[[nodiscard]] inline bool may_fuse_activation(const ModelSpec& model) {
    return model.activation != Activation::gelu_exact || model.gated_mlp || !model.mlp_bias;
}

}  // namespace mgplan
