#include "model/layers/shared_experts.hpp"

#include "model/ops/activation.hpp"

namespace mgplan::model {

SharedExperts::SharedExperts(const ModelSpec& model, const WeightTable& weights, const std::string& prefix,
                             EnumSet<RecomputeModule> recompute)
    : model_(model),
      recomputes_(recompute.contains(RecomputeModule::shared_experts)),
      first_(weights.at(prefix + "linear_fc1.weight"), {}),
      second_(weights.at(prefix + "linear_fc2.weight"), {}) {}

Tensor SharedExperts::forward(const RankContext& context, const Tensor& x, SharedExpertsSaved& saved) const {
    saved.before = first_.forward(context, x);
    saved.after = activation(saved.before, model_.activation, model_.gated_mlp);
    Tensor y = second_.forward(context, saved.after);
    if (recomputes_) saved = {};
    return y;
}

Tensor SharedExperts::backward(const RankContext& context, const Tensor& dy, const Tensor& x, SharedExpertsSaved& saved) const {
    if (!saved.before.defined()) {
        saved.before = first_.forward(context, x);
        saved.after = activation(saved.before, model_.activation, model_.gated_mlp);
    }
    const Tensor d_after = second_.backward(context, dy, saved.after);
    saved.after = Tensor();
    const Tensor d_before = activation_backward(d_after, saved.before, model_.activation, model_.gated_mlp);
    saved.before = Tensor();
    return first_.backward(context, d_before, x);
}

}  // namespace mgplan::model
