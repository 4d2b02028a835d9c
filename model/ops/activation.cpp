#include "model/ops/activation.hpp"

#include <fmt/core.h>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {
namespace {

Shape output_shape(const Tensor& x, bool gated) {
    expect_float(x, "x of activation");
    MGPLAN_ASSERT(x.shape().rank() >= 1, "x of activation has columns");
    if (!gated) return x.shape();
    MGPLAN_ASSERT(x.shape()[-1] % 2 == 0, fmt::format("gate and value lie side by side in {}", x.shape().text()));
    return {x.shape().rows(), x.shape()[-1] / 2};
}

void expect_row_weights(const Tensor& row_weights, const Tensor& x) {
    expect_elements(row_weights, x.shape().rows(), "row weights of activation");
    expect_dtype(row_weights, statistics_dtype(x.dtype()), "row weights of activation");
}

/// Rounded number of operations per value of y: about eight for the function itself, one each for gate and weight.
double operations(const Tensor& y, bool gated, bool weighted) {
    return (8.0 + (gated ? 1 : 0) + (weighted ? 1 : 0)) * static_cast<double>(y.elements());
}

Tensor forward(const Tensor& x, const Tensor& row_weights, Activation kind, bool gated) {
    MGPLAN_ASSERT(kind != Activation::xielu, "xIELU is an op of its own");
    const Shape shape = output_shape(x, gated);
    expect_same_device(x, row_weights);
    Device& device = x.device();
    Tensor y = device.empty(shape, x.dtype(), MemoryCategory::activations, "activation output");
    device.report({"activation", operations(y, gated, row_weights.defined()), total_bytes(x, row_weights), y.bytes()});
    if (device.computes() && y.elements() > 0) {
        device.kernels().activation(device, {x, row_weights, y, shape.rows(), shape[-1], kind, gated});
    }
    return y;
}

Tensor backward(const Tensor& dy, const Tensor& x, const Tensor& row_weights, const Tensor& d_row_weights, Activation kind, bool gated) {
    const Shape shape = output_shape(x, gated);
    MGPLAN_ASSERT(dy.shape().rows() == shape.rows() && dy.shape()[-1] == shape[-1], "dy has the shape of the activation's output");
    expect_dtype(dy, x.dtype(), "dy of activation_backward");
    expect_same_device(x, dy, row_weights);
    Device& device = x.device();
    Tensor dx = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "activation input gradient");
    device.report({"activation_backward", 2 * operations(dy, gated, row_weights.defined()), total_bytes(dy, x, row_weights),
                   total_bytes(dx, d_row_weights), d_row_weights.defined() ? 2 : 1});
    if (device.computes() && x.shape().rows() > 0) {
        device.kernels().activation_backward(device, {dy, x, row_weights, dx, d_row_weights, shape.rows(), shape[-1], kind, gated});
    }
    return dx;
}

}  // namespace

Tensor activation(const Tensor& x, Activation kind, bool gated) {
    return forward(x, {}, kind, gated);
}

Tensor activation_backward(const Tensor& dy, const Tensor& x, Activation kind, bool gated) {
    return backward(dy, x, {}, {}, kind, gated);
}

Tensor weighted_activation(const Tensor& x, const Tensor& row_weights, Activation kind, bool gated) {
    expect_float(x, "x of activation");
    expect_row_weights(row_weights, x);
    return forward(x, row_weights, kind, gated);
}

Tensor weighted_activation_backward(const Tensor& dy, const Tensor& x, const Tensor& row_weights, Activation kind, bool gated,
                                    Tensor& d_row_weights) {
    expect_float(x, "x of activation_backward");
    expect_row_weights(row_weights, x);
    d_row_weights = x.device().empty({x.shape().rows()}, row_weights.dtype(), MemoryCategory::activations, "row weight gradient");
    return backward(dy, x, row_weights, d_row_weights, kind, gated);
}

}  // namespace mgplan::model
