#include "plan/layers/gated_delta_net.hpp"

namespace mgplan {

/// Megatron-core ssm/gated_delta_net/: blocks q, k, v, z, beta, alpha of the projection and q, k, v of the convolution, each sharded over
/// tp; the norm of a head's values is whole on every rank, which sees its own heads.
void list_tensors(const GatedDeltaNet& net, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), keys = net.key_heads * net.key_dim, heads = net.value_heads, values = heads * net.value_dim;
    list.sharded("self_attention.dt_bias", {heads}, 0).starts(InitialValues::ones);
    list.sharded("self_attention.A_log", {heads}, 0).starts(InitialValues::log_of_decay);
    list.norm_before_mixer("self_attention.in_proj.layer_norm_");
    list.sharded_blocks("self_attention.in_proj.weight", {keys, keys, values, values, heads, heads}, {hidden}).for_gemm();
    list.sharded_blocks("self_attention.conv1d.weight", {keys, keys, values}, {1, net.conv_taps}).starts_by_taps(net.conv_taps);
    list.replicated("self_attention.out_norm.weight", {net.value_dim}, PartialGradient::always);
    list.sharded("self_attention.out_proj.weight", {hidden, values}, 1).for_gemm();
}

}  // namespace mgplan
