#include "plan/layers/mlp.hpp"

#include <cmath>

namespace mgplan {

void list_tensors(const Mlp& mlp, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), first = mlp.gated ? 2 * mlp.width : mlp.width;
    const int blocks = mlp.gated ? 2 : 1;
    list.norm_before_feed_forward("mlp.linear_fc1.layer_norm_");
    list.sharded("mlp.linear_fc1.weight", {first, hidden}, 0, blocks).for_gemm();
    if (mlp.bias) list.sharded("mlp.linear_fc1.bias", {first}, 0, blocks);
    list.sharded("mlp.linear_fc2.weight", {hidden, mlp.width}, 1).for_gemm();
    if (mlp.bias) list.replicated("mlp.linear_fc2.bias", {hidden});
    if (mlp.activation != Activation::xielu) return;
    // Softplus of alpha_p is 0.8; that of alpha_n is 0.3, added to one half (activations.py, XIELUActivation). A rank sees its own columns.
    list.replicated("mlp.activation_func.alpha_p", {1}, PartialGradient::always).starts(InitialValues::constant, std::log(std::expm1(0.8)));
    list.replicated("mlp.activation_func.alpha_n", {1}, PartialGradient::always).starts(InitialValues::constant, std::log(std::expm1(0.3)));
}

}  // namespace mgplan
