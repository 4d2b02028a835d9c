#include "plan/layers/compressed_attention.hpp"

namespace mgplan {
namespace {

/// Makes one key of `width` values of a window of tokens.
void list_compressor(TensorLister list, std::int64_t width, std::int64_t windows, std::int64_t rate, PartialGradient partial) {
    const std::int64_t columns = windows * width;
    list.replicated("ape", {rate, columns}, partial);
    list.replicated("wkv.weight", {columns, list.hidden()}, partial);
    list.replicated("wgate.weight", {columns, list.hidden()}, partial);
    list.replicated("norm.weight", {width}, partial);
}

}  // namespace

/// Whole on every rank (Megatron-LM's branch dev at d48bd6be, transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py,
/// csa.py). Transformer Engine multiplies those whose names begin with "linear_".
void list_tensors(const CompressedAttention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), width = attention.head_dim, rank = attention.q_lora_rank, rate = attention.compression_rate;
    const std::int64_t queries = attention.heads * width, groups = attention.output_groups, outputs = groups * attention.output_group_rank;
    list.norm_before_mixer("input_layernorm.");
    TensorLister module = list.within("self_attention.");
    module.replicated("o_group_proj", {groups, attention.output_group_rank, queries / groups});
    TensorLister core = module.within("core_attention.");
    core.replicated("attn_sink", {attention.heads});
    if (rate > 0) list_compressor(core.within("compressor."), width, attention.overlaps ? 2 : 1, rate, PartialGradient::sequence_parallel);
    if (attention.index_heads > 0) {
        TensorLister indexer = core.within("indexer.");
        indexer.replicated("linear_wq_b.weight", {attention.index_heads * attention.index_head_dim, rank}, PartialGradient::never)
            .for_gemm();
        indexer.replicated("weights_proj.weight", {attention.index_heads, hidden}, PartialGradient::never);
        list_compressor(indexer.within("compressor."), attention.index_head_dim, 2, rate, PartialGradient::never);
    }
    module.replicated("linear_proj.weight", {hidden, outputs}).for_gemm();
    module.replicated("linear_q_down_proj.weight", {rank, hidden}).for_gemm();
    module.replicated("linear_q_up_proj.weight", {queries, rank}).for_gemm();
    module.replicated("linear_kv_proj.weight", {width, hidden}).for_gemm();
    module.replicated("kv_layernorm.weight", {width});
    module.replicated("q_layernorm.weight", {rank});
}

}  // namespace mgplan
