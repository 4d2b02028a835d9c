#include "model/ops/norm.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

void expect_weight(const Tensor& weight, const Tensor& x) {
    if (!weight.defined()) return;
    expect_shape(weight, {x.shape()[-1]}, "weight of norm");
    expect_dtype(weight, x.dtype(), "weight of norm");
}

/// Reports norm(). FLOPs per value: mean (LayerNorm) 1, square and add 2-3, scale 1, weight 1, bias 1.
void report_norm(Device& device, const Tensor& x, const Tensor& weight, const Tensor& bias, Normalization kind, std::int64_t written) {
    const bool centred = kind == Normalization::layer_norm;
    device.report({centred ? "layer_norm" : "rms_norm", (centred ? 7.0 : 4.0) * static_cast<double>(x.elements()),
                   total_bytes(x, weight, bias), written});
}

}  // namespace

Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, Normalization kind, double epsilon, NormStatistics& statistics) {
    const bool centred = kind == Normalization::layer_norm;
    expect_float(x, "x of norm");
    MGPLAN_ASSERT(x.shape().rank() >= 1 && x.shape()[-1] > 0, "norm has values to take the mean of");
    const std::int64_t rows = x.shape().rows(), width = x.shape()[-1];
    expect_weight(weight, x);
    if (bias.defined()) {
        MGPLAN_ASSERT(centred && weight.defined(), "a bias stands beside a weight, and RMSNorm has none");
        expect_shape(bias, {width}, "bias of norm");
        expect_dtype(bias, x.dtype(), "bias of norm");
    }
    expect_same_device(x, weight, bias);

    Device& device = x.device();
    const Dtype kept = statistics_dtype(x.dtype());
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "norm output");
    statistics.mean = centred ? device.empty({rows}, kept, MemoryCategory::activations, "norm mean") : Tensor();
    statistics.inverse_deviation = device.empty({rows}, kept, MemoryCategory::activations, "norm inverse deviation");
    report_norm(device, x, weight, bias, kind, total_bytes(y, statistics.mean, statistics.inverse_deviation));
    if (!device.computes()) return y;
    device.kernels().norm(device, {x, weight, bias, y, statistics.mean, statistics.inverse_deviation, rows, width, kind, epsilon});
    return y;
}

void repeat_norm(const Tensor& y, const Tensor& weight, const Tensor& bias, Normalization kind) {
    Device& device = y.device();
    MGPLAN_ASSERT(!device.computes(), "norms of several layers are made again where shapes alone are known");
    const std::int64_t statistics = (kind == Normalization::layer_norm ? 2 : 1) * y.shape().rows() * bytes_of(statistics_dtype(y.dtype()));
    report_norm(device, y, weight, bias, kind, y.bytes() + statistics);
}

Tensor norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const NormStatistics& statistics, Normalization kind,
                     const Tensor& weight_gradient, const Tensor& bias_gradient, const Tensor& added) {
    const bool centred = kind == Normalization::layer_norm;
    expect_float(x, "x of norm_backward");
    MGPLAN_ASSERT(x.shape().rank() >= 1 && x.shape()[-1] > 0, "norm has values to take the mean of");
    const std::int64_t rows = x.shape().rows(), width = x.shape()[-1];
    const Dtype kept = statistics_dtype(x.dtype());
    expect_shape(dy, x.shape(), "dy of norm_backward");
    expect_dtype(dy, x.dtype(), "dy of norm_backward");
    expect_weight(weight, x);
    expect_shape(statistics.inverse_deviation, {rows}, "inverse deviation of norm_backward");
    expect_dtype(statistics.inverse_deviation, kept, "inverse deviation of norm_backward");
    if (centred) {
        expect_shape(statistics.mean, {rows}, "mean of norm_backward");
        expect_dtype(statistics.mean, kept, "mean of norm_backward");
    }
    if (weight_gradient.defined()) {
        MGPLAN_ASSERT(weight.defined(), "a gradient is of a weight");
        expect_shape(weight_gradient, {width}, "weight gradient of norm_backward");
        expect_accumulator(weight_gradient, x, "weight gradient of norm_backward");
    }
    if (bias_gradient.defined()) {
        MGPLAN_ASSERT(centred && weight_gradient.defined(), "a bias stands beside a weight, and RMSNorm has none");
        expect_shape(bias_gradient, {width}, "bias gradient of norm_backward");
        expect_accumulator(bias_gradient, x, "bias gradient of norm_backward");
    }
    if (added.defined()) {
        expect_elements(added, x.elements(), "what norm_backward adds");
        expect_dtype(added, x.dtype(), "what norm_backward adds");
    }
    expect_same_device(x, dy, weight, statistics.mean, statistics.inverse_deviation, added);

    Device& device = x.device();
    Tensor dx = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "norm input gradient");
    const std::int64_t parts = column_sum_parts(device.traits(), rows);
    const Tensor column_sums =
        weight_gradient.defined() ? device.empty({parts, 2, width}, kept, MemoryCategory::workspace, "norm column sums") : Tensor();
    const std::int64_t launches = weight_gradient.defined() ? 2 + column_sum_launches(parts) * (bias_gradient.defined() ? 2 : 1) : 1;
    const double per_value = (centred ? 14.0 : 11.0) + (added.defined() ? 1 : 0);
    device.report({centred ? "layer_norm_backward" : "rms_norm_backward", per_value * static_cast<double>(x.elements()),
                   total_bytes(dy, x, weight, statistics.mean, statistics.inverse_deviation, weight_gradient, bias_gradient, added),
                   total_bytes(dx, weight_gradient, bias_gradient), launches});
    if (!device.computes()) return dx;
    device.kernels().norm_backward(device, {dy, x, weight, statistics.mean, statistics.inverse_deviation, dx, weight_gradient,
                                            bias_gradient, column_sums, rows, width, kind, parts, added});
    return dx;
}

}  // namespace mgplan::model
