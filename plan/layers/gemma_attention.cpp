#include "plan/layers/gemma_attention.hpp"

namespace mgplan {
namespace {

/// A layer's own table of words sharded by words, the rest of its inputs whole.
void list_layer_inputs(const GemmaAttention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), width = attention.layer_input_width;
    list.sharded("layer_input.words.weight", {attention.layer_input_rows, width}, 0);
    list.replicated("layer_input.projection.weight", {width, hidden});
    list.replicated("layer_input.gate.weight", {width, hidden});
    list.replicated("layer_input.back.weight", {hidden, width});
    list.norm("layer_input.norm.", hidden);
}

/// modeling_gemma4.py, Gemma4TextAttention: queries, keys and values sharded by heads, their norms and a bypass whole.
void list_heads(const GemmaAttention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), width = attention.head_dim, rank = attention.bypass_rank;
    const std::int64_t queries = attention.heads * width, keys = attention.kv_heads * width;
    list.sharded("self_attention.linear_proj.weight", {hidden, queries}, 1).for_gemm();
    if (attention.bias) list.replicated("self_attention.linear_proj.bias", {hidden});
    list.norm_before_mixer("self_attention.linear_qkv.layer_norm_");
    std::vector<std::int64_t> blocks{queries};
    if (!attention.shares_kv) blocks.resize(attention.key_is_value ? 2 : 3, keys);
    list.sharded_blocks("self_attention.linear_qkv.weight", blocks, {hidden}).for_gemm();
    if (attention.bias) list.sharded_blocks("self_attention.linear_qkv.bias", blocks, {});
    list.replicated("self_attention.q_layernorm.weight", {width}, PartialGradient::always);
    if (!attention.shares_kv) list.replicated("self_attention.k_layernorm.weight", {width}, PartialGradient::always);
    if (rank == 0) return;
    list.replicated("bypass.there.weight", {rank, hidden});
    list.replicated("bypass.back.weight", {hidden, rank});
    list.norm("bypass.norm.", hidden);
}

}  // namespace

void list_tensors(const GemmaAttention& attention, TensorLister& list) {
    list_heads(attention, list);
    if (attention.layer_input_width > 0) list_layer_inputs(attention, list);
}

/// The tensors that weigh, predict and correct streams are whole on every rank.
void list_tensors(const Gemma3nLayer& layer, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), streams = layer.streams;
    list_heads(layer.attention, list);
    TensorLister mixer = list.within("mixer.");
    list_tensors(layer.mlp, mixer);
    mixer.norm("post_mlp_layernorm.", hidden);
    list_layer_inputs(layer.attention, mixer);
    TensorLister mixing = mixer.within("streams.");
    mixing.norm("router_norm.", hidden);
    mixing.replicated("router.weight", {streams, hidden});
    mixing.replicated("prediction.weight", {streams * streams, streams});
    mixing.replicated("correction.weight", {streams, streams});
    mixing.replicated("output_scale", {hidden});
}

}  // namespace mgplan
