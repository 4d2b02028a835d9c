#include "model/ops/dropout.hpp"

#include <array>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {
namespace {

void expect_place(const Tensor& x, const DropoutPlace& place) {
    MGPLAN_ASSERT(x.shape().rank() == 2, "dropout works on rows and columns");
    MGPLAN_ASSERT(place.probability >= 0 && place.probability < 1, "the probability of dropout lies in [0, 1)");
    if (place.probability == 0) return;
    MGPLAN_ASSERT(!place.changing.defined() || (place.changing.dtype() == Dtype::int32 && place.changing.elements() == kDropoutWords),
                  "seed and first sequence of dropout are four words");
    MGPLAN_ASSERT(place.first_row >= 0 && place.first_row + x.shape()[0] <= place.positions.rows(), "the rows of dropout have positions");
}

Input changing_of(const DropoutPlace& place) {
    return place.changing.defined() ? Input(place.changing) : Input{};
}

}  // namespace

void write_dropout_words(const Tensor& words, std::uint64_t seed, std::int64_t first_sequence) {
    const auto first = static_cast<std::uint64_t>(first_sequence);
    const std::array<std::uint32_t, kDropoutWords> values{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                                                          static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32)};
    words.device().write(words, values.data());
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, const DropoutPlace& place) {
    expect_float(x, "x of dropout");
    expect_place(x, place);
    expect_dtype(residual, x.dtype(), "residual of dropout");
    expect_shape(residual, x.shape(), "residual of dropout");
    expect_same_device(x, residual);
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "residual stream");
    device.report(
        {"dropout_add", (place.probability > 0 ? 3.0 : 1.0) * static_cast<double>(x.elements()), total_bytes(x, residual), y.bytes()});
    if (device.computes() && x.elements() > 0) {
        device.kernels().dropout(device, {x, residual, y, x.shape()[0], x.shape()[1], &place, changing_of(place)});
    }
    return y;
}

Tensor dropout_backward(const Tensor& dy, const DropoutPlace& place) {
    expect_float(dy, "dy of dropout");
    expect_place(dy, place);
    if (place.probability == 0) return dy;
    Device& device = dy.device();
    Tensor dx = device.empty(dy.shape(), dy.dtype(), MemoryCategory::activations, "dropout input gradient");
    device.report({"dropout_backward", 2.0 * static_cast<double>(dy.elements()), dy.bytes(), dx.bytes()});
    if (device.computes() && dy.elements() > 0) {
        device.kernels().dropout(device, {dy, {}, dx, dy.shape()[0], dy.shape()[1], &place, changing_of(place)});
    }
    return dx;
}

}  // namespace mgplan::model
