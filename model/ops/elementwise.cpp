#include "model/ops/elementwise.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {

void copy(const Tensor& from, const Tensor& to) {
    MGPLAN_ASSERT(from.defined() && to.defined(), "both sides of copy have memory");
    MGPLAN_ASSERT(from.dtype() == to.dtype() || (is_float(from.dtype()) && is_float(to.dtype())), "copy converts floats alone");
    expect_elements(to, from.elements(), "the target of copy");
    expect_same_device(from, to);
    Device& device = from.device();
    device.report({"copy", 0, from.bytes(), to.bytes()});
    if (device.computes() && from.elements() > 0) device.kernels().copy(device, {from, to, from.elements()});
}

void add(const Tensor& x, const Tensor& into) {
    expect_accumulator(into, x, "the sum of add");
    expect_elements(into, x.elements(), "the sum of add");
    Device& device = x.device();
    device.report({"add", static_cast<double>(x.elements()), total_bytes(x, into), into.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().add(device, {x, into, x.elements()});
}

void scale(const Tensor& x, double factor) {
    expect_float(x, "x of scale");
    Device& device = x.device();
    device.report({"scale", static_cast<double>(x.elements()), x.bytes(), x.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().scale(device, {x, x.elements(), factor});
}

void scale_columns(const Tensor& x, std::int64_t begin, std::int64_t width, double factor) {
    expect_float(x, "x of scale_columns");
    MGPLAN_ASSERT(x.shape().rank() == 2 && begin >= 0 && width >= 0 && begin + width <= x.shape()[1], "columns inside the tensor");
    Device& device = x.device();
    const std::int64_t rows = x.shape()[0], elements = rows * width, bytes = elements * bytes_of(x.dtype());
    device.report({"scale_columns", static_cast<double>(elements), bytes, bytes});
    if (device.computes() && elements > 0) device.kernels().scale_columns(device, {x, rows, width, x.shape()[1], begin, factor});
}

void soft_cap(const Tensor& x, double cap) {
    expect_float(x, "x of soft_cap");
    MGPLAN_ASSERT(cap > 0, "a soft cap is above 0");
    Device& device = x.device();
    device.report({"soft_cap", static_cast<double>(x.elements()), x.bytes(), x.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().soft_cap(device, {x, x.elements(), cap});
}

void clip(const Tensor& x, double bound) {
    expect_float(x, "x of clip");
    MGPLAN_ASSERT(bound > 0, "values are clipped above 0");
    Device& device = x.device();
    device.report({"clip", static_cast<double>(x.elements()), x.bytes(), x.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().clip(device, {x, {}, x.elements(), bound});
}

void clip_gradient(const Tensor& gradient, const Tensor& clipped, double bound) {
    expect_float(clipped, "what was clipped");
    expect_elements(gradient, clipped.elements(), "gradient of what was clipped");
    expect_dtype(gradient, clipped.dtype(), "gradient of what was clipped");
    expect_same_device(gradient, clipped);
    Device& device = gradient.device();
    device.report({"clip_gradient", static_cast<double>(gradient.elements()), total_bytes(gradient, clipped), gradient.bytes()});
    if (device.computes() && gradient.elements() > 0) device.kernels().clip(device, {gradient, clipped, gradient.elements(), bound});
}

void fill(const Tensor& x, double value) {
    expect_float(x, "x of fill");
    Device& device = x.device();
    device.report({"fill", 0, 0, x.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().fill(device, {x, x.elements(), value});
}

double sum_of_squares(const Tensor& x) {
    const Tensor sum = x.device().empty({1}, Dtype::fp64, MemoryCategory::workspace, "sum of squares");
    sums_of_squares({&x, 1}, sum);
    double value = 0;
    x.device().read(sum, &value);
    return value;
}

void sums_of_squares(std::span<const Tensor> arrays, const Tensor& sums) {
    expect_dtype(sums, Dtype::fp64, "sums of squares");
    expect_elements(sums, std::ssize(arrays), "sums of squares");
    if (arrays.empty()) return;
    Device& device = sums.device();
    OpRecord record{.name = "sum_of_squares", .bytes_written = sums.bytes()};
    std::vector<SquaredArray> all;
    std::vector<std::int64_t> elements;
    bool skips = false;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const Tensor& x = arrays[i];
        expect_float(x, "x of sums_of_squares");
        expect_same_device(sums, x);
        record.flops += 2.0 * static_cast<double>(x.elements());
        record.bytes_read += x.bytes();
        if (x.elements() == 0) {
            skips = true;
            continue;
        }
        const auto place = static_cast<std::int64_t>(i);
        all.push_back({x, sums.slice(place, place + 1), x.elements()});
        elements.push_back(x.elements());
    }
    if (skips) fill(sums, 0);
    record.launches = launches_for_arrays(std::ssize(all));  // of their partial sums
    for (std::size_t from = 0, end = 0; from < all.size(); from = end) {
        while (end < all.size() && all[end].x.dtype == all[from].x.dtype) ++end;
        record.launches += launches_for_arrays(static_cast<std::int64_t>(end - from));
    }
    device.report(record);
    const Tensor scratch = take_scratch(device, sums_of_squares_scratch_bytes(device.traits(), elements), "partial sums");
    if (device.computes() && !all.empty()) device.kernels().sums_of_squares(device, {all.data(), std::ssize(all), scratch});
}

Tensor columns(const Tensor& x, std::int64_t begin, std::int64_t end, MemoryCategory category) {
    MGPLAN_ASSERT(x.defined() && x.shape().rank() >= 1, "x of columns has columns");
    MGPLAN_ASSERT(begin >= 0 && begin <= end && end <= x.shape()[-1], "columns inside the tensor");
    Device& device = x.device();
    const std::int64_t rows = x.shape().rows(), width = end - begin;
    Tensor part = device.empty({rows, width}, x.dtype(), category, "columns");
    device.report({"columns", 0, part.bytes(), part.bytes()});
    if (device.computes() && part.elements() > 0) {
        device.kernels().copy_columns(device, {x, part, rows, width, x.shape()[-1], begin, width, 0});
    }
    return part;
}

void set_columns(const Tensor& part, const Tensor& into, std::int64_t begin) {
    MGPLAN_ASSERT(part.defined() && into.defined(), "both sides of set_columns have memory");
    MGPLAN_ASSERT(part.shape().rank() >= 1 && into.shape().rank() >= 1, "both sides of set_columns have columns");
    expect_dtype(part, into.dtype(), "the columns to set");
    expect_same_device(part, into);
    const std::int64_t rows = into.shape().rows(), width = part.shape()[-1];
    MGPLAN_ASSERT(part.shape().rows() == rows, "both sides of set_columns have as many rows");
    MGPLAN_ASSERT(begin >= 0 && begin + width <= into.shape()[-1], "columns inside the tensor");
    Device& device = into.device();
    device.report({"set_columns", 0, part.bytes(), part.bytes()});
    if (device.computes() && part.elements() > 0) {
        device.kernels().copy_columns(device, {part, into, rows, width, width, 0, into.shape()[-1], begin});
    }
}

Tensor swap_leading(const Tensor& x) {
    MGPLAN_ASSERT(x.defined() && x.shape().rank() == 3, "x of swap_leading has three dimensions");
    const std::int64_t a = x.shape()[0], b = x.shape()[1], c = x.shape()[2];
    Device& device = x.device();
    Tensor y = device.empty({b, a, c}, x.dtype(), MemoryCategory::activations, "swapped dimensions");
    device.report({"swap_leading", 0, x.bytes(), y.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().swap_leading(device, {x, y, a, b, c});
    return y;
}

}  // namespace mgplan::model
