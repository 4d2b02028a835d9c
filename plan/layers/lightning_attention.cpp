#include "plan/layers/lightning_attention.hpp"

namespace mgplan {

/// modeling_minimax.py, MiniMaxLightningAttention: blocks v, k, q and the output's gate of the projection, and the norm over all heads,
/// each sharded over tp.
void list_tensors(const LightningAttention& attention, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), width = attention.heads * attention.head_dim;
    list.norm_before_mixer("self_attention.in_proj.layer_norm_");
    list.sharded_blocks("self_attention.in_proj.weight", {width, width, width, width}, {hidden}).for_gemm();
    list.sharded_norm("self_attention.out_norm.", width);
    list.sharded("self_attention.out_proj.weight", {hidden, width}, 1).for_gemm();
}

}  // namespace mgplan
