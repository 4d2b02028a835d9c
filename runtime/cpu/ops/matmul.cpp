#include <algorithm>
#include <array>
#include <type_traits>

#include "runtime/cpu/ops/blas.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"
#include "runtime/fp8.hpp"
#include "runtime/fp8_blocks.hpp"

namespace mgplan::runtime::cpu {
namespace {

template <class Element>
void multiply(const model::MatmulArguments& x) {
    gemm(x.transpose_a, x.transpose_b, x.m, x.n, x.k, Element{1}, Matrix<const Element>{values<Element>(x.a), x.transpose_a ? x.m : x.k},
         Matrix<const Element>{values<Element>(x.b), x.transpose_b ? x.k : x.n}, Element(x.accumulate ? 1 : 0),
         Matrix<Element>{values<Element>(x.out), x.n});
}

/// Widens (rows, columns) of a bf16 matrix into a dense tile.
void widen(const Bf16* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, float* tile) {
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) tile[row * columns + column] = from[row * pitch + column];
    }
}

/// Returns the value of every code.
template <class Code>
const std::array<float, 256>& values_of_codes() {
    static const std::array<float, 256> table = [] {
        std::array<float, 256> made{};
        for (std::size_t bits = 0; bits < made.size(); ++bits) {
            Code code;
            code.bits = static_cast<std::uint8_t>(bits);
            made[bits] = code;
        }
        return made;
    }();
    return table;
}

/// Widens codes likewise, without their scale.
template <class Code>
void widen(const Code* from, std::int64_t pitch, std::int64_t rows, std::int64_t columns, float* tile) {
    const std::array<float, 256>& table = values_of_codes<Code>();
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) tile[row * columns + column] = table[from[row * pitch + column].bits];
    }
}

/// Leaves a widened tile as it is.
struct Unscaled {
    void operator()(std::int64_t /*outer*/, std::int64_t /*rows*/, std::int64_t /*inner*/, std::int64_t /*depth*/, float* /*tile*/) const {}
};

/// Multiplies a widened tile (rows, depth), which begins at (outer, inner), by the scales of its blocks.
template <class Scale>
struct ScaledBlocks {
    const typename Scale::Stored* scales;
    model::Fp8ScaleLayout layout;

    void operator()(std::int64_t outer, std::int64_t rows, std::int64_t inner, std::int64_t depth, float* tile) const {
        const std::int64_t length = fp8_block(layout.scaling);
        for (std::int64_t row = 0; row < rows; ++row) {
            float* const of_row = tile + row * depth;
            for (std::int64_t begin = 0; begin < depth;) {
                const std::int64_t block = (inner + begin) / length, end = std::min((block + 1) * length - inner, depth);
                const float scale = Scale::value(scales[layout.at(outer + row, block)]);
                for (; begin < end; ++begin) of_row[begin] *= scale;
            }
        }
    }
};

/// Multiplies tile by tile in fp32. A product is complete before it is multiplied by `factor`, that of fp8, and rounded. Scales of blocks
/// are applied to tiles before the product, as powers of two that change no digit; operands with them are not transposed.
template <class A, class B, class Sum, class ScaleA = Unscaled, class ScaleB = Unscaled>
void multiply_narrow(const model::MatmulArguments& x, float factor, const ScaleA& scale_a = {}, const ScaleB& scale_b = {}) {
    using model::MatmulTile;
    const A* const a = values<A>(x.a);
    const B* const b = values<B>(x.b);
    Sum* const out = values<Sum>(x.out);
    auto* const tile_a = values<float>(x.tile_a);
    auto* const tile_b = values<float>(x.tile_b);
    auto* const tile_out = values<float>(x.tile_out);
    const std::int64_t a_pitch = x.transpose_a ? x.m : x.k, b_pitch = x.transpose_b ? x.k : x.n;
    for (std::int64_t column = 0; column < x.n; column += MatmulTile::columns) {
        const std::int64_t columns = std::min(MatmulTile::columns, x.n - column);
        for (std::int64_t row = 0; row < x.m; row += MatmulTile::rows) {
            const std::int64_t rows = std::min(MatmulTile::rows, x.m - row);
            std::fill(tile_out, tile_out + rows * columns, 0.0F);
            for (std::int64_t inner = 0; inner < x.k; inner += MatmulTile::depth) {
                const std::int64_t depth = std::min(MatmulTile::depth, x.k - inner);
                if (x.transpose_a) {
                    widen(a + inner * a_pitch + row, a_pitch, depth, rows, tile_a);
                } else {
                    widen(a + row * a_pitch + inner, a_pitch, rows, depth, tile_a);
                }
                if (x.transpose_b) {
                    widen(b + column * b_pitch + inner, b_pitch, columns, depth, tile_b);
                } else {
                    widen(b + inner * b_pitch + column, b_pitch, depth, columns, tile_b);
                }
                scale_a(row, rows, inner, depth, tile_a);
                scale_b(column, columns, inner, depth, tile_b);
                gemm(x.transpose_a, x.transpose_b, rows, columns, depth, 1.0F, {tile_a, x.transpose_a ? rows : depth},
                     {tile_b, x.transpose_b ? depth : columns}, 1.0F, {tile_out, columns});
            }
            // A loop of its own, so that the product is rounded before it is added.
            for (std::int64_t i = 0; i < rows * columns && !std::is_same_v<A, Bf16>; ++i) tile_out[i] *= factor;
            for (std::int64_t i = 0; i < rows; ++i) {
                using Wide = Compute<Sum>;
                Sum* const into = out + (row + i) * x.n + column;
                const float* const products = tile_out + i * columns;
                for (std::int64_t j = 0; j < columns; ++j)
                    into[j] =
                        Sum(x.accumulate ? static_cast<Wide>(products[j]) + static_cast<Wide>(into[j]) : static_cast<Wide>(products[j]));
            }
        }
    }
}

void multiply_fp8(const model::MatmulArguments& x) {
    MGPLAN_ASSERT(!x.transpose_a && x.transpose_b, "fp8 lies along the inner size");
    const float factor = *values<float>(x.scale_a) * *values<float>(x.scale_b);
    with_type(x.out.dtype, [&]<class Sum>() {
        if (x.a.dtype == Dtype::e5m2) return multiply_narrow<E5m2, E4m3, Sum>(x, factor);
        if (x.b.dtype == Dtype::e5m2) return multiply_narrow<E4m3, E5m2, Sum>(x, factor);
        return multiply_narrow<E4m3, E4m3, Sum>(x, factor);
    });
}

template <class Scale>
void multiply_in_blocks(const model::MatmulArguments& x) {
    const auto blocks = [&](const model::Input& scales, model::Fp8Scaling scaling, std::int64_t outer) {
        return ScaledBlocks<Scale>{static_cast<const typename Scale::Stored*>(scales.data), {scaling, outer, x.k}};
    };
    with_type(x.out.dtype, [&]<class Sum>() {
        multiply_narrow<E4m3, E4m3, Sum>(x, 1, blocks(x.scale_a, x.scaling_a, x.m), blocks(x.scale_b, x.scaling_b, x.n));
    });
}

void multiply_blocks(const model::MatmulArguments& x) {
    MGPLAN_ASSERT(!x.transpose_a && x.transpose_b, "fp8 lies along the inner size");
    if (x.scaling_a == model::Fp8Scaling::vectors_of_32) return multiply_in_blocks<ScaleInE8m0>(x);
    multiply_in_blocks<ScaleInFp32>(x);
}

}  // namespace

void matmul(model::Device& /*device*/, const model::MatmulArguments& arguments) {
    MGPLAN_ASSERT(arguments.bias.data == nullptr && arguments.row_sums.data == nullptr, "biases are for other passes here");
    if (arguments.a.dtype == Dtype::fp64) return multiply<double>(arguments);
    if (arguments.a.dtype == Dtype::fp32) return multiply<float>(arguments);
    if (arguments.scaling_a != model::Fp8Scaling::tensor) return vectorised([&] { multiply_blocks(arguments); });
    if (bytes_of(arguments.a.dtype) == 1) return vectorised([&] { multiply_fp8(arguments); });
    MGPLAN_ASSERT(arguments.a.dtype == Dtype::bf16, "the CPU computes in fp64, fp32, bf16 and fp8");
    vectorised([&] {
        if (arguments.out.dtype == Dtype::bf16) return multiply_narrow<Bf16, Bf16, Bf16>(arguments, 1);
        return multiply_narrow<Bf16, Bf16, float>(arguments, 1);
    });
}

}  // namespace mgplan::runtime::cpu
