#include "model/layers/experts.hpp"

#include <fmt/core.h>

#include "model/layers/deferred_gradients.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/grouped_matmul.hpp"

namespace mgplan::model {
namespace {

/// work(bias, begin, end) for the rows of each expert.
template <class Work>
void for_each_bias(const std::vector<Weight>& biases, std::span<const std::int64_t> per_expert, Work work) {
    std::int64_t begin = 0;
    for (std::size_t expert = 0; expert < biases.size(); ++expert) {
        work(biases[expert], begin, begin + per_expert[expert]);
        begin += per_expert[expert];
    }
}

}  // namespace

Experts::Experts(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, EnumSet<RecomputeModule> recompute)
    : model_(model), keeps_activation_(!recompute.contains(RecomputeModule::moe_act)) {
    const auto collect = [&](std::string_view name, Projection& projection) {
        // Recordings of mixtures for a search spend a fair share on these names.
        const std::string weight_of = fmt::format("{}{}.weight", prefix, name), bias_of = fmt::format("{}{}.bias", prefix, name);
        for (int expert = 0;; ++expert) {
            const std::string number = std::to_string(expert);
            const Weight weight = weights.find(weight_of + number);
            if (!weight.defined()) return;
            projection.values.push_back(weight.value);
            projection.gradients.push_back(weight.gradient);
            if (expert > 0 && projection.biases.empty()) continue;
            const Weight bias = weights.find(bias_of + number);
            if (bias.defined()) projection.biases.push_back(bias);
        }
    };
    collect("linear_fc1", first_);
    collect("linear_fc2", second_);
}

Tensor Experts::forward(const RankContext& context, const Tensor& rows, const Tensor& row_weights, std::span<const std::int64_t> per_expert,
                        ExpertsSaved& saved) const {
    saved.rows = rows;
    saved.row_weights = row_weights;
    saved.before = grouped_matmul(rows, first_.values, per_expert, true, "expert first product");
    for_each_bias(first_.biases, per_expert,
                  [&](const Weight& bias, std::int64_t begin, std::int64_t end) { add_bias(saved.before.slice(begin, end), bias.value); });
    const Tensor after = weighted_activation(saved.before, row_weights, model_.activation, model_.gated_mlp);
    if (keeps_activation_) saved.after = after;
    Tensor y = grouped_matmul(after, second_.values, per_expert, true, "expert output");
    if (context.etp->rank() == 0) {
        for_each_bias(second_.biases, per_expert, [&](const Weight& bias, std::int64_t begin, std::int64_t end) {
            add_weighted_bias(y.slice(begin, end), bias.value, row_weights.slice(begin, end));
        });
    }
    return y;
}

ExpertGradients Experts::backward(const RankContext& context, const Tensor& dy, std::span<const std::int64_t> per_expert,
                                  ExpertsSaved& saved) const {
    if (!saved.after.defined()) {
        const Range range(*context.device, "recompute");
        saved.after = weighted_activation(saved.before, saved.row_weights, model_.activation, model_.gated_mlp);
    }
    const std::vector<std::int64_t> counts(per_expert.begin(), per_expert.end());
    add_weight_gradient(context, [this, dy, after = saved.after, counts] {
        grouped_matmul_accumulate(dy, after, counts, second_.gradients);  // (hidden, ffn / etp)
    });
    saved.after = Tensor();
    Tensor d_after = grouped_matmul(dy, second_.values, per_expert, false, "expert activation gradient");
    ExpertGradients gradients;
    const Tensor d_before =
        weighted_activation_backward(d_after, saved.before, saved.row_weights, model_.activation, model_.gated_mlp, gradients.row_weights);
    d_after = Tensor();
    saved.before = Tensor();
    if (!second_.biases.empty()) {
        // Every etp rank has the whole gradient of a bias; the rows' weights get theirs once.
        const Tensor elsewhere = context.etp->rank() == 0
                                     ? gradients.row_weights
                                     : context.device->zeros(gradients.row_weights.shape(), gradients.row_weights.dtype(),
                                                             MemoryCategory::workspace, "row weight gradients of others");
        for_each_bias(second_.biases, per_expert, [&](const Weight& bias, std::int64_t begin, std::int64_t end) {
            weighted_bias_gradient(dy.slice(begin, end), bias.value, saved.row_weights.slice(begin, end), bias.gradient,
                                   elsewhere.slice(begin, end));
        });
    }
    for_each_bias(first_.biases, per_expert, [&](const Weight& bias, std::int64_t begin, std::int64_t end) {
        bias_gradient(d_before.slice(begin, end), bias.gradient);
    });
    add_weight_gradient(context, [this, d_before, rows = saved.rows, counts] {
        grouped_matmul_accumulate(d_before, rows, counts, first_.gradients);  // (ffn / etp, hidden)
    });
    gradients.rows = grouped_matmul(d_before, first_.values, per_expert, false, "expert input gradient");
    saved = {};
    return gradients;
}

}  // namespace mgplan::model
