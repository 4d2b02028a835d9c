#pragma once
// Layouts of fp8 scales of a matrix that a product reads along its inner size. Those of blocks are as cuBLASLt requires (cuBLAS
// documentation, "Scaling Factors Layouts"; Transformer Engine, pytorch/tensor/float8_blockwise_tensor.py, get_scale_shape, and
// common/swizzle/swizzle.cu).

#include <cstdint>

namespace mgplan::model {

/// Values of a matrix (outer, inner) that share a scale. The scale of a block is the factor from codes to values: fp32, and
/// in vectors of 32 a byte, a power of two (E8M0 of OCP's Microscaling Formats).
enum class Fp8Scaling : std::uint8_t { tensor, vectors_of_128, squares_of_128, vectors_of_32 };

[[nodiscard]] constexpr std::int64_t fp8_block(Fp8Scaling scaling) {
    return scaling == Fp8Scaling::vectors_of_32 ? 32 : 128;
}

/// The place of a block's scale, and the number of places, including those without a block up to a whole tile of the layout.
struct Fp8ScaleLayout {
    Fp8Scaling scaling;
    std::int64_t outer;   ///< rows of the matrix
    std::int64_t blocks;  ///< along its inner size

    static constexpr std::int64_t up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
    constexpr Fp8ScaleLayout(Fp8Scaling how, std::int64_t rows, std::int64_t inner)
        : scaling(how), outer(rows), blocks((inner + fp8_block(how) - 1) / fp8_block(how)) {}

    [[nodiscard]] constexpr std::int64_t count() const {
        if (scaling == Fp8Scaling::vectors_of_128) return blocks * up(outer, 4);
        if (scaling == Fp8Scaling::squares_of_128) return (outer + 127) / 128 * up(blocks, 4);
        return up(outer, 128) * up(blocks, 4);
    }
    [[nodiscard]] constexpr bool has_padding() const {
        if (scaling == Fp8Scaling::vectors_of_128) return outer % 4 != 0;
        return blocks % 4 != 0 || (scaling == Fp8Scaling::vectors_of_32 && outer % 128 != 0);
    }
    /// Vectors of 128: block by block, rows adjacent. Squares: row of squares by row. Vectors of 32: tiles of 128 rows and 4
    /// blocks, in each of which rows 32 apart are adjacent.
    [[nodiscard]] constexpr std::int64_t at(std::int64_t row, std::int64_t block) const {
        if (scaling == Fp8Scaling::vectors_of_128) return block * up(outer, 4) + row;
        if (scaling == Fp8Scaling::squares_of_128) return row / 128 * up(blocks, 4) + block;
        const std::int64_t tile = row / 128 * (up(blocks, 4) / 4) + block / 4, inside = row % 128;
        return tile * 512 + inside % 32 * 16 + inside / 32 * 4 + block % 4;
    }
};

}  // namespace mgplan::model
