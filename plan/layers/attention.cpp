#include "plan/layers/attention.hpp"

namespace mgplan {

void list_tensors(const Attention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), queries = attention.heads * attention.head_dim,
                       keys = attention.kv_heads * attention.head_dim;
    const std::int64_t packed = (attention.output_gate ? 2 : 1) * queries + 2 * keys;
    if (attention.scores.sinks) list.sharded("self_attention.core_attention.softmax_offset", {attention.heads}, 0);
    list.sharded("self_attention.linear_proj.weight", {hidden, queries}, 1).for_gemm();
    if (attention.output_bias) list.replicated("self_attention.linear_proj.bias", {hidden});
    list.norm_before_mixer("self_attention.linear_qkv.layer_norm_");
    list.sharded("self_attention.linear_qkv.weight", {packed, hidden}, 0).for_gemm();
    if (attention.qkv_bias) list.sharded("self_attention.linear_qkv.bias", {packed}, 0);
    switch (attention.qk_norm) {
        case QkNorm::none:
            break;
        case QkNorm::shared_by_heads:  // a rank sees its own heads
            list.norm("self_attention.q_layernorm.", attention.head_dim, PartialGradient::always);
            list.norm("self_attention.k_layernorm.", attention.head_dim, PartialGradient::always);
            break;
        case QkNorm::per_head:  // without biases, whatever the layer's norms have (modeling_stablelm.py, modeling_cohere.py)
            list.sharded("self_attention.q_layernorm.weight", {queries}, 0);
            list.sharded("self_attention.k_layernorm.weight", {keys}, 0);
            break;
        case QkNorm::full_width:
            list.sharded_norm("self_attention.q_layernorm.", queries);
            list.sharded_norm("self_attention.k_layernorm.", keys);
            break;
    }
}

}  // namespace mgplan
