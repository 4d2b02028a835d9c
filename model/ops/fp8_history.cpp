#include "model/ops/fp8_history.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

void raise_largest(const Tensor& x, const Tensor& largest) {
    expect_float(x, "x of raise_largest");
    expect_dtype(largest, Dtype::fp32, "the largest magnitude");
    expect_shape(largest, {1}, "the largest magnitude");
    expect_same_device(x, largest);
    Device& device = x.device();
    device.report({"largest_magnitude", static_cast<double>(x.elements()), x.bytes(), bytes_of(Dtype::fp32)});
    if (device.computes()) device.kernels().largest(device, {x, largest, x.elements(), true});
}

void follow_largest(const Tensor& now, const Tensor& history, const Tensor& scales, double unit) {
    const std::int64_t tensors = now.elements();
    for (const Tensor& each : {now, history, scales}) expect_dtype(each, Dtype::fp32, "largest magnitudes");
    expect_shape(now, {tensors}, "largest magnitudes of a step");
    expect_shape(history, {tensors, kFp8HistoryLength + 1}, "a history of largest magnitudes");
    expect_shape(scales, {tensors, kFp8ScaleElements}, "scales of fp8");
    expect_same_device(now, history, scales);
    Device& device = now.device();
    device.report({"follow_largest", 0, total_bytes(now, history), scales.bytes()});
    if (device.computes() && tensors > 0) device.kernels().follow_largest(device, {now, history, scales, tensors, kFp8HistoryLength, unit});
}

}  // namespace mgplan::model
