#pragma once
// Checks shared by the shape rules of the ops. A broken rule is a bug of the caller: std::logic_error, in every build.

#include <string_view>

#include "model/device/device.hpp"
#include "model/device/tensor.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

[[nodiscard]] constexpr bool is_float(Dtype dtype) {
    return dtype == Dtype::fp64 || dtype == Dtype::fp32 || dtype == Dtype::bf16 || dtype == Dtype::fp16;
}

/// Type of sums and statistics over values of this type: fp64 for fp64, else fp32.
[[nodiscard]] constexpr Dtype statistics_dtype(Dtype dtype) {
    return dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
}

/// The tensor has memory and a float type.
void expect_float(const Tensor& tensor, std::string_view what);
void expect_dtype(const Tensor& tensor, Dtype dtype, std::string_view what);
void expect_shape(const Tensor& tensor, const Shape& shape, std::string_view what);
void expect_elements(const Tensor& tensor, std::int64_t elements, std::string_view what);
/// Returns the device of x, a matrix of floats, which must be a meta device: no other implements the op.
[[nodiscard]] Device& known_of_shapes(const Tensor& x, std::string_view what);
/// Number of elements of x, for counts of FLOPs.
[[nodiscard]] inline double element_count(const Tensor& x) {
    return static_cast<double>(x.elements());
}
/// `into` may take sums of `from`: the same type, or fp32 for 16-bit values; same device.
void expect_accumulator(const Tensor& into, const Tensor& from, std::string_view what);

/// `copy` may hold the values of `main`, fp32, rounded: equally many, of a narrower type, bf16 if the device computes; same device.
void expect_rounded_copy(const Tensor& main, const Tensor& copy, std::string_view what);

/// All lie on the device of the first. Undefined tensors count as absent.
template <class... Tensors>
void expect_same_device(const Tensor& first, const Tensors&... others) {
    const Device& device = first.device();
    MGPLAN_ASSERT(((!others.defined() || &others.device() == &device) && ...), "the tensors lie on one device");
}

/// Bytes of all tensors given; undefined ones count nothing.
template <class... Tensors>
[[nodiscard]] std::int64_t total_bytes(const Tensors&... tensors) {
    return ((tensors.defined() ? tensors.bytes() : 0) + ... + 0);
}

}  // namespace mgplan::model
