#pragma once
// Products in fp8 with one scale for each tensor, from the values as they are (current scaling: Transformer Engine,
// transformer_engine/common/recipe/current_scaling.cu, pytorch/csrc/quantizer.cpp, Float8CurrentScalingQuantizer).

#include <cstdint>
#include <span>
#include <string_view>

#include "model/device/tensor.hpp"
#include "model/ops/product_algorithm.hpp"

namespace mgplan::model {

/// Codes in fp8 (e4m3) or e5m2, and their scale: (2) fp32, the largest magnitude of the values, and the factor from codes to
/// values. For rows in groups, such a pair for each group: (groups, 2), with undefined values if the group is empty.
struct Fp8Tensor {
    Tensor codes, scale;
    Tensor turned{};  ///< the codes transposed to (columns, rows), where a cast wrote them; codes may be undefined then
    [[nodiscard]] bool defined() const { return codes.defined(); }
};

/// The codes that a cast of a matrix writes.
enum class Fp8Copies : std::uint8_t { rows, turned, both };
/// Returns codes, not written yet, for a cast of x into fp8 or e5m2, with a scale.
[[nodiscard]] Fp8Tensor empty_codes(const Tensor& x, Dtype dtype, const Tensor& scale, Fp8Copies copies, std::string_view name);

/// Elements of a scale.
inline constexpr std::int64_t kFp8ScaleElements = 2;

/// First half of a cast: writes the largest magnitude of x into scale (2) fp32. Ranks whose values have one scale take the maximum of
/// scale[0] then. NaNs are no magnitudes.
void find_largest(const Tensor& x, const Tensor& scale);
/// Second half: codes of x's shape = x times the factor that maps scale[0] to the type's largest value, to the nearest and ties to even,
/// saturated at that value; scale[1] = the inverse of the factor. If the largest magnitude is 0 or infinity, the factor is 1. Writes those
/// of codes and turned codes that are defined from one read of x.
void quantise(const Tensor& x, const Fp8Tensor& into);

/// A cast of one of many arrays.
struct Fp8Cast {
    Tensor x;
    Fp8Tensor into;
};
/// quantise() of each, all of one type and device and into e4m3, in a few kernels.
void quantise_all(std::span<const Fp8Cast> casts);

/// codes (rows, columns) as (columns, rows).
[[nodiscard]] Tensor transpose_codes(const Tensor& codes);
/// The same into a given tensor, (columns, rows) or longer: zeros follow, which add nothing to a product along the rows.
void transpose_codes(const Tensor& codes, const Tensor& into);

/// a (m, k) · bᵀ, b (n, k) -> (m, n) of type `out`; both lie along k, the one layout that Hopper's tensor cores multiply fp8 in. At most
/// one is e5m2. Sums in fp32. 2mnk FLOPs.
[[nodiscard]] Tensor fp8_matmul(const Fp8Tensor& a, const Fp8Tensor& b, Dtype out, std::string_view name,
                                ProductAlgorithm algorithm = ProductAlgorithm::first);
/// out += a · bᵀ, and out = a · bᵀ; out of any float type.
void fp8_matmul_accumulate(const Fp8Tensor& a, const Fp8Tensor& b, const Tensor& out, ProductAlgorithm algorithm = ProductAlgorithm::first);
void fp8_matmul_write(const Fp8Tensor& a, const Fp8Tensor& b, const Tensor& out, ProductAlgorithm algorithm = ProductAlgorithm::first);

/// Sizes of products in fp8 that cuBLASLt has kernels for are multiples of this (cuBLAS documentation, "cublasLtMatmul", FP8).
inline constexpr std::int64_t kFp8Multiple = 16;

}  // namespace mgplan::model
