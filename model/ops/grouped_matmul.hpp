#pragma once
// Matrix products of groups of rows, each with a matrix of its own: the experts of an MoE layer. The rows of group g follow
// those of the groups before it; groups may be empty. 16-bit inputs accumulate in fp32 and are rounded once.

#include <cstdint>
#include <span>
#include <string_view>

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// a (Σ rows, k) times b[g] (k, n), or its transpose (n, k) -> (Σ rows, n) of a's dtype. 2·Σ rows·n·k FLOPs.
[[nodiscard]] Tensor grouped_matmul(const Tensor& a, std::span<const Tensor> b, std::span<const std::int64_t> rows, bool transpose_b,
                                    std::string_view name);

/// out[g] (m, n) += a_gᵀ · b_g for a (Σ rows, m) and b (Σ rows, n); out may be fp32 where a and b are 16-bit.
void grouped_matmul_accumulate(const Tensor& a, const Tensor& b, std::span<const std::int64_t> rows, std::span<const Tensor> out);

}  // namespace mgplan::model
