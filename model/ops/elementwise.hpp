#pragma once
// Element-by-element work on tensors of equal shape.

#include <span>

#include "model/device/memory_use.hpp"
#include "model/device/tensor.hpp"

namespace mgplan::model {

void copy(const Tensor& from, const Tensor& to);  ///< converts between dtypes
void add(const Tensor& x, const Tensor& into);    ///< into += x; into may be fp32 where x is 16-bit
void scale(const Tensor& x, double factor);       ///< in place
void scale_columns(const Tensor& x, std::int64_t begin, std::int64_t width, double factor);  ///< those of every row of (rows, n), in place
void soft_cap(const Tensor& x, double cap);                                                  ///< in place: cap · tanh(x / cap)
void clip(const Tensor& x, double bound);                                                    ///< in place, to ± bound
/// In place: the gradient of what was clipped to `clipped` is 0 where a bound was reached. Both of one dtype.
void clip_gradient(const Tensor& gradient, const Tensor& clipped, double bound);
void fill(const Tensor& x, double value);

/// Sum of squares of all elements in fp64, in an order that depends on their number alone: fully deterministic. Waits for the device; 0 on
/// the meta device.
[[nodiscard]] double sum_of_squares(const Tensor& x);
/// The same of each array, all of one device, into `sums` (n) fp64, which stay there: one op with few kernels.
void sums_of_squares(std::span<const Tensor> arrays, const Tensor& sums);

/// Columns [begin, end) of a (rows, n) tensor as a tensor of their own, and the way back (those columns of `into`
/// are overwritten). The new tensor counts as `category`.
[[nodiscard]] Tensor columns(const Tensor& x, std::int64_t begin, std::int64_t end, MemoryCategory category = MemoryCategory::activations);
void set_columns(const Tensor& part, const Tensor& into, std::int64_t begin);

/// (a, b, c) -> (b, a, c): the layout change around all-to-alls.
[[nodiscard]] Tensor swap_leading(const Tensor& x);

}  // namespace mgplan::model
