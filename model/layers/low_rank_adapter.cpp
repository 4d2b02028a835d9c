#include "model/layers/low_rank_adapter.hpp"

#include <string_view>
#include <utility>

#include "model/layers/deferred_gradients.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {
namespace {

constexpr std::string_view kSixteenBits = "16 bits";

Tensor product(const Tensor& x, const Tensor& weight, std::string_view name) {
    return matmul(x, weight, {.b = true}, name, ProductAlgorithm::timed);
}

}  // namespace

LowRankAdapter::LowRankAdapter(const LayerSite& site, const std::string& module)
    : in_(site.weights.find(site.prefix + module + ".adapter.linear_in.weight")),
      out_(site.weights.find(site.prefix + module + ".adapter.linear_out.weight")),
      factor_(site.layer.adapters ? site.layer.adapters->factor() : 1) {}

void LowRankAdapter::add_scaled(const Tensor& rows, const Tensor& y) const {
    scale(rows, factor_);
    add(rows, y);
}

Tensor LowRankAdapter::scaled(const RankContext& context, const Tensor& dy) const {
    Tensor d_out = context.device->empty(dy.shape(), dy.dtype(), MemoryCategory::activations, "adapter output gradient");
    copy(dy, d_out);
    scale(d_out, factor_);
    return d_out;
}

void LowRankAdapter::add_gradients(const RankContext& context, const Tensor& d_out, const Tensor& low, const Tensor& d_low, const Tensor& x,
                                   const Tensor& dx) const {
    add_weight_gradient(context, [this, d_out, low, d_low, x] {
        matmul_accumulate(d_out, low, {.a = true}, out_.gradient, ProductAlgorithm::timed);  // (out, rank)
        matmul_accumulate(d_low, x, {.a = true}, in_.gradient, ProductAlgorithm::timed);     // (rank, in)
    });
    add(matmul(d_low, in_.value, {}, "adapter input gradient", ProductAlgorithm::timed), dx);
}

void LowRankAdapter::add_to_columns(const RankContext& context, const Tensor& x, const Tensor& y, AdapterSaved& saved) const {
    const Range range(*context.device, kSixteenBits);
    if (context.keeps_gathered_rows && context.sequence_parallel && context.tp->size() > 1) saved.whole = x;
    saved.low = gather_columns(context, product(x, in_.value, "adapter rows"));
    add_scaled(product(saved.low, out_.value, "adapter output"), y);
}

void LowRankAdapter::columns_backward(const RankContext& context, const Tensor& dy, const Tensor& x, AdapterSaved& saved,
                                      const Tensor& dx) const {
    const Range range(*context.device, kSixteenBits);
    const Tensor whole = saved.whole.defined() ? std::exchange(saved.whole, {}) : enter_region(context, x);
    const Tensor d_out = scaled(context, dy);
    const Tensor d_low = matmul(d_out, out_.value, {}, "adapter rows gradient", ProductAlgorithm::timed);
    if (context.tp->size() > 1) context.tp->all_reduce(d_low, Reduction::sum);
    add_gradients(context, d_out, std::exchange(saved.low, {}), own_columns(context, d_low), whole, dx);
}

void LowRankAdapter::add_to_rows(const RankContext& context, const Tensor& x, const Tensor& y, AdapterSaved& saved) const {
    const Range range(*context.device, kSixteenBits);
    saved.low = product(x, in_.value, "adapter rows");
    if (context.tp->size() > 1) context.tp->all_reduce(saved.low, Reduction::sum);
    Tensor whole = gather_columns(context, product(saved.low, out_.value, "adapter output"));
    const std::int64_t mine = y.shape()[0];
    if (mine < whole.shape()[0]) whole = whole.slice(mine * context.tp->rank(), mine * (context.tp->rank() + 1));
    add_scaled(whole, y);
}

void LowRankAdapter::rows_backward(const RankContext& context, const Tensor& dy, const Tensor& x, AdapterSaved& saved,
                                   const Tensor& dx) const {
    const Range range(*context.device, kSixteenBits);
    const Tensor d_out = own_columns(context, enter_region(context, scaled(context, dy)));
    const Tensor d_low = matmul(d_out, out_.value, {}, "adapter rows gradient", ProductAlgorithm::timed);
    if (context.tp->size() > 1) context.tp->all_reduce(d_low, Reduction::sum);
    add_gradients(context, d_out, std::exchange(saved.low, {}), d_low, x, dx);
}

void LowRankAdapter::add_to_whole(const RankContext& context, const Tensor& x, const Tensor& y, AdapterSaved& saved) const {
    const Range range(*context.device, kSixteenBits);
    saved.low = product(x, in_.value, "adapter rows");
    add_scaled(product(saved.low, out_.value, "adapter output"), y);
}

void LowRankAdapter::whole_backward(const RankContext& context, const Tensor& dy, const Tensor& x, AdapterSaved& saved,
                                    const Tensor& dx) const {
    const Range range(*context.device, kSixteenBits);
    const Tensor d_out = scaled(context, dy);
    const Tensor d_low = matmul(d_out, out_.value, {}, "adapter rows gradient", ProductAlgorithm::timed);
    add_gradients(context, d_out, std::exchange(saved.low, {}), d_low, x, dx);
}

}  // namespace mgplan::model
