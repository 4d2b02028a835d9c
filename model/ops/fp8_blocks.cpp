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

/// Checks columns of x against x.
void expect_columns(const Tensor& x, const Fp8Columns& columns) {
    const std::int64_t rows = x.shape()[0], width = x.shape()[1];
    const bool turned = columns.lie == ColumnCodes::turned;
    MGPLAN_ASSERT(turned || columns.scaling != Fp8Scaling::squares_of_128, "squares have columns of their own where they are turned");
    expect_blocks(columns.codes, columns.scales, {columns.scaling, width, rows});
    expect_shape(columns.codes, turned ? Shape{width, rows} : x.shape(), "codes of columns in blocks");
}

/// Either cast may be undefined, not both.
void cast_blocks(const Tensor& x, const Fp8Blocks& along, const Fp8Columns& columns, std::int64_t scale_rows) {
    expect_float(x, "x of a cast in blocks");
    MGPLAN_ASSERT(x.shape().rank() == 2, "x has rows and columns");
    expect_same_device(x, along.codes, columns.codes);
    const std::int64_t rows = x.shape()[0], width = x.shape()[1];
    const Fp8Scaling scaling = along.defined() ? along.scaling : columns.scaling;
    std::int64_t casts = 0, zeros = 0;
    if (along.defined()) {
        expect_shape(along.codes, x.shape(), "codes in blocks");
        casts += 1;
        zeros += Fp8ScaleLayout(scaling, scale_rows, width).has_padding() || scale_rows > rows ? 1 : 0;
    }
    if (columns.defined()) {
        expect_columns(x, columns);
        casts += 1;
        zeros += Fp8ScaleLayout(scaling, width, rows).has_padding() ? 1 : 0;
    }
    Device& device = x.device();
    device.report({"cast_to_fp8", static_cast<double>(casts * x.elements()), x.bytes(),
                   total_bytes(along.codes, along.scales, columns.codes, columns.scales), 1 + zeros});
    if (!device.computes() || x.elements() == 0) return;
    device.kernels().quantise_blocks(device, {x, along.codes, along.scales, columns.codes, columns.scales, rows, width, scaling,
                                              columns.lie == ColumnCodes::turned, scale_rows});
}

Fp8Columns empty_columns(const Tensor& x, Fp8Scaling scaling, ColumnCodes lie, std::string_view name) {
    MGPLAN_ASSERT(x.shape().rank() == 2, "x has rows and columns");
    const std::int64_t rows = x.shape()[0], width = x.shape()[1];
    Device& device = x.device();
    const Shape shape = lie == ColumnCodes::turned ? Shape{width, rows} : Shape{rows, width};
    return {device.empty(shape, Dtype::fp8, MemoryCategory::activations, name),
            device.empty({Fp8ScaleLayout(scaling, width, rows).count()}, fp8_scale_dtype(scaling), MemoryCategory::activations,
                         "scales of columns in fp8"),
            scaling, lie};
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

void quantise_blocks(const Tensor& x, const Fp8Blocks& into) {
    expect_blocks(into.codes, into.scales, layout_of(into));
    cast_blocks(x, into, {}, x.shape()[0]);
}

Fp8Blocks quantise_rows(const Tensor& x, Fp8Scaling scaling, std::string_view name) {
    MGPLAN_ASSERT(x.shape().rank() == 2, "x has rows and columns");
    Fp8Blocks made = empty_blocks(x.device(), scaling, x.shape()[0], x.shape()[1], MemoryCategory::activations, name);
    quantise_blocks(x, made);
    return made;
}

void quantise_columns(const Tensor& x, const Fp8Columns& into) {
    MGPLAN_ASSERT(into.scaling != Fp8Scaling::squares_of_128, "columns of vectors");
    cast_blocks(x, {}, into, x.shape()[0]);
}

Fp8Columns quantise_columns(const Tensor& x, Fp8Scaling scaling, ColumnCodes lie, std::string_view name) {
    Fp8Columns made = empty_columns(x, scaling, lie, name);
    quantise_columns(x, made);
    return made;
}

void quantise_both_ways(const Tensor& x, const Fp8Blocks& rows, const Fp8Columns& columns, std::int64_t scale_rows) {
    if (scale_rows == 0) scale_rows = x.shape()[0];
    MGPLAN_ASSERT(rows.defined() && columns.defined() && rows.scaling == columns.scaling, "both casts are scaled alike");
    MGPLAN_ASSERT(scale_rows >= x.shape()[0], "all rows have scales");
    expect_blocks(rows.codes, rows.scales, {rows.scaling, scale_rows, x.shape()[1]});
    cast_blocks(x, rows, columns, scale_rows);
}

Fp8BothWays quantise_both_ways(const Tensor& x, Fp8Scaling scaling, ColumnCodes lie, std::string_view rows_name,
                               std::string_view columns_name) {
    Fp8BothWays made;
    made.rows = empty_blocks(x.device(), scaling, x.shape()[0], x.shape()[1], MemoryCategory::activations, rows_name);
    made.columns = empty_columns(x, scaling, lie, columns_name);
    quantise_both_ways(x, made.rows, made.columns);
    return made;
}

Fp8Blocks turn_columns(const Fp8Columns& columns) {
    const bool turned = columns.lie == ColumnCodes::turned;
    return {turned ? columns.codes : transpose_codes(columns.codes), columns.scales, columns.scaling};
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
