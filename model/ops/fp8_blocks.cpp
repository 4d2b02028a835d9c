#include "model/ops/fp8_blocks.hpp"

#include <fmt/core.h>

#include "model/ops/checks.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product.hpp"

namespace mgplan::model {
namespace {

void expect_blocks(const Tensor& codes, const Tensor& scales, const Fp8ScaleLayout& layout) {
    MGPLAN_ASSERT(layout.scaling != Fp8Scaling::tensor, "blocks have scales of their own");
    expect_dtype(codes, Dtype::fp8, "codes in blocks");
    expect_dtype(scales, fp8_scale_dtype(layout.scaling), "scales of blocks");
    expect_shape(scales, {layout.count()}, "scales of blocks");
    expect_same_device(codes, scales);
}

Fp8ScaleLayout layout_of(const Fp8Blocks& blocks) {
    MGPLAN_ASSERT(blocks.defined() && blocks.codes.shape().rank() == 2, "blocks are of rows and columns");
    return {blocks.scaling, blocks.codes.shape()[0], blocks.codes.shape()[1]};
}

void cast_blocks(const Tensor& x, const Tensor& codes, const Tensor& scales, const Tensor& across, Fp8Scaling scaling, bool along_columns,
                 std::int64_t scale_rows) {
    expect_float(x, "x of a cast in blocks");
    expect_shape(codes, x.shape(), "codes in blocks");
    expect_same_device(x, codes, scales, across);
    Device& device = x.device();
    const Fp8ScaleLayout of_columns(scaling, x.shape()[1], x.shape()[0]);
    const Fp8ScaleLayout layout = along_columns ? of_columns : Fp8ScaleLayout(scaling, scale_rows, x.shape()[1]);
    const int zeros = (layout.has_padding() || scale_rows > x.shape()[0] ? 1 : 0) + (across.defined() && of_columns.has_padding() ? 1 : 0);
    device.report({"cast_to_fp8", static_cast<double>(x.elements()), x.bytes(), total_bytes(codes, scales, across), 1 + zeros});
    if (device.computes() && x.elements() > 0)
        device.kernels().quantise_blocks(device,
                                         {x, codes, scales, across, x.shape()[0], x.shape()[1], scaling, along_columns, scale_rows});
}

struct BlockSizes {
    std::int64_t m, n, k;
};

BlockSizes block_sizes_of(const Fp8Blocks& a, const Fp8Blocks& b) {
    for (const Fp8Blocks* operand : {&a, &b}) expect_blocks(operand->codes, operand->scales, layout_of(*operand));
    expect_same_device(a.codes, b.codes);
    MGPLAN_ASSERT(a.codes.shape()[1] == b.codes.shape()[1],
                  fmt::format("a {} and b {} share their inner size", a.codes.shape().text(), b.codes.shape().text()));
    MGPLAN_ASSERT(fp8_block(a.scaling) == fp8_block(b.scaling), "both operands have blocks of one length");
    MGPLAN_ASSERT(a.scaling != Fp8Scaling::squares_of_128 || b.scaling != Fp8Scaling::squares_of_128, "one operand has vectors");
    return {a.codes.shape()[0], b.codes.shape()[0], a.codes.shape()[1]};
}

void multiply_blocks(const Fp8Blocks& a, const Fp8Blocks& b, const Tensor& out, const BlockSizes& sizes, bool accumulate,
                     ProductAlgorithm algorithm) {
    run_product(
        {a.codes, b.codes, out, sizes.m, sizes.n, sizes.k, {.b = true}, accumulate, algorithm, a.scales, b.scales, a.scaling, b.scaling});
}

}  // namespace

Fp8Blocks empty_blocks(Device& device, Fp8Scaling scaling, std::int64_t outer, std::int64_t inner, MemoryCategory category,
                       std::string_view name) {
    return {device.empty({outer, inner}, Dtype::fp8, category, name),
            device.empty({Fp8ScaleLayout(scaling, outer, inner).count()}, fp8_scale_dtype(scaling), category, "scales of blocks in fp8"),
            scaling};
}

void quantise_blocks(const Tensor& x, const Fp8Blocks& into, const Tensor& across) {
    const Fp8ScaleLayout layout = layout_of(into);
    expect_blocks(into.codes, into.scales, layout);
    if (across.defined()) {
        MGPLAN_ASSERT(into.scaling == Fp8Scaling::squares_of_128, "squares alone have the same scales across");
        expect_blocks(into.codes, across, {into.scaling, into.codes.shape()[1], into.codes.shape()[0]});
    }
    cast_blocks(x, into.codes, into.scales, across, into.scaling, false, x.shape()[0]);
}

void quantise_filled_rows(const Tensor& x, const Fp8Blocks& into, std::int64_t scale_rows) {
    expect_blocks(into.codes, into.scales, {into.scaling, scale_rows, x.shape()[1]});
    MGPLAN_ASSERT(scale_rows >= x.shape()[0] && into.scaling != Fp8Scaling::squares_of_128, "vectors of all rows have scales");
    cast_blocks(x, into.codes, into.scales, {}, into.scaling, false, scale_rows);
}

Fp8Blocks quantise_rows(const Tensor& x, Fp8Scaling scaling, std::string_view name) {
    MGPLAN_ASSERT(x.shape().rank() == 2, "x has rows and columns");
    Fp8Blocks made = empty_blocks(x.device(), scaling, x.shape()[0], x.shape()[1], MemoryCategory::activations, name);
    quantise_blocks(x, made);
    return made;
}

void quantise_columns(const Tensor& x, const Fp8Columns& into) {
    MGPLAN_ASSERT(x.shape().rank() == 2 && into.scaling != Fp8Scaling::squares_of_128, "columns of vectors");
    expect_blocks(into.codes, into.scales, {into.scaling, x.shape()[1], x.shape()[0]});
    cast_blocks(x, into.codes, into.scales, {}, into.scaling, true, x.shape()[0]);
}

Fp8Columns quantise_columns(const Tensor& x, Fp8Scaling scaling, std::string_view name) {
    MGPLAN_ASSERT(x.shape().rank() == 2, "x has rows and columns");
    const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
    Device& device = x.device();
    Fp8Columns made{device.empty({rows, columns}, Dtype::fp8, MemoryCategory::activations, name),
                    device.empty({Fp8ScaleLayout(scaling, columns, rows).count()}, fp8_scale_dtype(scaling), MemoryCategory::activations,
                                 "scales of columns in fp8"),
                    scaling};
    quantise_columns(x, made);
    return made;
}

Fp8Blocks turn_columns(const Fp8Columns& columns) {
    return {transpose_codes(columns.codes), columns.scales, columns.scaling};
}

Tensor block_matmul(const Fp8Blocks& a, const Fp8Blocks& b, Dtype out, std::string_view name, ProductAlgorithm algorithm) {
    const BlockSizes sizes = block_sizes_of(a, b);
    Tensor product = a.codes.device().empty({sizes.m, sizes.n}, out, MemoryCategory::activations, name);
    expect_float(product, "the product of block_matmul");
    multiply_blocks(a, b, product, sizes, false, algorithm);
    return product;
}

void block_matmul_accumulate(const Fp8Blocks& a, const Fp8Blocks& b, const Tensor& out, ProductAlgorithm algorithm) {
    const BlockSizes sizes = block_sizes_of(a, b);
    expect_float(out, "the sum of block_matmul_accumulate");
    expect_shape(out, {sizes.m, sizes.n}, "the sum of block_matmul_accumulate");
    expect_same_device(out, a.codes);
    multiply_blocks(a, b, out, sizes, true, algorithm);
}

void block_matmul_write(const Fp8Blocks& a, const Fp8Blocks& b, const Tensor& out, ProductAlgorithm algorithm) {
    const BlockSizes sizes = block_sizes_of(a, b);
    expect_float(out, "the result of block_matmul_write");
    expect_shape(out, {sizes.m, sizes.n}, "the result of block_matmul_write");
    expect_same_device(out, a.codes);
    multiply_blocks(a, b, out, sizes, false, algorithm);
}

}  // namespace mgplan::model
