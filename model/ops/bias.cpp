#include "model/ops/bias.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {

void add_bias(const Tensor& x, const Tensor& bias) {
    expect_float(x, "x of add_bias");
    MGPLAN_ASSERT(x.shape().rank() >= 1, "x of add_bias has columns");
    expect_shape(bias, {x.shape()[-1]}, "bias");
    expect_dtype(bias, x.dtype(), "bias");
    expect_same_device(x, bias);
    Device& device = x.device();
    device.report({"add_bias", static_cast<double>(x.elements()), total_bytes(x, bias), x.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().add_bias(device, {x, bias, x.shape().rows(), x.shape()[-1]});
}

void bias_gradient(const Tensor& dy, const Tensor& gradient) {
    expect_float(dy, "dy of bias_gradient");
    MGPLAN_ASSERT(dy.shape().rank() >= 1, "dy of bias_gradient has columns");
    expect_shape(gradient, {dy.shape()[-1]}, "bias gradient");
    expect_accumulator(gradient, dy, "bias gradient");
    Device& device = dy.device();
    const std::int64_t width = dy.shape()[-1], parts = column_sum_parts(device.traits(), dy.shape().rows());
    const Tensor column_sums = device.empty({parts, width}, statistics_dtype(dy.dtype()), MemoryCategory::workspace, "bias column sums");
    device.report({"bias_gradient", static_cast<double>(dy.elements()), total_bytes(dy, gradient), gradient.bytes()});
    if (device.computes() && dy.elements() > 0) {
        device.kernels().bias_gradient(device, {dy, gradient, column_sums, dy.shape().rows(), width, parts});
    }
}

}  // namespace mgplan::model
