#include "model/layers/experts.hpp"

#include <string>
#include <utility>

#include <fmt/core.h>

#include "model/layers/deferred_gradients.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/fp8_block_groups.hpp"
#include "model/ops/fp8_grouped.hpp"
#include "model/ops/grouped_matmul.hpp"
#include "plan/text/errors.hpp"

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

/// Returns the part of the input that the gradient of a weight reads.
LinearInput without_forward(LinearInput x) {
    x.end_forward();
    return x;
}

}  // namespace

Experts::Experts(const Mixture& mixture, const LayerSite& site)
    : activation_(mixture.activation), gated_(mixture.gated), keeps_activation_(!site.recompute.contains(RecomputeModule::moe_act)) {
    const WeightTable& weights = site.weights;
    const auto collect = [&](std::string_view name, Projection& projection) {
        // Recordings of MoE layers for a search spend a fair share of their time on these names.
        const std::string weight_of = fmt::format("{}mlp.experts.{}.weight", site.prefix, name),
                          bias_of = fmt::format("{}mlp.experts.{}.bias", site.prefix, name);
        if (const auto [weight, experts] = weights.find_of_experts(weight_of); experts > 0) {
            projection.values.assign(experts, weight.value);
            projection.gradients.assign(experts, weight.gradient);
            const auto bias = weights.find_of_experts(bias_of);
            projection.biases.assign(bias.experts, bias.weight);
            return;
        }
        for (int expert = 0;; ++expert) {
            const std::string number = std::to_string(expert);
            const Weight weight = weights.find(weight_of + number);
            if (!weight.defined()) return;
            projection.values.push_back(weight.value);
            projection.gradients.push_back(weight.gradient);
            if (weight.fp8 != nullptr) projection.fp8.push_back(weight.fp8);
            if (expert > 0 && projection.biases.empty()) continue;
            const Weight bias = weights.find(bias_of + number);
            if (bias.defined()) projection.biases.push_back(bias);
        }
    };
    for (const auto& [name, projection] : {std::pair<std::string, Adapted&>("linear_fc1", first_), {"linear_fc2", second_}}) {
        collect(name, projection);
        if (!site.layer.adapters) continue;
        projection.adapter = LowRankAdapter(site, "mlp.experts." + name);
        projection.factor = site.layer.adapters->factor();
        collect(name + ".adapter.linear_in", projection.in);
        collect(name + ".adapter.linear_out", projection.out);
    }
}

void Experts::Projection::add_copied(std::vector<CopiedWeight>& into) const {
    for (std::size_t expert = 0; expert < fp8.size(); ++expert) into.push_back({fp8[expert], values[expert]});
}

LinearInput Experts::Projection::input(const Tensor& x, std::span<const std::int64_t> per_expert, Dtype dtype) const {
    if (fp8.empty()) return x;
    if (in_blocks()) {
        const Fp8Scaling vectors = vectors_beside(*fp8.front());
        Fp8BothWays cast = quantise_groups_both_ways(x, vectors, per_expert, "experts' rows in fp8", "columns of experts' rows in fp8");
        return {std::move(cast.rows), std::move(cast.columns)};
    }
    const bool is_input = dtype == Dtype::fp8;
    const std::string_view name = is_input ? "experts' rows in fp8" : "experts' gradients in fp8";
    if (!fp8.front()->followed) return LinearInput(quantise_groups(x, dtype, per_expert, name));
    const auto followed = [&](std::size_t expert) -> const Fp8Followed& {
        return is_input ? fp8[expert]->followed->input : fp8[expert]->followed->gradient;
    };
    const Tensor scales = followed(0).scales_onward.slice(0, std::ssize(fp8));
    std::vector<Tensor> largest;
    for (std::size_t expert = 0; expert < fp8.size(); ++expert) {
        const auto at = static_cast<std::int64_t>(expert);
        MGPLAN_ASSERT(followed(expert).scale.first_element() == scales.slice(at, at + 1).first_element(),
                      "scales of a projection's experts follow each other");
        largest.push_back(followed(expert).largest);
    }
    return LinearInput(quantise_groups(x, dtype, per_expert, scales, largest, name));
}

Tensor Experts::Projection::multiply(const LinearInput& x, std::span<const std::int64_t> per_expert, bool forward,
                                     std::string_view name) const {
    if (fp8.empty()) return grouped_matmul(x.x, values, per_expert, forward, name);
    if (in_blocks()) {
        std::vector<Fp8Blocks> matrices;
        for (const auto& copies : fp8) matrices.push_back(forward ? copies->blocks->values : copies->blocks->transposed);
        return block_grouped_matmul(x.forward, matrices, per_expert, values.front().dtype(), name);
    }
    std::vector<Fp8Tensor> matrices;
    for (const auto& copies : fp8) matrices.push_back({forward ? copies->values.codes : copies->transposed, copies->values.scale});
    return fp8_grouped_matmul({x.x, x.scale}, matrices, per_expert, values.front().dtype(), name);
}

void Experts::Projection::add_gradients(const LinearInput& dy, const LinearInput& x, std::span<const std::int64_t> per_expert) const {
    if (fp8.empty()) return grouped_matmul_accumulate(dy.x, x.x, per_expert, gradients);
    if (in_blocks()) {
        const Fp8Scaling vectors = vectors_beside(*fp8.front());
        return block_grouped_accumulate(dy.columns(vectors), x.columns(vectors), per_expert, gradients);
    }
    fp8_grouped_matmul_accumulate({dy.x, dy.scale}, {x.x, x.scale}, per_expert, gradients);
}

void Experts::Adapted::add_adapted(const RankContext& context, const Tensor& x, std::span<const std::int64_t> per_expert, const Tensor& y,
                                   AdapterSaved& saved) const {
    if (adapter.defined()) return adapter.add_to_whole(context, x, y, saved);
    const Range range(*context.device, "16 bits");
    saved.low = in.multiply(x, per_expert, true, "adapter rows");
    const Tensor rows = out.multiply(saved.low, per_expert, true, "adapter output");
    scale(rows, factor);
    add(rows, y);
}

void Experts::Adapted::adapted_backward(const RankContext& context, const Tensor& dy, const Tensor& x,
                                        std::span<const std::int64_t> per_expert, AdapterSaved& saved, const Tensor& dx) const {
    if (adapter.defined()) return adapter.whole_backward(context, dy, x, saved, dx);
    const Range range(*context.device, "16 bits");
    const Tensor d_out = context.device->empty(dy.shape(), dy.dtype(), MemoryCategory::activations, "adapter output gradient");
    copy(dy, d_out);
    scale(d_out, factor);
    const Tensor d_low = out.multiply(d_out, per_expert, false, "adapter rows gradient");
    const std::vector<std::int64_t> counts(per_expert.begin(), per_expert.end());
    add_weight_gradient(context, [this, d_out, low = std::exchange(saved.low, {}), d_low, x, counts] {
        out.add_gradients(d_out, low, counts);  // (out, rank)
        in.add_gradients(d_low, x, counts);     // (rank, in)
    });
    add(in.multiply(d_low, per_expert, false, "adapter input gradient"), dx);
}

void Experts::add_copied(std::vector<CopiedWeight>& into) const {
    first_.add_copied(into);
    second_.add_copied(into);
}

Tensor Experts::forward(const RankContext& context, Tensor rows, const Tensor& row_weights, std::span<const std::int64_t> per_expert,
                        ExpertsSaved& saved) const {
    std::vector<CopiedWeight> copied;
    add_copied(copied);
    refresh(copied);
    saved.rows = first_.input(rows, per_expert, Dtype::fp8);
    rows = {};
    saved.row_weights = row_weights;
    saved.before = first_.multiply(saved.rows, per_expert, true, "expert first product");
    if (first_.has_adapters()) first_.add_adapted(context, saved.rows.x, per_expert, saved.before, saved.first);
    saved.rows.end_forward();
    if (!first_.reads_input()) saved.rows = {};
    for_each_bias(first_.biases, per_expert,
                  [&](const Weight& bias, std::int64_t begin, std::int64_t end) { add_bias(saved.before.slice(begin, end), bias.value); });
    LinearInput after = activated(saved, per_expert);
    if (keeps_activation_ && second_.reads_input()) saved.after = without_forward(after);
    Tensor y = second_.multiply(after, per_expert, true, "expert output");
    if (second_.has_adapters()) second_.add_adapted(context, after.x, per_expert, y, saved.second);
    after.end_forward();
    if (context.etp->rank() == 0) {
        for_each_bias(second_.biases, per_expert, [&](const Weight& bias, std::int64_t begin, std::int64_t end) {
            add_weighted_bias(y.slice(begin, end), bias.value, row_weights.slice(begin, end));
        });
    }
    return y;
}

LinearInput Experts::activated(const ExpertsSaved& saved, std::span<const std::int64_t> per_expert) const {
    return second_.input(weighted_activation(saved.before, saved.row_weights, activation_, gated_), per_expert, Dtype::fp8);
}

ExpertGradients Experts::backward(const RankContext& context, const Tensor& dy, std::span<const std::int64_t> per_expert,
                                  ExpertsSaved& saved) const {
    if (!saved.after.defined() && second_.reads_input()) {
        const Range range(*context.device, "recompute");
        saved.after = activated(saved, per_expert);
        saved.after.end_forward();
    }
    const std::vector<std::int64_t> counts(per_expert.begin(), per_expert.end());
    LinearInput d_output = second_.input(dy, per_expert, Dtype::e5m2);
    if (second_.trained()) {
        add_weight_gradient(context, [this, dy_of_rows = without_forward(d_output), after = saved.after, counts] {
            second_.add_gradients(dy_of_rows, after, counts);  // (hidden, ffn / etp)
        });
        saved.after = {};
    }
    Tensor d_after = second_.multiply(d_output, per_expert, false, "expert activation gradient");
    if (second_.has_adapters()) second_.adapted_backward(context, dy, saved.after.x, per_expert, saved.second, d_after);
    saved.after = {};
    d_output = {};
    ExpertGradients gradients;
    Tensor d_before = weighted_activation_backward(d_after, saved.before, saved.row_weights, activation_, gated_, gradients.row_weights);
    d_after = Tensor();
    saved.before = Tensor();
    if (!second_.biases.empty()) {
        // Every etp rank has the whole gradient of a bias; the gradients of the rows' weights are added on one of them.
        const Tensor elsewhere = context.etp->rank() == 0
                                     ? gradients.row_weights
                                     : context.device->zeros(gradients.row_weights.shape(), gradients.row_weights.dtype(),
                                                             MemoryCategory::workspace, "row weight gradients of others");
        for_each_bias(second_.biases, per_expert, [&](const Weight& bias, std::int64_t begin, std::int64_t end) {
            // The weights of rows have a gradient by the bias also where it is frozen.
            const Tensor of_bias = bias.trained() ? bias.gradient
                                                  : context.device->zeros(bias.value.shape(), gradients.row_weights.dtype(),
                                                                          MemoryCategory::workspace, "gradient of a frozen bias");
            weighted_bias_gradient(dy.slice(begin, end), bias.value, saved.row_weights.slice(begin, end), of_bias,
                                   elsewhere.slice(begin, end));
        });
    }
    for_each_bias(first_.biases, per_expert, [&](const Weight& bias, std::int64_t begin, std::int64_t end) {
        if (bias.trained()) bias_gradient(d_before.slice(begin, end), bias.gradient);
    });
    const LinearInput d_product = first_.input(d_before, per_expert, Dtype::e5m2);
    if (first_.trained()) {
        d_before = {};
        add_weight_gradient(context, [this, dy_of_rows = without_forward(d_product), rows = saved.rows, counts] {
            first_.add_gradients(dy_of_rows, rows, counts);  // (ffn / etp, hidden)
        });
    }
    gradients.rows = first_.multiply(d_product, per_expert, false, "expert input gradient");
    if (first_.has_adapters()) first_.adapted_backward(context, d_before, saved.rows.x, per_expert, saved.first, gradients.rows);
    saved = {};
    return gradients;
}

}  // namespace mgplan::model
