#include "model/ops/fp8_history.hpp"

#include <vector>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {

namespace {

void expect_place(const Tensor& x, const Tensor& largest) {
    expect_float(x, "x of raise_largest");
    expect_dtype(largest, Dtype::fp32, "the largest magnitude");
    expect_shape(largest, {1}, "the largest magnitude");
    expect_same_device(x, largest);
}

/// `raise`: see LargestOfArraysArguments; without it, one more kernel sets the places to 0 first.
void search_all(std::span<const RaisedLargest> all, bool raise) {
    if (all.empty()) return;
    Device& device = all.front().x.device();
    OpRecord record{"largest_magnitude"};
    std::vector<LargestArray> arrays;
    for (const auto& [x, largest] : all) {
        expect_place(x, largest);
        expect_same_device(all.front().x, x);
        expect_dtype(x, all.front().x.dtype(), "arrays of one search");
        MGPLAN_ASSERT(raise || x.elements() > 0, "an array whose largest magnitude is found has values");
        record.flops += static_cast<double>(x.elements());
        record.bytes_read += x.bytes();
        record.bytes_written += bytes_of(Dtype::fp32);
        if (x.elements() > 0) arrays.push_back({x, largest, x.elements()});
    }
    record.launches = launches_for_arrays(std::ssize(arrays)) * (raise ? 1 : 2);
    device.report(record);
    if (device.computes() && !arrays.empty()) device.kernels().largest_of_arrays(device, {arrays.data(), std::ssize(arrays), raise});
}

}  // namespace

void raise_largest(const Tensor& x, const Tensor& largest) {
    expect_place(x, largest);
    Device& device = x.device();
    device.report({"largest_magnitude", static_cast<double>(x.elements()), x.bytes(), bytes_of(Dtype::fp32)});
    if (device.computes()) device.kernels().largest(device, {x, largest, x.elements(), true});
}

void raise_all_largest(std::span<const RaisedLargest> all) {
    search_all(all, true);
}

void find_all_largest(std::span<const RaisedLargest> all) {
    search_all(all, false);
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
