#include "model/ops/sinks.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

/// rows, heads, width
Shape expect_result(const AttentionResult& result, const Tensor& sinks) {
    expect_float(result.output, "output of attention with sinks");
    MGPLAN_ASSERT(result.output.shape().rank() == 3, "the output of attention has rows, heads and values");
    const Shape shape = result.output.shape();
    expect_shape(result.log_sum_exp, {shape[0], shape[1]}, "log-sum-exp of attention with sinks");
    expect_dtype(result.log_sum_exp, statistics_dtype(result.output.dtype()), "log-sum-exp of attention with sinks");
    expect_shape(sinks, {shape[1]}, "attention sinks");
    expect_dtype(sinks, result.output.dtype(), "attention sinks");
    expect_same_device(result.output, result.log_sum_exp, sinks);
    return shape;
}

}  // namespace

void add_sinks(const AttentionResult& result, const Tensor& sinks) {
    const Shape shape = expect_result(result, sinks);
    Device& device = result.output.device();
    device.report({"add_sinks", static_cast<double>(result.output.elements()), total_bytes(result.output, result.log_sum_exp, sinks),
                   total_bytes(result.output, result.log_sum_exp)});
    if (device.computes() && result.output.elements() > 0)
        device.kernels().add_sinks(device, {result.output, result.log_sum_exp, sinks, shape[0], shape[1], shape[2]});
}

void sinks_gradient(const Tensor& d_output, const AttentionResult& result, const Tensor& sinks, const Tensor& gradient) {
    const Shape shape = expect_result(result, sinks);
    expect_shape(d_output, shape, "output gradient of attention with sinks");
    expect_dtype(d_output, result.output.dtype(), "output gradient of attention with sinks");
    expect_shape(gradient, {shape[1]}, "gradient of attention sinks");
    expect_accumulator(gradient, sinks, "gradient of attention sinks");
    expect_same_device(d_output, result.output);
    Device& device = d_output.device();
    const std::int64_t parts = column_sum_parts(device.traits(), shape[0]);
    const Tensor column_sums =
        device.empty({parts, shape[1]}, statistics_dtype(d_output.dtype()), MemoryCategory::workspace, "sums of each head");
    device.report({"sinks_gradient", 2.0 * static_cast<double>(d_output.elements()),
                   total_bytes(d_output, result.output, result.log_sum_exp, sinks, gradient), gradient.bytes(),
                   1 + column_sum_launches(parts)});
    if (device.computes() && d_output.elements() > 0) {
        device.kernels().sinks_gradient(
            device, {d_output, result.output, result.log_sum_exp, sinks, gradient, column_sums, shape[0], shape[1], shape[2], parts});
    }
}

}  // namespace mgplan::model
