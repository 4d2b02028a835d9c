#include "model/ops/kernel_table.hpp"

#include <array>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

using Presence = std::pair<std::string_view, bool>;

/// Those of layers, of embedding and loss, and of flat arrays.
auto dense_kernels(const KernelTable& table) {
    return std::to_array<Presence>({
        {"matmul", table.matmul != nullptr},
        {"largest", table.largest != nullptr},
        {"quantise", table.quantise != nullptr},
        {"largest_of_arrays", table.largest_of_arrays != nullptr},
        {"quantise_arrays", table.quantise_arrays != nullptr},
        {"quantise_blocks", table.quantise_blocks != nullptr},
        {"transpose_bytes", table.transpose_bytes != nullptr},
        {"follow_largest", table.follow_largest != nullptr},
        {"grouped_matmul", table.grouped_matmul != nullptr},
        {"grouped_matmul_accumulate", table.grouped_matmul_accumulate != nullptr},
        {"norm", table.norm != nullptr},
        {"norm_backward", table.norm_backward != nullptr},
        {"activation", table.activation != nullptr},
        {"activation_backward", table.activation_backward != nullptr},
        {"xielu", table.xielu != nullptr},
        {"xielu_backward", table.xielu_backward != nullptr},
        {"gate_rows", table.gate_rows != nullptr},
        {"gate_rows_backward", table.gate_rows_backward != nullptr},
        {"add_bias", table.add_bias != nullptr},
        {"bias_gradient", table.bias_gradient != nullptr},
        {"copy", table.copy != nullptr},
        {"add", table.add != nullptr},
        {"scale", table.scale != nullptr},
        {"soft_cap", table.soft_cap != nullptr},
        {"clip", table.clip != nullptr},
        {"fill", table.fill != nullptr},
        {"fill_normal", table.fill_normal != nullptr},
        {"sums_of_squares", table.sums_of_squares != nullptr},
        {"add_in_order", table.add_in_order != nullptr},
        {"clip_factor", table.clip_factor != nullptr},
        {"copy_columns", table.copy_columns != nullptr},
        {"scale_columns", table.scale_columns != nullptr},
        {"swap_leading", table.swap_leading != nullptr},
        {"join_latent_keys", table.join_latent_keys != nullptr},
        {"split_latent_keys", table.split_latent_keys != nullptr},
        {"embedding", table.embedding != nullptr},
        {"embedding_backward", table.embedding_backward != nullptr},
        {"row_maximum", table.row_maximum != nullptr},
        {"softmax_sums", table.softmax_sums != nullptr},
        {"token_losses", table.token_losses != nullptr},
        {"sum_of_losses", table.sum_of_losses != nullptr},
        {"cross_entropy_backward", table.cross_entropy_backward != nullptr},
        {"attention", table.attention != nullptr},
        {"attention_backward", table.attention_backward != nullptr},
        {"merge_attention", table.merge_attention != nullptr},
        {"add_sinks", table.add_sinks != nullptr},
        {"sinks_gradient", table.sinks_gradient != nullptr},
        {"rotary", table.rotary != nullptr},
        {"dropout", table.dropout != nullptr},
    });
}

/// The other kernels: of optimizers, MoE layers, and layers with a state.
auto other_kernels(const KernelTable& table) {
    return std::to_array<Presence>({
        {"adam_step", table.adam_step != nullptr},
        {"momentum_step", table.momentum_step != nullptr},
        {"route", table.route != nullptr},
        {"route_backward", table.route_backward != nullptr},
        {"keep_within_capacity", table.keep_within_capacity != nullptr},
        {"auxiliary_loss", table.auxiliary_loss != nullptr},
        {"auxiliary_loss_backward", table.auxiliary_loss_backward != nullptr},
        {"count_by_expert", table.count_by_expert != nullptr},
        {"sort_by_expert", table.sort_by_expert != nullptr},
        {"permute_rows", table.permute_rows != nullptr},
        {"unpermute_rows", table.unpermute_rows != nullptr},
        {"permute_probabilities", table.permute_probabilities != nullptr},
        {"unpermute_probabilities", table.unpermute_probabilities != nullptr},
        {"reorder_blocks", table.reorder_blocks != nullptr},
        {"causal_conv", table.causal_conv != nullptr},
        {"causal_conv_backward", table.causal_conv_backward != nullptr},
        {"short_conv", table.short_conv != nullptr},
        {"short_conv_backward", table.short_conv_backward != nullptr},
        {"gated_norm", table.gated_norm != nullptr},
        {"gated_norm_backward", table.gated_norm_backward != nullptr},
        {"state_space_scan", table.state_space_scan != nullptr},
        {"state_space_scan_backward", table.state_space_scan_backward != nullptr},
        {"delta_rule", table.delta_rule != nullptr},
        {"delta_rule_backward", table.delta_rule_backward != nullptr},
    });
}

}  // namespace

std::string_view missing_kernel(const KernelTable& table) {
    const auto dense = dense_kernels(table);
    const auto others = other_kernels(table);
    constexpr std::size_t kKernels = std::tuple_size_v<decltype(dense)> + std::tuple_size_v<decltype(others)>;
    static_assert(kKernels * sizeof(void (*)()) == sizeof(KernelTable), "every kernel is in a list");
    for (const std::span<const Presence> list : {std::span<const Presence>(dense), std::span<const Presence>(others)}) {
        for (const auto& [name, present] : list) {
            if (!present) return name;
        }
    }
    return {};
}

const KernelTable& with_every_kernel(const KernelTable& table) {
    const std::string_view missing = missing_kernel(table);
    MGPLAN_ASSERT(missing.empty(), fmt::format("the kernel table of a device has every kernel; {} is missing", missing));
    return table;
}

}  // namespace mgplan::model
