#pragma once
// Products in fp8 with a scale for each block, of groups of rows that each have a matrix: the experts of an MoE layer. Blocks along
// columns restart with each group. Groups may be empty: nothing of theirs is read or written.

#include <cstdint>
#include <span>
#include <string_view>

#include "model/ops/fp8_blocks.hpp"

namespace mgplan::model {

/// With vectors cuBLASLt requires a multiple of this number of rows (Transformer Engine, common/gemm/cublaslt_gemm.cu,
/// CanonicalizeGemmInput). A group's last rows are filled up with the rows after them, whose results are overwritten by the
/// next group, or follow the last one: matrices of groups have room for this number of extra rows, which are zeros in codes.
inline constexpr std::int64_t kRowsOfVectors = 8;

/// Casts of x (Σ rows, width), group by group, from one read of it. Blocks along rows: codes (Σ rows + kRowsOfVectors, width), scales of
/// one group after those of another. Blocks along columns: the same, but codes (Σ rows, width), in the order of rows.
[[nodiscard]] Fp8BothWays quantise_groups_both_ways(const Tensor& x, Fp8Scaling scaling, std::span<const std::int64_t> rows,
                                                    std::string_view rows_name, std::string_view columns_name);

/// a (Σ rows, k) · b[g]ᵀ, b (n, k) -> (Σ rows, n) of type `out`. 2·Σ rows·n·k FLOPs.
[[nodiscard]] Tensor block_grouped_matmul(const Fp8Blocks& a, std::span<const Fp8Blocks> b, std::span<const std::int64_t> rows, Dtype out,
                                          std::string_view name);

/// out[g] (m, n) += a_gᵀ · b_g for a (Σ rows, m) and b (Σ rows, n). Both are transposed in front, with zeros up to a multiple of the rows
/// that products want: in scratch for the largest group.
void block_grouped_accumulate(const Fp8Columns& a, const Fp8Columns& b, std::span<const std::int64_t> rows, std::span<const Tensor> out);

}  // namespace mgplan::model
