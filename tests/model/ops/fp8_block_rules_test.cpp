// Shape rules of casts and products with a scale for each block, and where the scales lie.

#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "model/meta/meta_device.hpp"
#include "model/ops/fp8_block_groups.hpp"
#include "model/ops/fp8_blocks.hpp"

namespace mgplan::model::fp8_block_rules_test {
namespace {

using enum Fp8Scaling;

#define EXPECT_BROKEN_RULE(statement) EXPECT_THROW((void)(statement), std::logic_error)

/// Every block has a place of its own among count().
void expect_places(const Fp8ScaleLayout& layout, std::int64_t rows_of_a_scale) {
    std::set<std::int64_t> places;
    for (std::int64_t row = 0; row < layout.outer; row += rows_of_a_scale) {
        for (std::int64_t block = 0; block < layout.blocks; ++block) {
            const std::int64_t at = layout.at(row, block);
            EXPECT_TRUE(at >= 0 && at < layout.count() && places.insert(at).second) << row << ", " << block;
        }
    }
    EXPECT_EQ(layout.has_padding(), std::ssize(places) < layout.count());
}

TEST(Fp8ScaleLayout, HasAPlaceForEachBlock) {
    for (const std::int64_t rows : {1, 4, 30, 128, 130, 384}) {
        for (const std::int64_t inner : {16, 128, 144, 512, 1040}) {
            expect_places({vectors_of_128, rows, inner}, 1);
            expect_places({squares_of_128, rows, inner}, 128);
            expect_places({vectors_of_32, rows, inner}, 1);
        }
    }
    // cuBLAS documentation, "1D Block Scaling for FP8 and FP4 Data Types": within a tile of 128 x 4 the scale of row r and block c lies at
    // (r mod 32) · 16 + (r / 32) · 4 + c, tiles of a row beside each other.
    const Fp8ScaleLayout tiles(vectors_of_32, 256, 256);
    EXPECT_EQ(tiles.at(0, 3), 3);
    EXPECT_EQ(tiles.at(1, 0), 16);
    EXPECT_EQ(tiles.at(33, 2), 16 + 4 + 2);
    EXPECT_EQ(tiles.at(0, 4), 512);
    EXPECT_EQ(tiles.at(128, 0), 1024);
    // Transformer Engine, float8_blockwise_tensor.py, get_scale_shape: (blocks, rows up to 4), and of squares (rows, blocks up to 4).
    EXPECT_EQ(Fp8ScaleLayout(vectors_of_128, 30, 300).count(), 3 * 32);
    EXPECT_EQ(Fp8ScaleLayout(squares_of_128, 130, 300).count(), 2 * 4);
}

TEST(Fp8BlockRules, WantCodesWithScalesOfTheirLayout) {
    MetaDevice meta;
    const auto values = [&](std::int64_t rows, std::int64_t columns, Dtype dtype = Dtype::bf16) {
        return meta.empty({rows, columns}, dtype, MemoryCategory::activations, "values");
    };
    const auto blocks = [&](Fp8Scaling scaling, std::int64_t rows, std::int64_t columns) {
        return empty_blocks(meta, scaling, rows, columns, MemoryCategory::activations, "blocks");
    };
    EXPECT_EQ(block_matmul(blocks(vectors_of_128, 16, 300), blocks(squares_of_128, 32, 300), Dtype::bf16, "y").shape(), (Shape{16, 32}));
    EXPECT_EQ(block_matmul(blocks(vectors_of_32, 16, 64), blocks(vectors_of_32, 32, 64), Dtype::fp32, "y").dtype(), Dtype::fp32);
    EXPECT_BROKEN_RULE(block_matmul(blocks(vectors_of_128, 16, 64), blocks(vectors_of_128, 64, 32), Dtype::bf16, "y"));
    EXPECT_BROKEN_RULE(block_matmul(blocks(squares_of_128, 16, 64), blocks(squares_of_128, 32, 64), Dtype::bf16, "y"));
    EXPECT_BROKEN_RULE(block_matmul(blocks(vectors_of_128, 16, 64), blocks(vectors_of_32, 32, 64), Dtype::bf16, "y"));
    EXPECT_BROKEN_RULE(block_matmul_accumulate(blocks(vectors_of_128, 16, 64), blocks(vectors_of_128, 32, 64), values(32, 16)));
    EXPECT_BROKEN_RULE(block_matmul_write(blocks(vectors_of_128, 16, 64), blocks(vectors_of_128, 32, 64), values(16, 32, Dtype::int32)));
    Fp8Blocks wrong = blocks(vectors_of_128, 16, 64);
    wrong.scales = meta.empty({3}, Dtype::fp32, MemoryCategory::activations, "too few");
    EXPECT_BROKEN_RULE(quantise_blocks(values(16, 64), wrong));
    EXPECT_BROKEN_RULE(quantise_blocks(values(16, 32), blocks(vectors_of_128, 16, 64)));
    const auto columns = [&](const Fp8Blocks& of, ColumnCodes lie) { return Fp8Columns{of.codes, of.scales, of.scaling, lie}; };
    const Fp8Blocks across = blocks(squares_of_128, 64, 16);
    EXPECT_NO_THROW(quantise_both_ways(values(16, 64), blocks(squares_of_128, 16, 64), columns(across, ColumnCodes::turned)));
    EXPECT_BROKEN_RULE(quantise_both_ways(values(16, 64), blocks(squares_of_128, 16, 64), columns(across, ColumnCodes::as_rows)));
    EXPECT_BROKEN_RULE(quantise_both_ways(values(16, 64), blocks(vectors_of_128, 16, 64), columns(across, ColumnCodes::turned)));
    EXPECT_BROKEN_RULE(quantise_both_ways(values(16, 64), blocks(vectors_of_128, 16, 64), {}));
    EXPECT_BROKEN_RULE(quantise_rows(values(16, 64, Dtype::int32), vectors_of_128, "rows"));
    EXPECT_BROKEN_RULE(quantise_columns(values(16, 64), squares_of_128, ColumnCodes::turned, "columns"));
    const std::vector<std::int64_t> rows{5, 0, 11};
    const Fp8Blocks groups = quantise_groups_both_ways(values(16, 64), vectors_of_128, rows, "rows", "columns").rows;
    EXPECT_EQ(groups.codes.shape(), (Shape{16 + kRowsOfVectors, 64})) << "room behind the last group";
    EXPECT_EQ(groups.scales.elements(), 8 + 16);
    const std::vector<Fp8Blocks> matrices(3, blocks(squares_of_128, 32, 64));
    EXPECT_EQ(block_grouped_matmul(groups, matrices, rows, Dtype::bf16, "y").shape(), (Shape{16, 32}));
    EXPECT_BROKEN_RULE(quantise_groups_both_ways(values(17, 64), vectors_of_128, rows, "rows", "columns"));
    EXPECT_BROKEN_RULE(block_grouped_matmul(groups, std::span(matrices).first(2), rows, Dtype::bf16, "y"));
    EXPECT_BROKEN_RULE(block_grouped_matmul(blocks(vectors_of_128, 16, 64), matrices, rows, Dtype::bf16, "y"));
}

}  // namespace
}  // namespace mgplan::model::fp8_block_rules_test
