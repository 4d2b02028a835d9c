#include "model/ops/short_conv.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

struct ShortConvSizes {
    std::int64_t rows, width, taps;
};

ShortConvSizes sizes_of(const Tensor& projected, const Tensor& weight, std::int64_t batch) {
    expect_float(projected, "projection of short_conv");
    MGPLAN_ASSERT(projected.shape().rank() == 2 && batch > 0 && projected.shape()[0] % batch == 0,
                  "the projection of short_conv has rows of each place and sequence");
    MGPLAN_ASSERT(weight.shape().rank() == 3 && weight.shape()[2] > 0, "weight of short_conv has taps");
    const ShortConvSizes sizes{projected.shape()[0], weight.shape()[0], weight.shape()[2]};
    expect_shape(projected, {sizes.rows, 3 * sizes.width}, "projection of short_conv");
    expect_shape(weight, {sizes.width, 1, sizes.taps}, "weight of short_conv");
    expect_dtype(weight, projected.dtype(), "weight of short_conv");
    expect_same_device(projected, weight);
    return sizes;
}

}  // namespace

Tensor short_conv(const Tensor& projected, const Tensor& weight, std::int64_t batch) {
    const auto [rows, width, taps] = sizes_of(projected, weight, batch);
    Device& device = projected.device();
    Tensor y = device.empty({rows, width}, projected.dtype(), MemoryCategory::activations, "short convolution");
    // Two operations a tap, and the products before and after it.
    device.report({"short_conv", static_cast<double>(y.elements()) * (2.0 * static_cast<double>(taps) + 2), total_bytes(projected, weight),
                   y.bytes()});
    if (!device.computes()) return y;
    device.kernels().short_conv(device, {projected, weight, y, rows / batch, batch, width, taps});
    return y;
}

Tensor short_conv_backward(const Tensor& dy, const Tensor& projected, const Tensor& weight, std::int64_t batch,
                           const Tensor& weight_gradient) {
    const auto [rows, width, taps] = sizes_of(projected, weight, batch);
    expect_shape(dy, {rows, width}, "dy of short_conv");
    expect_dtype(dy, projected.dtype(), "dy of short_conv");
    expect_shape(weight_gradient, weight.shape(), "weight gradient of short_conv");
    expect_accumulator(weight_gradient, projected, "weight gradient of short_conv");
    expect_same_device(projected, dy, weight_gradient);
    Device& device = projected.device();
    Tensor d_projected =
        device.empty(projected.shape(), projected.dtype(), MemoryCategory::activations, "gradient of the short convolution's projection");
    const std::int64_t parts = column_sum_parts(device.traits(), rows);
    const Tensor column_sums =
        device.empty({parts, width, taps}, statistics_dtype(projected.dtype()), MemoryCategory::workspace, "short convolution column sums");
    // The forward again, and each of its sums over taps twice more: for the input and for the weight.
    device.report({"short_conv_backward", static_cast<double>(dy.elements()) * (6.0 * static_cast<double>(taps) + 6),
                   total_bytes(dy, projected, weight, weight_gradient), total_bytes(d_projected, weight_gradient),
                   2 + column_sum_launches(parts)});
    if (!device.computes()) return d_projected;
    device.kernels().short_conv_backward(
        device, {dy, projected, weight, d_projected, weight_gradient, column_sums, rows / batch, batch, width, taps, parts});
    return d_projected;
}

}  // namespace mgplan::model
