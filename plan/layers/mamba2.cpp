#include "plan/layers/mamba2.hpp"

#include <fmt/core.h>

namespace mgplan {
namespace {

/// ssm/mamba_mixer.py: blocks z, x, B, C, dt of the projection, x, B, C of the convolution, each sharded over tp. `normed`: with the
/// layer's norm in front.
void list_state_space(const Mamba2& mamba2, TensorLister& list, bool normed) {
    const std::int64_t hidden = list.hidden(), inner = mamba2.inner_width, heads = mamba2.heads, maps = mamba2.groups * mamba2.state_size;
    list.sharded("mixer.dt_bias", {heads}, 0).starts(InitialValues::step_bias);
    list.sharded("mixer.A_log", {heads}, 0).starts(InitialValues::log_of_decay);
    list.sharded("mixer.D", {heads}, 0).starts(InitialValues::ones);
    list.sharded_blocks("mixer.conv1d_weight", {inner, maps, maps}, {1, mamba2.conv_taps}).starts_by_taps(mamba2.conv_taps);
    list.sharded_blocks("mixer.conv1d_bias", {inner, maps, maps}, {}).starts_by_taps(mamba2.conv_taps);
    if (normed) list.norm_before_mixer("mixer.in_proj.layer_norm_");
    list.sharded_blocks("mixer.in_proj.weight", {inner, inner, maps, maps, heads}, {hidden}).for_gemm();
    if (mamba2.norm) list.sharded("mixer.norm.weight", {inner}, 0);
    list.sharded("mixer.out_proj.weight", {hidden, inner}, 1).for_gemm();
}

}  // namespace

void list_tensors(const Mamba2& mamba2, TensorLister& list) {
    list_state_space(mamba2, list, true);
}

void list_tensors(const AttentionBesideMamba2& mixer, TensorLister& list) {
    list_tensors(mixer.attention, list);  // with the norm of both
    list_state_space(mixer.mamba2, list, false);
}

/// modeling_zamba2.py, Zamba2HybridLayer: the map is whole on every rank; adapters are whole down and sharded over tp up, as is what they
/// are added to.
void list_tensors(const SharedBlockMamba2& mixer, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), rank = mixer.adapter_rank, joined = 2 * hidden;
    list.replicated("shared_map.weight", {hidden, hidden});
    if (rank > 0) {
        list.replicated("adapter_down.weight", {rank, hidden});
        list.sharded("adapter_up.weight", {2 * mixer.block.ffn, rank}, 0, 2);
    }
    for (const std::string_view projection : {"q", "k", "v"}) {
        if (rank == 0 || !mixer.adapts_attention) continue;
        list.replicated(fmt::format("{}_adapter_down.weight", projection), {rank, joined});
        list.sharded(fmt::format("{}_adapter_up.weight", projection), {joined, rank}, 0);
    }
    list_tensors(mixer.mamba2, list);
}

void list_tensors(const SharedBlock& block, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), queries = block.query_heads * block.head_dim, keys = block.kv_heads * block.head_dim;
    TensorLister module = list.within(fmt::format("shared_blocks.{}.", block.number));
    module.norm("input_layernorm.", 2 * hidden);
    module.sharded("linear_proj.weight", {hidden, queries}, 1).for_gemm();
    module.sharded("linear_qkv.weight", {queries + 2 * keys, 2 * hidden}, 0).for_gemm();
    module.norm("pre_mlp_layernorm.", hidden);
    module.sharded("linear_fc1.weight", {2 * block.ffn, hidden}, 0, 2).for_gemm();
    module.sharded("linear_fc2.weight", {hidden, block.ffn}, 1).for_gemm();
}

}  // namespace mgplan
