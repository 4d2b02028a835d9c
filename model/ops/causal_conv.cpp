#include "model/ops/causal_conv.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

std::int64_t taps_of(const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch) {
    expect_float(x, "x of causal_conv");
    MGPLAN_ASSERT(x.shape().rank() == 2 && batch > 0 && x.shape()[0] % batch == 0, "x of causal_conv has rows of each place and sequence");
    MGPLAN_ASSERT(channels.begin >= 0 && channels.width > 0 && channels.begin + channels.width <= x.shape()[1],
                  "the channels of causal_conv are columns of x");
    MGPLAN_ASSERT(weight.shape().rank() == 3 && weight.shape()[2] > 0, "weight of causal_conv has taps");
    expect_shape(weight, {channels.width, 1, weight.shape()[2]}, "weight of causal_conv");
    expect_dtype(weight, x.dtype(), "weight of causal_conv");
    if (bias.defined()) {
        expect_shape(bias, {channels.width}, "bias of causal_conv");
        expect_dtype(bias, x.dtype(), "bias of causal_conv");
    }
    expect_same_device(x, weight, bias);
    return weight.shape()[2];
}

/// Bytes of the channels alone.
std::int64_t bytes_of_columns(const Tensor& x, Columns channels) {
    return x.bytes() / x.shape()[1] * channels.width;
}

}  // namespace

Tensor causal_conv(const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch) {
    const std::int64_t taps = taps_of(x, channels, weight, bias, batch), rows = x.shape()[0];
    Device& device = x.device();
    Tensor y = device.empty({rows, channels.width}, x.dtype(), MemoryCategory::activations, "convolved channels");
    // Two operations a tap, about eight for SiLU.
    device.report({"causal_conv", static_cast<double>(y.elements()) * (2.0 * static_cast<double>(taps) + 8),
                   bytes_of_columns(x, channels) + total_bytes(weight, bias), y.bytes()});
    if (!device.computes()) return y;
    device.kernels().causal_conv(device, {x, weight, bias, y, rows / batch, batch, channels.width, taps, x.shape()[1], channels.begin});
    return y;
}

void causal_conv_backward(const Tensor& dy, const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch,
                          const Tensor& dx, const Tensor& weight_gradient, const Tensor& bias_gradient) {
    const std::int64_t taps = taps_of(x, channels, weight, bias, batch), rows = x.shape()[0];
    expect_shape(dy, {rows, channels.width}, "dy of causal_conv");
    expect_dtype(dy, x.dtype(), "dy of causal_conv");
    expect_shape(dx, x.shape(), "dx of causal_conv");
    expect_dtype(dx, x.dtype(), "dx of causal_conv");
    expect_shape(weight_gradient, weight.shape(), "weight gradient of causal_conv");
    expect_accumulator(weight_gradient, x, "weight gradient of causal_conv");
    MGPLAN_ASSERT(bias.defined() == bias_gradient.defined(), "causal_conv has a bias gradient where it has a bias");
    if (bias.defined()) {
        expect_shape(bias_gradient, bias.shape(), "bias gradient of causal_conv");
        expect_accumulator(bias_gradient, x, "bias gradient of causal_conv");
    }
    expect_same_device(x, dy, dx);
    Device& device = x.device();
    const std::int64_t parts = column_sum_parts(device.traits(), rows);
    const Tensor column_sums =
        device.empty({parts, taps + 1, channels.width}, statistics_dtype(x.dtype()), MemoryCategory::workspace, "convolution column sums");
    const std::int64_t of_channels = bytes_of_columns(x, channels);
    device.report({"causal_conv_backward", static_cast<double>(dy.elements()) * (6.0 * static_cast<double>(taps) + 12),
                   dy.bytes() + of_channels + total_bytes(weight, bias, weight_gradient, bias_gradient),
                   of_channels + total_bytes(weight_gradient, bias_gradient), 3 + (bias.defined() ? column_sum_launches(parts) : 0)});
    if (!device.computes()) return;
    device.kernels().causal_conv_backward(device, {dy, x, weight, bias, dx, weight_gradient, bias_gradient, column_sums, rows / batch,
                                                   batch, channels.width, taps, x.shape()[1], channels.begin, parts});
}

}  // namespace mgplan::model
