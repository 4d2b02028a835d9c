#include "model/layers/tensor_parallel.hpp"

#include <utility>

#include "model/layers/deferred_gradients.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

namespace {

/// A layer whose product makes the gradient.
const Weight& with_product(const Weight& weight) {
    if (weight.start != nullptr) weight.start->products = true;
    return weight;
}

/// The gradient (out, in) of dy (rows, out) and x (rows, in).
void add_product(const Weight& weight, const Tensor& dy, const Tensor& x) {
    if (weight.start == nullptr || !weight.start->empty) return matmul_accumulate(dy, x, {.a = true}, weight.gradient);
    matmul_write(dy, x, {.a = true}, weight.gradient);
    weight.start->empty = false;
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const Weight& weight, Weight bias, ColumnParallelOptions options)
    : weight_(with_product(weight)), bias_(std::move(bias)), options_(options) {}

RowParallelLinear::RowParallelLinear(const Weight& weight, Weight bias, RowParallelOptions options)
    : weight_(with_product(weight)), bias_(std::move(bias)), options_(options) {}

DuplicatedLinear::DuplicatedLinear(const Weight& weight) : weight_(with_product(weight)) {}

Tensor enter_region(const RankContext& context, const Tensor& x) {
    if (context.tp->size() == 1 || !context.sequence_parallel) return x;
    Tensor whole =
        context.device->empty({x.shape()[0] * context.tp->size(), x.shape()[1]}, x.dtype(), MemoryCategory::communication, "gathered rows");
    context.tp->all_gather(x, whole);
    return whole;
}

Tensor leave_region(const RankContext& context, const Tensor& partial) {
    if (context.tp->size() == 1) return partial;
    if (!context.sequence_parallel) {
        context.tp->all_reduce(partial, Reduction::sum);
        return partial;
    }
    Tensor part = context.device->empty({partial.shape()[0] / context.tp->size(), partial.shape()[1]}, partial.dtype(),
                                        MemoryCategory::activations, "scattered rows");
    context.tp->reduce_scatter(partial, part, Reduction::sum);
    return part;
}

Tensor gather_columns(const RankContext& context, const Tensor& part) {
    if (context.tp->size() == 1) return part;
    const std::int64_t ranks = context.tp->size(), rows = part.shape()[0], width = part.shape()[1];
    const Tensor by_rank = context.device->empty({ranks, rows, width}, part.dtype(), MemoryCategory::communication, "gathered columns");
    context.tp->all_gather(part, by_rank);
    return swap_leading(by_rank).view({rows, ranks * width});
}

Tensor own_columns(const RankContext& context, const Tensor& whole) {
    if (context.tp->size() == 1) return whole;
    const std::int64_t width = whole.shape()[1] / context.tp->size();
    return columns(whole, width * context.tp->rank(), width * (context.tp->rank() + 1));
}

Tensor ColumnParallelLinear::forward(const RankContext& context, const Tensor& x) const {
    MGPLAN_ASSERT(!options_.gather_output || !context.sequence_parallel, "with sequence parallelism outputs stay divided");
    const Tensor whole = enter_region(context, x);
    Tensor y = matmul(whole, weight_.value, {.b = true}, "column-parallel output");  // (rows, out / tp)
    if (bias_.defined() && !options_.skip_bias_add) add_bias(y, bias_.value);
    return options_.gather_output ? gather_columns(context, y) : y;
}

Tensor ColumnParallelLinear::backward(const RankContext& context, const Tensor& d_output, const Tensor& x) const {
    const Tensor dy = options_.gather_output ? own_columns(context, d_output) : d_output;
    const Tensor dx = matmul(dy, weight_.value, {}, "input gradient");  // (rows, in), a partial sum over tp
    // With sequence parallelism x is kept divided, and gathered where the product reads it.
    add_weight_gradient(context, [this, &context, dy, x] {
        const Tensor whole = enter_region(context, x);
        add_product(weight_, dy, whole);  // (out / tp, in)
    });
    if (bias_.defined() && !options_.skip_bias_add) bias_gradient(dy, bias_.gradient);
    return leave_region(context, dx);
}

Tensor RowParallelLinear::forward(const RankContext& context, const Tensor& x) const {
    MGPLAN_ASSERT(options_.input_is_parallel || !context.sequence_parallel, "with sequence parallelism inputs are divided");
    const Tensor part = options_.input_is_parallel ? x : own_columns(context, x);
    Tensor y = leave_region(context, matmul(part, weight_.value, {.b = true}, "row-parallel output"));  // (rows outside, out)
    if (bias_.defined() && !options_.skip_bias_add) add_bias(y, bias_.value);
    return y;
}

Tensor RowParallelLinear::backward(const RankContext& context, const Tensor& dy, const Tensor& x) const {
    if (bias_.defined() && !options_.skip_bias_add) bias_gradient(dy, bias_.gradient);
    const Tensor whole = enter_region(context, dy);
    Tensor dx = matmul(whole, weight_.value, {}, "input gradient");  // (rows, in / tp)
    add_weight_gradient(context, [this, &context, whole, x] {
        add_product(weight_, whole, options_.input_is_parallel ? x : own_columns(context, x));  // (out, in / tp)
    });
    return options_.input_is_parallel ? dx : gather_columns(context, dx);
}

Tensor DuplicatedLinear::forward(const Tensor& x) const {
    return matmul(x, weight_.value, {.b = true}, "duplicated output");  // (rows outside, out)
}

Tensor DuplicatedLinear::backward(const RankContext& context, const Tensor& dy, const Tensor& x) const {
    add_weight_gradient(context, [this, dy, x] { add_product(weight_, dy, x); });  // (out, in)
    return matmul(dy, weight_.value, {}, "input gradient");                        // (rows outside, in)
}

}  // namespace mgplan::model
