#include "model/layers/mlp.hpp"

#include "model/layers/offload.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gate_cut.hpp"
#include "model/ops/xielu.hpp"

namespace mgplan::model {
namespace {

/// Returns the name of the MLP's norm, which is the attention's if parallel halves share it.
std::string norm_of_mlp(const Norms& norms, std::string_view end) {
    const bool shared = norms.order == LayerOrder::parallel_shared_norm;
    return (shared ? "self_attention.linear_qkv.layer_norm_" : "mlp.linear_fc1.layer_norm_") + std::string(end);
}

/// Returns a cast with one scale without its turned codes, which are made from those in the order of rows; else x itself.
LinearInput what_both_passes_need(const LinearInput& x) {
    const bool one_scale = x.lie == ColumnCodes::turned && x.forward.defined() && !x.forward.scales.defined();
    return one_scale ? LinearInput(Fp8Tensor{x.forward.codes, x.scale}) : x;
}

}  // namespace

Mlp::Mlp(const mgplan::Mlp& mlp, const LayerSite& site, const std::string& module, bool cuts_gate)
    : mlp_(mlp),
      norms_(site.layer.norms),
      residual_(site, ResidualPlace::mlp),
      recompute_(site.recompute),
      cuts_gate_(cuts_gate),
      norm_weight_(site.weights.find(site.prefix + module + norm_of_mlp(norms_, "weight"))),
      norm_bias_(site.weights.find(site.prefix + module + norm_of_mlp(norms_, "bias"))),
      alpha_positive_(site.weights.find(site.prefix + module + "mlp.activation_func.alpha_p")),
      alpha_negative_(site.weights.find(site.prefix + module + "mlp.activation_func.alpha_n")),
      first_(site, module + "mlp.linear_fc1"),
      second_(site, module + "mlp.linear_fc2"),
      behind_(site, site.prefix + module + "post_mlp_layernorm.") {}

void Mlp::add_copied(std::vector<CopiedWeight>& into) const {
    first_.add_copied(into);
    second_.add_copied(into);
}

void Mlp::scale_gate(const RankContext& context, const Tensor& before) const {
    if (mlp_.gate_multiplier != 1) scale_columns(before, 0, mlp_.width / context.tp->size(), mlp_.gate_multiplier);
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
    if (!norms_.before) return first_.input(context, x);
    return first_.input(context, norm(x, norm_weight_.value, norm_bias_.value, norms_.norm.kind, context.norm_epsilon, statistics));
}

void Mlp::activate(const RankContext& context, MlpSaved& saved) const {
    saved.before = first_.forward(context, saved.normed, &saved.first);
    scale_gate(context, saved.before);
    if (cuts_gate_) cut(context, saved);
    const Tensor after = alpha_positive_.defined() ? xielu(saved.before, alpha_positive_.value, alpha_negative_.value)
                                                   : activation(saved.before, mlp_.activation, mlp_.gated);
    // In front of the second product, whose gradients are then those of the scaled one.
    if (mlp_.output_multiplier != 1) scale(after, mlp_.output_multiplier);
    saved.after = second_.input(after);
}

Tensor Mlp::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& residual,
                    MlpSaved& saved) const {
    saved.x = x;
    saved.normed = normalised(context, x, saved.statistics);
    activate(context, saved);
    const Tensor y = second_.forward(context, saved.after, &saved.second);
    saved.after.end_forward();
    if (!second_.reads_input()) saved.after = {};
    if (recompute_.contains(RecomputeModule::mlp)) {
        saved.before = saved.uncut = Tensor();
        saved.after = {};
        saved.first = {};
        saved.normed = what_both_passes_need(saved.normed);
    } else {
        saved.normed.end_forward();
    }
    const Tensor path = residual_.carried(residual, saved.normed.x);
    const bool reads_normed = first_.reads_input(saved.first) || !saved.before.defined();
    if (recompute_.contains(RecomputeModule::layernorm) || !reads_normed) saved.normed = {};
    Tensor sum = residual_.sum(context, microbatch, behind_.forward(context, y, saved.behind), path);
    inputs_to_host(context, {{OffloadModule::mlp_norm, saved.x}});
    return sum;
}

Tensor Mlp::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MlpSaved& saved) const {
    inputs_from_host(context, {{OffloadModule::mlp_norm, saved.x}});
    if (!saved.normed.defined() && (first_.reads_input(saved.first) || !saved.before.defined())) {
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
    Tensor d_after =
        second_.backward(context, behind_.backward(residual_.backward(context, microbatch, dy), saved.behind), saved.after, &saved.second);
    saved.after = {};
    if (mlp_.output_multiplier != 1) scale(d_after, mlp_.output_multiplier);
    Tensor d_before = alpha_positive_.defined() ? xielu_backward(d_after, saved.before, alpha_positive_.value, alpha_negative_.value,
                                                                 alpha_positive_.gradient, alpha_negative_.gradient)
                                                : activation_backward(d_after, saved.before, mlp_.activation, mlp_.gated);
    if (cuts_gate_) cut_backward(context, d_before, saved);
    scale_gate(context, d_before);
    d_after = {};
    saved.before = saved.uncut = {};
    Tensor d_normed = first_.backward(context, d_before, saved.normed, &saved.first);
    d_before = {};
    saved.normed = {};
    residual_.add_to_normed(dy, d_normed);
    const Tensor path = norms_.order == LayerOrder::sequential ? residual_.in_norm(context, dy) : Tensor();
    Tensor dx = norms_.before ? norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, norms_.norm.kind,
                                              norm_weight_.gradient, norm_bias_.gradient, path)
                              : d_normed;
    d_normed = {};
    if (norms_.order == LayerOrder::sequential && !path.defined()) residual_.add_to_input(dy, dx);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
