#include "model/ops/bias.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

/// Returns the launches for the rows of one expert; none if it has no rows.
std::int64_t launches_of(const Tensor& rows, std::int64_t launches) {
    return rows.elements() > 0 ? launches : 0;
}

}  // namespace

void add_bias(const Tensor& x, const Tensor& bias) {
    expect_float(x, "x of add_bias");
    MGPLAN_ASSERT(x.shape().rank() >= 1, "x of add_bias has columns");
    expect_shape(bias, {x.shape()[-1]}, "bias");
    expect_dtype(bias, x.dtype(), "bias");
    expect_same_device(x, bias);
    Device& device = x.device();
    device.report({"add_bias", static_cast<double>(x.elements()), total_bytes(x, bias), x.bytes(), launches_of(x, 1)});
    if (device.computes() && x.elements() > 0) device.kernels().add_bias(device, {x, bias, x.shape().rows(), x.shape()[-1]});
}

void add_weighted_bias(const Tensor& x, const Tensor& bias, const Tensor& row_weights) {
    expect_float(x, "x of add_weighted_bias");
    MGPLAN_ASSERT(x.shape().rank() >= 1, "x of add_weighted_bias has columns");
    expect_shape(bias, {x.shape()[-1]}, "bias");
    expect_dtype(bias, x.dtype(), "bias");
    expect_elements(row_weights, x.shape().rows(), "row weights of a bias");
    expect_dtype(row_weights, statistics_dtype(x.dtype()), "row weights of a bias");
    expect_same_device(x, bias, row_weights);
    Device& device = x.device();
    device.report(
        {"add_weighted_bias", 2.0 * static_cast<double>(x.elements()), total_bytes(x, bias, row_weights), x.bytes(), launches_of(x, 1)});
    if (device.computes() && x.elements() > 0) device.kernels().add_bias(device, {x, bias, x.shape().rows(), x.shape()[-1], row_weights});
}

void bias_gradient(const Tensor& dy, const Tensor& gradient) {
    expect_float(dy, "dy of bias_gradient");
    MGPLAN_ASSERT(dy.shape().rank() >= 1, "dy of bias_gradient has columns");
    expect_shape(gradient, {dy.shape()[-1]}, "bias gradient");
    expect_accumulator(gradient, dy, "bias gradient");
    Device& device = dy.device();
    const std::int64_t width = dy.shape()[-1], parts = column_sum_parts(device.traits(), dy.shape().rows());
    const Tensor column_sums = device.empty({parts, width}, statistics_dtype(dy.dtype()), MemoryCategory::workspace, "bias column sums");
    device.report({"bias_gradient", static_cast<double>(dy.elements()), total_bytes(dy, gradient), gradient.bytes(),
                   launches_of(dy, 1 + column_sum_launches(parts))});
    if (device.computes() && dy.elements() > 0) {
        device.kernels().bias_gradient(device, {dy, gradient, column_sums, dy.shape().rows(), width, parts});
    }
}

void weighted_bias_gradient(const Tensor& dy, const Tensor& bias, const Tensor& row_weights, const Tensor& gradient,
                            const Tensor& d_row_weights) {
    expect_float(dy, "dy of weighted_bias_gradient");
    MGPLAN_ASSERT(dy.shape().rank() >= 1, "dy of weighted_bias_gradient has columns");
    const std::int64_t rows = dy.shape().rows(), width = dy.shape()[-1];
    expect_shape(bias, {width}, "bias");
    expect_dtype(bias, dy.dtype(), "bias");
    expect_shape(gradient, {width}, "bias gradient");
    expect_accumulator(gradient, dy, "bias gradient");
    for (const Tensor& weights : {row_weights, d_row_weights}) {
        expect_elements(weights, rows, "row weights of a bias");
        expect_dtype(weights, statistics_dtype(dy.dtype()), "row weights of a bias");
    }
    expect_same_device(dy, bias, row_weights, gradient, d_row_weights);
    Device& device = dy.device();
    const std::int64_t parts = column_sum_parts(device.traits(), rows);
    const Tensor column_sums = device.empty({parts, width}, statistics_dtype(dy.dtype()), MemoryCategory::workspace, "bias column sums");
    device.report({"weighted_bias_gradient", 4.0 * static_cast<double>(dy.elements()),
                   total_bytes(dy, bias, row_weights, gradient, d_row_weights), total_bytes(gradient, d_row_weights),
                   launches_of(dy, 2 + column_sum_launches(parts))});
    if (device.computes() && dy.elements() > 0) {
        device.kernels().bias_gradient(device, {dy, gradient, column_sums, rows, width, parts, bias, row_weights, d_row_weights});
    }
}

}  // namespace mgplan::model
