#include "plan/layers/latent_attention.hpp"

namespace mgplan {
namespace {

/// Whole on every rank, each of which sees all rows (experimental_attention_variant/dsa.py, DSAIndexer).
void list_indexer(const LatentAttention& attention, TensorLister list) {
    const std::int64_t width = attention.index_head_dim;
    list.replicated("linear_wq_b.weight", {attention.index_heads * width, attention.q_lora_rank}, PartialGradient::never).for_gemm();
    list.replicated("linear_wk.weight", {width, list.hidden()}, PartialGradient::never).for_gemm();
    list.replicated("k_norm.weight", {width}, PartialGradient::never);
    list.replicated("k_norm.bias", {width}, PartialGradient::never);
    list.replicated("linear_weights_proj.weight", {attention.index_heads, list.hidden()}, PartialGradient::never).for_gemm();
}

}  // namespace

void list_tensors(const LatentAttention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), heads = attention.heads, q_rank = attention.q_lora_rank, kv_rank = attention.kv_lora_rank;
    const std::int64_t queries = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim);
    list.norm_before_mixer("input_layernorm.");
    if (attention.scores.sinks) list.sharded("self_attention.core_attention.softmax_offset", {heads}, 0);
    if (attention.index_heads > 0) list_indexer(attention, list.within("self_attention.core_attention.indexer."));
    list.sharded("self_attention.linear_proj.weight", {hidden, heads * attention.v_head_dim}, 1).for_gemm();
    if (attention.output_bias) list.replicated("self_attention.linear_proj.bias", {hidden});
    if (q_rank > 0) {
        list.replicated("self_attention.linear_q_down_proj.weight", {q_rank, hidden}).for_gemm();
        if (attention.latent_norms) list.norm("self_attention.linear_q_up_proj.layer_norm_", q_rank);
        list.sharded("self_attention.linear_q_up_proj.weight", {queries, q_rank}, 0).for_gemm();
    } else {
        if (attention.query_norm) list.norm("self_attention.linear_q_proj.layer_norm_", hidden);
        list.sharded("self_attention.linear_q_proj.weight", {queries, hidden}, 0).for_gemm();
    }
    list.replicated("self_attention.linear_kv_down_proj.weight", {kv_rank + attention.qk_rope_head_dim, hidden}).for_gemm();
    if (attention.latent_norms) list.norm("self_attention.linear_kv_up_proj.layer_norm_", kv_rank);
    list.sharded("self_attention.linear_kv_up_proj.weight", {heads * (attention.qk_nope_head_dim + attention.v_head_dim), kv_rank}, 0)
        .for_gemm();
}

}  // namespace mgplan
