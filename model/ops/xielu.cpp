#include "model/ops/xielu.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

void expect_values(const Tensor& x, const Tensor& positive, const Tensor& negative) {
    expect_float(x, "x of xielu");
    MGPLAN_ASSERT(x.shape().rank() >= 1, "x of xielu has columns");
    for (const Tensor& value : {positive, negative}) {
        expect_shape(value, {1}, "trained value of xielu");
        expect_dtype(value, x.dtype(), "trained value of xielu");
    }
    expect_same_device(x, positive, negative);
}

}  // namespace

Tensor xielu(const Tensor& x, const Tensor& positive, const Tensor& negative) {
    expect_values(x, positive, negative);
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "activation output");
    device.report({"xielu", 8.0 * static_cast<double>(x.elements()), total_bytes(x, positive, negative), y.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().xielu(device, {x, positive, negative, y, x.elements()});
    return y;
}

Tensor xielu_backward(const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative, const Tensor& d_positive,
                      const Tensor& d_negative) {
    expect_values(x, positive, negative);
    expect_shape(dy, x.shape(), "dy of xielu_backward");
    expect_dtype(dy, x.dtype(), "dy of xielu_backward");
    for (const Tensor& gradient : {d_positive, d_negative}) {
        expect_shape(gradient, {1}, "gradient of a trained value of xielu");
        expect_accumulator(gradient, x, "gradient of a trained value of xielu");
    }
    expect_dtype(d_negative, d_positive.dtype(), "gradients of both trained values of xielu");
    expect_same_device(x, dy, d_positive, d_negative);
    Device& device = x.device();
    Tensor dx = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "activation input gradient");
    const std::int64_t parts = column_sum_parts(device.traits(), x.shape().rows());
    const Tensor sums = device.empty({parts, 2}, statistics_dtype(x.dtype()), MemoryCategory::workspace, "sums of trained values");
    device.report({"xielu_backward", 20.0 * static_cast<double>(x.elements()), total_bytes(dy, x, positive, negative),
                   total_bytes(dx, d_positive, d_negative), 2 + 2 * column_sum_launches(parts)});
    if (device.computes() && x.elements() > 0) {
        device.kernels().xielu_backward(
            device, {dy, x, positive, negative, dx, d_positive, d_negative, sums, x.shape().rows(), x.shape()[-1], parts});
    }
    return dx;
}

}  // namespace mgplan::model
