#include "model/layers/shared_experts.hpp"

#include "model/layers/deferred_gradients.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gate.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {

SharedExperts::SharedExperts(const Mixture& mixture, const LayerSite& site)
    : activation_(mixture.activation),
      gated_(mixture.gated),
      recomputes_(site.recompute.contains(RecomputeModule::shared_experts)),
      gate_(site.weights.find(site.prefix + "mlp.shared_experts.gate_weight")),
      first_(site, "mlp.shared_experts.linear_fc1"),
      second_(site, "mlp.shared_experts.linear_fc2") {}

void SharedExperts::add_copied(std::vector<CopiedWeight>& into) const {
    first_.add_copied(into);
    second_.add_copied(into);
}

Tensor SharedExperts::run(const RankContext& context, const Tensor& x, SharedExpertsSaved& saved) const {
    saved.before = first_.forward(context, x, &saved.first);
    saved.after = second_.input(activation(saved.before, activation_, gated_));
    Tensor y = second_.forward(context, saved.after, &saved.second);
    saved.after.end_forward();
    if (!second_.reads_input()) saved.after = {};
    if (!gate_.defined()) return y;
    const Range range(*context.device, "gate forward");
    saved.output = y;
    saved.gate = matmul(x, gate_.value, {.b = true}, "gate of the shared experts");
    return gate_rows(y, saved.gate);
}

Tensor SharedExperts::forward(const RankContext& context, const Tensor& x, SharedExpertsSaved& saved) const {
    Tensor y = run(context, x, saved);
    if (recomputes_) saved = {};
    return y;
}

Tensor SharedExperts::backward(const RankContext& context, const Tensor& dy, const Tensor& x, SharedExpertsSaved& saved) const {
    if (!saved.before.defined()) {
        const Range range(*context.device, "recompute");
        (void)run(context, x, saved);
    }
    Tensor d_output = dy, d_gate;
    if (gate_.defined()) {
        const Range range(*context.device, "gate backward");
        d_output = gate_rows_backward(dy, saved.output, saved.gate, d_gate);
        saved.output = Tensor();
        if (gate_.trained())
            add_weight_gradient(context, [this, d_gate, x] { matmul_accumulate(d_gate, x, {.a = true}, gate_.gradient); });  // (1, hidden)
    }
    Tensor d_after = second_.backward(context, d_output, saved.after, &saved.second);
    saved.after = {};
    const Tensor d_before = activation_backward(d_after, saved.before, activation_, gated_);
    d_after = Tensor();
    saved.before = Tensor();
    Tensor dx = first_.backward(context, d_before, x, &saved.first);
    if (gate_.defined()) {
        const Range range(*context.device, "gate backward");
        add(matmul(d_gate, gate_.value, {}, "input gradient of the gate"), dx);
    }
    return dx;
}

}  // namespace mgplan::model
