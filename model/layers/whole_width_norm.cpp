#include "model/layers/whole_width_norm.hpp"

#include "model/layers/tensor_parallel.hpp"
#include "model/ops/elementwise.hpp"

namespace mgplan::model {

Tensor WholeWidthNorm::forward(const Tensor& part, NormStatistics& statistics) const {
    if (context_.tp->size() == 1) return norm(part, weight_.value, bias_.value, kind_, epsilon_, statistics);
    // Named, because all ranks must gather in one order.
    const Tensor x = gather_columns(context_, part), weight = whole(weight_), bias = whole(bias_);
    return own_columns(context_, norm(x, weight, bias, kind_, epsilon_, statistics));
}

Tensor WholeWidthNorm::backward(const Tensor& dy, const Tensor& part, const NormStatistics& statistics) const {
    if (context_.tp->size() == 1) return norm_backward(dy, part, weight_.value, statistics, kind_, weight_.gradient, bias_.gradient);
    const Tensor weight_gradient = whole_gradient(weight_), bias_gradient = whole_gradient(bias_);
    const Tensor all_dy = gather_columns(context_, dy), all_x = gather_columns(context_, part), weight = whole(weight_);
    const Tensor dx = norm_backward(all_dy, all_x, weight, statistics, kind_, weight_gradient, bias_gradient);
    add_own(weight_gradient, weight_);
    add_own(bias_gradient, bias_);
    return own_columns(context_, dx);
}

Tensor WholeWidthNorm::whole(const Weight& weight) const {
    if (!weight.defined()) return {};
    const Tensor& part = weight.value;
    Tensor all = context_.device->empty({part.elements() * context_.tp->size()}, part.dtype(), MemoryCategory::communication,
                                        "gathered norm weights");
    context_.tp->all_gather(part, all);
    return all;
}

Tensor WholeWidthNorm::whole_gradient(const Weight& weight) const {
    if (!weight.trained()) return {};
    return context_.device->zeros({weight.gradient.elements() * context_.tp->size()}, weight.gradient.dtype(), MemoryCategory::workspace,
                                  "gradient of all norm weights");
}

void WholeWidthNorm::add_own(const Tensor& gradient, const Weight& weight) const {
    if (!weight.trained()) return;
    const std::int64_t own = weight.gradient.elements(), first = own * context_.tp->rank();
    add(gradient.slice(first, first + own), weight.gradient);
}

}  // namespace mgplan::model
