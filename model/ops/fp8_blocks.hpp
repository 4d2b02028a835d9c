#pragma once
// Products in fp8 with a scale for each block of values: 128 adjacent ones, or 128 x 128, with powers of two in fp32 (Transformer
// Engine's Float8BlockScaling, pytorch/tensor/float8_blockwise_tensor.py, with its defaults), or 32 adjacent ones with a power of two
// in a byte (MXFP8BlockScaling, pytorch/tensor/mxfp8_tensor.py). All codes are e4m3.

#include <cstdint>
#include <string_view>

#include "model/device/device.hpp"
#include "model/device/tensor.hpp"
#include "model/ops/fp8_scaling.hpp"
#include "model/ops/product_algorithm.hpp"

namespace mgplan::model {

/// Codes (outer, inner) and their scales, in the layout of Fp8ScaleLayout(scaling, outer, inner): fp32, or bytes under Dtype::fp8.
struct Fp8Blocks {
    Tensor codes, scales;
    Fp8Scaling scaling = Fp8Scaling::vectors_of_128;
    [[nodiscard]] bool defined() const { return codes.defined(); }
};

/// Type of scales in memory.
[[nodiscard]] constexpr Dtype fp8_scale_dtype(Fp8Scaling scaling) {
    return scaling == Fp8Scaling::vectors_of_32 ? Dtype::fp8 : Dtype::fp32;
}

/// Undefined codes and scales of a matrix.
[[nodiscard]] Fp8Blocks empty_blocks(Device& device, Fp8Scaling scaling, std::int64_t outer, std::int64_t inner, MemoryCategory category,
                                     std::string_view name);

/// A cast of x (rows, columns) as it lies, blocks along its rows: codes of x's shape. Each block's scale makes its largest magnitude at
/// most the format's largest value; NaNs are no magnitudes.
void quantise_blocks(const Tensor& x, const Fp8Blocks& into);
[[nodiscard]] Fp8Blocks quantise_rows(const Tensor& x, Fp8Scaling scaling, std::string_view name);

/// Layout of codes of columns: that of the values, which a gather of rows needs, or turned, as a product reads them.
enum class ColumnCodes : std::uint8_t { as_rows, turned };

/// A cast of x (rows, columns) with blocks along its columns, for a product along the rows: scales are those of the matrix (columns, rows)
/// that turn_columns() makes, codes lie as x does or as that matrix. Vectors, and turned squares.
struct Fp8Columns {
    Tensor codes, scales;
    Fp8Scaling scaling = Fp8Scaling::vectors_of_128;
    ColumnCodes lie = ColumnCodes::as_rows;
    [[nodiscard]] bool defined() const { return codes.defined(); }
};
[[nodiscard]] Fp8Columns quantise_columns(const Tensor& x, Fp8Scaling scaling, ColumnCodes lie, std::string_view name);
void quantise_columns(const Tensor& x, const Fp8Columns& into);
/// Transposed codes with the same scales; codes that are turned already stay.
[[nodiscard]] Fp8Blocks turn_columns(const Fp8Columns& columns);

/// Both casts of one matrix from one read of it, as Transformer Engine makes them (pytorch/csrc/quantizer.cpp).
struct Fp8BothWays {
    Fp8Blocks rows;
    Fp8Columns columns;
};
[[nodiscard]] Fp8BothWays quantise_both_ways(const Tensor& x, Fp8Scaling scaling, ColumnCodes lie, std::string_view rows_name,
                                             std::string_view columns_name);
/// `scale_rows`: rows in the layout of the rows' scales, which may exceed those of x; 0: those of x. Columns of squares are turned.
void quantise_both_ways(const Tensor& x, const Fp8Blocks& rows, const Fp8Columns& columns, std::int64_t scale_rows = 0);

/// a (m, k) · bᵀ, b (n, k) -> (m, n) of type `out`. Not both have squares. Sums in fp32. 2mnk FLOPs.
[[nodiscard]] Tensor block_matmul(const Fp8Blocks& a, const Fp8Blocks& b, Dtype out, std::string_view name,
                                  ProductAlgorithm algorithm = ProductAlgorithm::first);
/// out += a · bᵀ, and out = a · bᵀ; out of any float type.
void block_matmul_accumulate(const Fp8Blocks& a, const Fp8Blocks& b, const Tensor& out,
                             ProductAlgorithm algorithm = ProductAlgorithm::first);
void block_matmul_write(const Fp8Blocks& a, const Fp8Blocks& b, const Tensor& out, ProductAlgorithm algorithm = ProductAlgorithm::first);

/// Sizes of products with vectors of 32 are multiples of this, those of others of kFp8Multiple (Transformer Engine,
/// pytorch/tensor/mxfp8_tensor.py, is_quantizable).
inline constexpr std::int64_t kMxfp8Multiple = 32;

}  // namespace mgplan::model
