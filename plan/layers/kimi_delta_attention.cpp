#include "plan/layers/kimi_delta_attention.hpp"

#include <fmt/core.h>

namespace mgplan {

/// modeling_kimi_linear.py, KimiLinearDeltaAttention: blocks q, k, v, beta of the projection, q, k, v of the convolution, and what leads
/// from the small projections to the heads sharded over tp; these themselves and the norm of a head's values are whole on every rank.
void list_tensors(const KimiDeltaAttention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), heads = attention.heads, rank = attention.head_dim, width = heads * rank;
    list.sharded("self_attention.dt_bias", {width}, 0).starts(InitialValues::ones);
    list.sharded("self_attention.A_log", {heads}, 0).starts(InitialValues::log_of_decay);
    list.norm_before_mixer("self_attention.in_proj.layer_norm_");
    list.sharded_blocks("self_attention.in_proj.weight", {width, width, width, heads}, {hidden}).for_gemm();
    list.sharded_blocks("self_attention.conv1d.weight", {width, width, width}, {1, attention.conv_taps})
        .starts_by_taps(attention.conv_taps);
    for (const std::string_view value : {"decay", "gate"}) {
        list.replicated(fmt::format("self_attention.{}_down.weight", value), {rank, hidden});
        list.sharded(fmt::format("self_attention.{}_up.weight", value), {width, rank}, 0);
    }
    list.replicated("self_attention.out_norm.weight", {rank}, PartialGradient::always);
    list.sharded("self_attention.out_proj.weight", {hidden, width}, 1).for_gemm();
}

}  // namespace mgplan
