#include "runtime/cpu/ops/kernels.hpp"

namespace mgplan::runtime::cpu {

const model::KernelTable& kernels() {
    static constexpr model::KernelTable kTable{
        .matmul = matmul,
        .grouped_matmul = grouped_matmul,
        .grouped_matmul_accumulate = grouped_matmul_accumulate,
        .norm = norm,
        .norm_backward = norm_backward,
        .activation = activation,
        .activation_backward = activation_backward,
        .gate_rows = gate_rows,
        .gate_rows_backward = gate_rows_backward,
        .add_bias = add_bias,
        .bias_gradient = bias_gradient,
        .copy = copy,
        .add = add,
        .scale = scale,
        .fill = fill,
        .sums_of_squares = sums_of_squares,
        .has_non_finite = has_non_finite,
        .copy_columns = copy_columns,
        .swap_leading = swap_leading,
        .embedding = embedding,
        .embedding_backward = embedding_backward,
        .row_maximum = row_maximum,
        .softmax_sums = softmax_sums,
        .token_losses = token_losses,
        .sum_of_losses = sum_of_losses,
        .cross_entropy_backward = cross_entropy_backward,
        .attention = attention,
        .attention_backward = attention_backward,
        .merge_attention = merge_attention,
        .add_sinks = add_sinks,
        .sinks_gradient = sinks_gradient,
        .rotary = rotary,
        .dropout = dropout,
        .adam_step = adam_step,
        .route = route,
        .route_backward = route_backward,
        .keep_within_capacity = keep_within_capacity,
        .auxiliary_loss = auxiliary_loss,
        .auxiliary_loss_backward = auxiliary_loss_backward,
        .count_by_expert = count_by_expert,
        .sort_by_expert = sort_by_expert,
        .permute_rows = permute_rows,
        .unpermute_rows = unpermute_rows,
        .permute_probabilities = permute_probabilities,
        .unpermute_probabilities = unpermute_probabilities,
        .reorder_blocks = reorder_blocks,
    };
    return kTable;
}

}  // namespace mgplan::runtime::cpu
