#include "model/layers/experts.hpp"

#include <fmt/format.h>

#include "model/ops/activation.hpp"
#include "model/ops/grouped_matmul.hpp"

namespace mgplan::model {

Experts::Experts(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, EnumSet<RecomputeModule> recompute)
    : model_(model), keeps_activation_(!recompute.contains(RecomputeModule::moe_act)) {
    const auto collect = [&](std::string_view name, Projection& projection) {
        for (int expert = 0;; ++expert) {
            const Weight weight = weights.find(fmt::format("{}{}.weight{}", prefix, name, expert));
            if (!weight.defined()) return;
            projection.values.push_back(weight.value);
            projection.gradients.push_back(weight.gradient);
        }
    };
    collect("linear_fc1", first_);
    collect("linear_fc2", second_);
}

Tensor Experts::forward(const Tensor& rows, const Tensor& row_weights, std::span<const std::int64_t> per_expert,
                        ExpertsSaved& saved) const {
    saved.rows = rows;
    saved.row_weights = row_weights;
    saved.before = grouped_matmul(rows, first_.values, per_expert, true, "expert first product");
    const Tensor after = weighted_activation(saved.before, row_weights, model_.activation, model_.gated_mlp);
    if (keeps_activation_) saved.after = after;
    return grouped_matmul(after, second_.values, per_expert, true, "expert output");
}

ExpertGradients Experts::backward(const Tensor& dy, std::span<const std::int64_t> per_expert, ExpertsSaved& saved) const {
    if (!saved.after.defined()) saved.after = weighted_activation(saved.before, saved.row_weights, model_.activation, model_.gated_mlp);
    grouped_matmul_accumulate(dy, saved.after, per_expert, second_.gradients);  // (hidden, ffn / etp)
    saved.after = Tensor();
    Tensor d_after = grouped_matmul(dy, second_.values, per_expert, false, "expert activation gradient");
    ExpertGradients gradients;
    const Tensor d_before =
        weighted_activation_backward(d_after, saved.before, saved.row_weights, model_.activation, model_.gated_mlp, gradients.row_weights);
    d_after = Tensor();
    saved.before = Tensor();
    grouped_matmul_accumulate(d_before, saved.rows, per_expert, first_.gradients);  // (ffn / etp, hidden)
    gradients.rows = grouped_matmul(d_before, first_.values, per_expert, false, "expert input gradient");
    saved = {};
    return gradients;
}

}  // namespace mgplan::model
