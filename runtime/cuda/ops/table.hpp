#pragma once
// Every kernel of a GPU, for one launcher.

#include "runtime/cuda/ops/activation.hpp"
#include "runtime/cuda/ops/adam.hpp"
#include "runtime/cuda/ops/attention.hpp"
#include "runtime/cuda/ops/bias.hpp"
#include "runtime/cuda/ops/causal_conv.hpp"
#include "runtime/cuda/ops/clip_factor.hpp"
#include "runtime/cuda/ops/cross_entropy.hpp"
#include "runtime/cuda/ops/delta_rule.hpp"
#include "runtime/cuda/ops/dropout.hpp"
#include "runtime/cuda/ops/elementwise.hpp"
#include "runtime/cuda/ops/embedding.hpp"
#include "runtime/cuda/ops/fp8.hpp"
#include "runtime/cuda/ops/fp8_blocks.hpp"
#include "runtime/cuda/ops/gate.hpp"
#include "runtime/cuda/ops/gated_norm.hpp"
#include "runtime/cuda/ops/grouped_matmul.hpp"
#include "runtime/cuda/ops/latent_keys.hpp"
#include "runtime/cuda/ops/matmul.hpp"
#include "runtime/cuda/ops/momentum.hpp"
#include "runtime/cuda/ops/norm.hpp"
#include "runtime/cuda/ops/normal_values.hpp"
#include "runtime/cuda/ops/rotary.hpp"
#include "runtime/cuda/ops/router.hpp"
#include "runtime/cuda/ops/short_conv.hpp"
#include "runtime/cuda/ops/sinks.hpp"
#include "runtime/cuda/ops/state_space.hpp"
#include "runtime/cuda/ops/xielu.hpp"

namespace mgplan::runtime::cuda {

/// Fills in the kernels of the model layers; the rest is left as it is.
template <class Launcher>
constexpr void fill_dense(model::KernelTable& table) {
    table.matmul = matmul<Launcher>;
    table.largest = largest<Launcher>;
    table.quantise = quantise<Launcher>;
    table.largest_of_arrays = largest_of_arrays<Launcher>;
    table.quantise_arrays = quantise_arrays<Launcher>;
    table.quantise_blocks = quantise_blocks<Launcher>;
    table.transpose_bytes = transpose_bytes<Launcher>;
    table.follow_largest = follow_largest<Launcher>;
    table.grouped_matmul = grouped_matmul<Launcher>;
    table.grouped_matmul_accumulate = grouped_matmul_accumulate<Launcher>;
    table.norm = norm<Launcher>;
    table.norm_backward = norm_backward<Launcher>;
    table.activation = activation<Launcher>;
    table.activation_backward = activation_backward<Launcher>;
    table.xielu = xielu<Launcher>;
    table.xielu_backward = xielu_backward<Launcher>;
    table.gate_rows = gate_rows<Launcher>;
    table.gate_rows_backward = gate_rows_backward<Launcher>;
    table.add_bias = add_bias<Launcher>;
    table.bias_gradient = bias_gradient<Launcher>;
    table.attention = attention<Launcher>;
    table.attention_backward = attention_backward<Launcher>;
    table.merge_attention = merge_attention<Launcher>;
    table.add_sinks = add_sinks<Launcher>;
    table.sinks_gradient = sinks_gradient<Launcher>;
    table.rotary = rotary<Launcher>;
    table.dropout = dropout<Launcher>;
}

template <class Launcher>
constexpr void fill_flat(model::KernelTable& table) {
    table.copy = copy<Launcher>;
    table.add = add<Launcher>;
    table.scale = scale<Launcher>;
    table.soft_cap = soft_cap<Launcher>;
    table.clip = clip<Launcher>;
    table.fill = fill<Launcher>;
    table.fill_normal = fill_normal<Launcher>;
    table.sums_of_squares = sums_of_squares<Launcher>;
    table.add_in_order = add_in_order<Launcher>;
    table.clip_factor = clip_factor<Launcher>;
    table.copy_columns = copy_columns<Launcher>;
    table.scale_columns = scale_columns<Launcher>;
    table.swap_leading = swap_leading<Launcher>;
    table.join_latent_keys = join_latent_keys<Launcher>;
    table.split_latent_keys = split_latent_keys<Launcher>;
    table.embedding = embedding<Launcher>;
    table.embedding_backward = embedding_backward<Launcher>;
    table.row_maximum = row_maximum<Launcher>;
    table.softmax_sums = softmax_sums<Launcher>;
    table.token_losses = token_losses<Launcher>;
    table.sum_of_losses = sum_of_losses<Launcher>;
    table.cross_entropy_backward = cross_entropy_backward<Launcher>;
    table.adam_step = adam_step<Launcher>;
    table.momentum_step = momentum_step<Launcher>;
}

/// Those of state-space and delta-rule layers.
template <class Launcher>
constexpr void fill_recurrent(model::KernelTable& table) {
    table.causal_conv = causal_conv<Launcher>;
    table.causal_conv_backward = causal_conv_backward<Launcher>;
    table.short_conv = short_conv<Launcher>;
    table.short_conv_backward = short_conv_backward<Launcher>;
    table.gated_norm = gated_norm<Launcher>;
    table.gated_norm_backward = gated_norm_backward<Launcher>;
    table.state_space_scan = state_space_scan<Launcher>;
    table.state_space_scan_backward = state_space_scan_backward<Launcher>;
    table.delta_rule = delta_rule<Launcher>;
    table.delta_rule_backward = delta_rule_backward<Launcher>;
}

template <class Launcher>
constexpr void fill_router(model::KernelTable& table) {
    table.route = route<Launcher>;
    table.route_backward = route_backward<Launcher>;
    table.keep_within_capacity = keep_within_capacity<Launcher>;
    table.auxiliary_loss = auxiliary_loss<Launcher>;
    table.auxiliary_loss_backward = auxiliary_loss_backward<Launcher>;
    table.count_by_expert = count_by_expert<Launcher>;
    table.sort_by_expert = sort_by_expert<Launcher>;
    table.permute_rows = permute_rows<Launcher>;
    table.unpermute_rows = unpermute_rows<Launcher>;
    table.permute_probabilities = permute_probabilities<Launcher>;
    table.unpermute_probabilities = unpermute_probabilities<Launcher>;
    table.reorder_blocks = reorder_blocks<Launcher>;
}

}  // namespace mgplan::runtime::cuda
