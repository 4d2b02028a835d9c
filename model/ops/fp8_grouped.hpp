#pragma once
// Products in fp8 of groups of rows, each with a matrix and with scales of its own: the experts of an MoE layer (Transformer Engine,
// pytorch/module/grouped_linear.py, whose quantisers are one for each expert). Groups may be empty: nothing of theirs is read or written.

#include <cstdint>
#include <span>
#include <string_view>

#include "model/ops/fp8.hpp"

namespace mgplan::model {

/// A cast of x (Σ rows, width), group by group: codes of x's shape, a scale for each group.
[[nodiscard]] Fp8Tensor quantise_groups(const Tensor& x, Dtype dtype, std::span<const std::int64_t> rows, std::string_view name);
/// The same by given scales (groups, 2); the largest magnitude of each group's values, unless it is smaller, goes into `largest`
/// (model/ops/fp8_history.hpp, raise_largest).
[[nodiscard]] Fp8Tensor quantise_groups(const Tensor& x, Dtype dtype, std::span<const std::int64_t> rows, const Tensor& scales,
                                        std::span<const Tensor> largest, std::string_view name);

/// a (Σ rows, k) · b[g]ᵀ, b (n, k) -> (Σ rows, n) of type `out`. 2·Σ rows·n·k FLOPs.
[[nodiscard]] Tensor fp8_grouped_matmul(const Fp8Tensor& a, std::span<const Fp8Tensor> b, std::span<const std::int64_t> rows, Dtype out,
                                        std::string_view name);

/// out[g] (m, n) += a_gᵀ · b_g for a (Σ rows, m) and b (Σ rows, n). Both are transposed in front, with zeros up to a multiple of
/// kFp8Multiple rows, for the product reads them along the rows: in scratch for the largest group.
void fp8_grouped_matmul_accumulate(const Fp8Tensor& a, const Fp8Tensor& b, std::span<const std::int64_t> rows, std::span<const Tensor> out);

}  // namespace mgplan::model
