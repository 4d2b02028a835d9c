#include "model/layers/mlp.hpp"

#include "model/layers/offload.hpp"
#include "model/layers/residual.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gate_cut.hpp"
#include "model/ops/xielu.hpp"

namespace mgplan::model {
namespace {

/// Returns the name of the MLP's norm, which is the attention's if parallel halves share it.
std::string norm_of_mlp(const ModelSpec& model, const std::string& prefix, std::string_view end) {
    const bool shared = model.order == LayerOrder::parallel_shared_norm;
    return prefix + (shared ? "self_attention.linear_qkv.layer_norm_" : "mlp.linear_fc1.layer_norm_") + std::string(end);
}

/// Returns a cast with one scale without its turned codes, which are made from those in the order of rows; else x itself.
LinearInput what_both_passes_need(const LinearInput& x) {
    const bool one_scale = x.lie == ColumnCodes::turned && x.forward.defined() && !x.forward.scales.defined();
    return one_scale ? LinearInput(Fp8Tensor{x.forward.codes, x.scale}) : x;
}

}  // namespace

Mlp::Mlp(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
         EnumSet<RecomputeModule> recompute, bool cuts_gate)
    : model_(model),
      layer_(layer),
      recompute_(recompute),
      cuts_gate_(cuts_gate),
      norm_weight_(weights.find(norm_of_mlp(model, prefix, "weight"))),
      norm_bias_(weights.find(norm_of_mlp(model, prefix, "bias"))),
      alpha_positive_(weights.find(prefix + "mlp.activation_func.alpha_p")),
      alpha_negative_(weights.find(prefix + "mlp.activation_func.alpha_n")),
      first_(weights.at(prefix + "mlp.linear_fc1.weight"), weights.find(prefix + "mlp.linear_fc1.bias")),
      second_(weights.at(prefix + "mlp.linear_fc2.weight"), weights.find(prefix + "mlp.linear_fc2.bias")),
      behind_(model, weights.find(prefix + "post_mlp_layernorm.weight"), weights.find(prefix + "post_mlp_layernorm.bias")) {}

void Mlp::add_copied(std::vector<CopiedWeight>& into) const {
    first_.add_copied(into);
    second_.add_copied(into);
}

void Mlp::scale_gate(const RankContext& context, const Tensor& before) const {
    const double factor = model_.branch_multipliers.mlp_gate;
    if (factor != 1) scale_columns(before, 0, model_.ffn / context.tp->size(), factor);
}

void Mlp::cut(const RankContext& context, MlpSaved& saved) const {
    saved.uncut = columns(saved.before, 0, saved.before.shape()[1] / 2);
    saved.gate_sums = gate_sums(saved.before);
    if (context.tp->size() > 1) context.tp->all_reduce(saved.gate_sums, Reduction::sum);
    cut_gate(saved.before, saved.gate_sums);
}

void Mlp::cut_backward(const RankContext& context, const Tensor& d_before, const MlpSaved& saved) const {
    const Tensor d_sums = gate_sums_backward(d_before, saved.uncut, saved.gate_sums);
    if (context.tp->size() > 1) context.tp->all_reduce(d_sums, Reduction::sum);
    cut_gate_backward(d_before, saved.uncut, saved.gate_sums, d_sums);
}

LinearInput Mlp::normalised(const RankContext& context, const Tensor& x, NormStatistics& statistics) const {
    if (!model_.pre_norms) return first_.input(context, x);
    return first_.input(context, norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, statistics));
}

void Mlp::activate(const RankContext& context, MlpSaved& saved) const {
    saved.before = first_.forward(context, saved.normed);
    scale_gate(context, saved.before);
    if (cuts_gate_) cut(context, saved);
    const Tensor after = alpha_positive_.defined() ? xielu(saved.before, alpha_positive_.value, alpha_negative_.value)
                                                   : activation(saved.before, model_.activation, model_.gated_mlp);
    // In front of the second product, whose gradients are then those of the scaled one.
    if (model_.branch_multipliers.mlp_output != 1) scale(after, model_.branch_multipliers.mlp_output);
    saved.after = second_.input(after);
}

Tensor Mlp::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& residual,
                    MlpSaved& saved) const {
    saved.x = x;
    saved.normed = normalised(context, x, saved.statistics);
    activate(context, saved);
    const Tensor y = second_.forward(context, saved.after);
    saved.after.end_forward();
    if (recompute_.contains(RecomputeModule::mlp)) {
        saved.before = saved.uncut = Tensor();
        saved.after = {};
        saved.normed = what_both_passes_need(saved.normed);
    } else {
        saved.normed.end_forward();
    }
    const Tensor path = residual_path(model_, residual, saved.normed.x);
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = {};
    Tensor sum = add_residual(context, microbatch, model_, layer_, ResidualPlace::mlp, behind_.forward(context, y, saved.behind), path);
    inputs_to_host(context, {{OffloadModule::mlp_norm, saved.x}});
    return sum;
}

Tensor Mlp::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MlpSaved& saved) const {
    inputs_from_host(context, {{OffloadModule::mlp_norm, saved.x}});
    if (!saved.normed.defined()) {
        const Range range(*context.device, "recompute");
        NormStatistics again;
        saved.normed = normalised(context, saved.x, again);
    }
    if (!saved.before.defined()) {
        const Range range(*context.device, "recompute");
        activate(context, saved);
    }
    saved.normed.end_forward();
    saved.after.end_forward();
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_after = second_.backward(
        context, behind_.backward(residual_backward(context, microbatch, model_, layer_, ResidualPlace::mlp, dy), saved.behind),
        saved.after);
    saved.after = {};
    if (model_.branch_multipliers.mlp_output != 1) scale(d_after, model_.branch_multipliers.mlp_output);
    Tensor d_before = alpha_positive_.defined() ? xielu_backward(d_after, saved.before, alpha_positive_.value, alpha_negative_.value,
                                                                 alpha_positive_.gradient, alpha_negative_.gradient)
                                                : activation_backward(d_after, saved.before, model_.activation, model_.gated_mlp);
    if (cuts_gate_) cut_backward(context, d_before, saved);
    scale_gate(context, d_before);
    d_after = {};
    saved.before = saved.uncut = {};
    Tensor d_normed = first_.backward(context, d_before, saved.normed);
    d_before = {};
    saved.normed = {};
    add_path_to_normed(model_, ResidualPlace::mlp, dy, d_normed);
    const Tensor path = model_.order == LayerOrder::sequential ? path_in_norm(context, model_, dy) : Tensor();
    Tensor dx = model_.pre_norms ? norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, model_.normalization,
                                                 norm_weight_.gradient, norm_bias_.gradient, path)
                                 : d_normed;
    d_normed = {};
    if (model_.order == LayerOrder::sequential && !path.defined()) add_path_to_input(model_, dy, dx);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
