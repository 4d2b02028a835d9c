#include "plan/layers/mamba.hpp"

namespace mgplan {

/// modeling_mamba.py and modeling_jamba.py: channels x and z of the projection, those of the convolution, of the scan and of what steps
/// come from, sharded over tp; norms of steps, B and C whole on every rank, which sees gradients from its own channels.
void list_tensors(const Mamba& mamba, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), inner = mamba.inner_width, state = mamba.state_size, rank = mamba.dt_rank;
    list.sharded("mixer.dt_bias", {inner}, 0).starts(InitialValues::step_bias);
    list.sharded("mixer.A_log", {inner, state}, 0).starts(InitialValues::log_of_decay);
    list.sharded("mixer.D", {inner}, 0).starts(InitialValues::ones);
    list.sharded("mixer.conv1d_weight", {inner, 1, mamba.conv_taps}, 0).starts_by_taps(mamba.conv_taps);
    if (mamba.conv_bias) list.sharded("mixer.conv1d_bias", {inner}, 0).starts_by_taps(mamba.conv_taps);
    list.norm_before_mixer("mixer.in_proj.layer_norm_");
    list.sharded_blocks("mixer.in_proj.weight", {inner, inner}, {hidden}).for_gemm();
    list.sharded("mixer.x_proj.weight", {rank + 2 * state, inner}, 1);
    list.sharded("mixer.dt_proj.weight", {inner, rank}, 0);
    if (mamba.inner_norms == InnerNorms::weighted) {
        list.replicated("mixer.dt_norm.weight", {rank}, PartialGradient::always);
        list.replicated("mixer.B_norm.weight", {state}, PartialGradient::always);
        list.replicated("mixer.C_norm.weight", {state}, PartialGradient::always);
    }
    list.sharded("mixer.out_proj.weight", {hidden, inner}, 1).for_gemm();
}

}  // namespace mgplan
