#include "model/layers/tensor_parallel.hpp"

#include "model/ops/bias.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {

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

Tensor ColumnParallelLinear::forward(const RankContext& context, const Tensor& x) const {
    const Tensor whole = enter_region(context, x);
    Tensor y = matmul(whole, weight_.value, {.b = true}, "column-parallel output");  // (rows, out / tp)
    if (bias_.defined()) add_bias(y, bias_.value);
    return y;
}

Tensor ColumnParallelLinear::backward(const RankContext& context, const Tensor& dy, const Tensor& x) const {
    const Tensor dx = matmul(dy, weight_.value, {}, "input gradient");  // (rows, in), a partial sum over tp
    {
        const Tensor whole = enter_region(context, x);
        matmul_accumulate(dy, whole, {.a = true}, weight_.gradient);  // (out / tp, in)
    }
    if (bias_.defined()) bias_gradient(dy, bias_.gradient);
    return leave_region(context, dx);
}

Tensor RowParallelLinear::forward(const RankContext& context, const Tensor& x) const {
    Tensor y = leave_region(context, matmul(x, weight_.value, {.b = true}, "row-parallel output"));  // (rows outside, out)
    if (bias_.defined()) add_bias(y, bias_.value);
    return y;
}

Tensor RowParallelLinear::backward(const RankContext& context, const Tensor& dy, const Tensor& x) const {
    if (bias_.defined()) bias_gradient(dy, bias_.gradient);
    const Tensor whole = enter_region(context, dy);
    Tensor dx = matmul(whole, weight_.value, {}, "input gradient");  // (rows, in / tp)
    matmul_accumulate(whole, x, {.a = true}, weight_.gradient);      // (out, in / tp)
    return dx;
}

}  // namespace mgplan::model
