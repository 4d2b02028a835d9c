#include "model/ops/gated_norm.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

void expect_gated_norm(const Tensor& x, const Tensor& gates, Columns z, const Tensor& weight, const GatedNormOptions& options) {
    expect_float(x, "x of gated_norm");
    MGPLAN_ASSERT(x.shape().rank() == 2 && gates.shape().rank() == 2 && gates.shape()[0] == x.shape()[0],
                  "x of gated_norm has a gate a row");
    const std::int64_t width = x.shape()[1];
    expect_dtype(gates, x.dtype(), "gates of gated_norm");
    MGPLAN_ASSERT(z.begin >= 0 && z.width == width && z.begin + width <= gates.shape()[1], "the gate of gated_norm is columns of gates");
    MGPLAN_ASSERT(options.group > 0 && width % options.group == 0, "groups of gated_norm divide its width");
    if (weight.defined()) {
        const std::int64_t weights = weight.elements();
        MGPLAN_ASSERT(weights == width || weights == options.group, "weight of gated_norm is of the width or of a group");
        expect_dtype(weight, x.dtype(), "weight of gated_norm");
    }
    expect_same_device(x, gates, weight);
}

}  // namespace

Tensor gated_norm(const Tensor& x, const Tensor& gates, Columns z, const Tensor& weight, const GatedNormOptions& options,
                  Tensor& inverse_deviation) {
    expect_gated_norm(x, gates, z, weight, options);
    const std::int64_t rows = x.shape()[0], width = x.shape()[1];
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "gated norm output");
    inverse_deviation = !weight.defined() ? Tensor()
                                          : device.empty({rows, width / options.group}, statistics_dtype(x.dtype()),
                                                         MemoryCategory::activations, "gated norm inverse deviation");
    // The norm takes four operations a value, the gate about nine.
    device.report({"gated_norm", (weight.defined() ? 13.0 : 9.0) * static_cast<double>(x.elements()), 2 * x.bytes() + total_bytes(weight),
                   total_bytes(y, inverse_deviation)});
    if (!device.computes() || x.elements() == 0) return y;
    device.kernels().gated_norm(
        device, {x, gates, weight, y, inverse_deviation, rows, width, options.group, weight.defined() ? weight.elements() : width,
                 gates.shape()[1], z.begin, options.gate_first, options.sigmoid_gate, options.epsilon});
    return y;
}

Tensor gated_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gates, Columns z, const Tensor& weight,
                           const Tensor& inverse_deviation, const GatedNormOptions& options, const Tensor& d_gates,
                           const Tensor& weight_gradient) {
    expect_gated_norm(x, gates, z, weight, options);
    const std::int64_t rows = x.shape()[0], width = x.shape()[1];
    const Dtype kept = statistics_dtype(x.dtype());
    expect_shape(dy, x.shape(), "dy of gated_norm");
    expect_dtype(dy, x.dtype(), "dy of gated_norm");
    expect_shape(d_gates, gates.shape(), "gradient of the gates of gated_norm");
    expect_dtype(d_gates, x.dtype(), "gradient of the gates of gated_norm");
    if (weight.defined()) {
        expect_shape(inverse_deviation, {rows, width / options.group}, "inverse deviation of gated_norm");
        expect_dtype(inverse_deviation, kept, "inverse deviation of gated_norm");
        expect_elements(weight_gradient, weight.elements(), "weight gradient of gated_norm");
        expect_accumulator(weight_gradient, x, "weight gradient of gated_norm");
    }
    expect_same_device(x, dy, d_gates, inverse_deviation);
    Device& device = x.device();
    Tensor dx = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "gated norm input gradient");
    const std::int64_t parts = column_sum_parts(device.traits(), rows), weights = weight.defined() ? weight.elements() : width;
    const Tensor column_sums =
        weight.defined() ? device.empty({parts, weights}, kept, MemoryCategory::workspace, "gated norm column sums") : Tensor();
    device.report({"gated_norm_backward", (weight.defined() ? 30.0 : 18.0) * static_cast<double>(x.elements()),
                   dy.bytes() + 2 * x.bytes() + total_bytes(weight, inverse_deviation, weight_gradient),
                   2 * dx.bytes() + total_bytes(weight_gradient), weight.defined() ? 2 + column_sum_launches(parts) : 1});
    if (!device.computes() || x.elements() == 0) return dx;
    device.kernels().gated_norm_backward(
        device, {dy, x, gates, weight, inverse_deviation, dx, d_gates, weight_gradient, column_sums, rows, width, options.group, weights,
                 gates.shape()[1], z.begin, options.gate_first, options.sigmoid_gate, parts});
    return dx;
}

}  // namespace mgplan::model
