#include <numeric>

#include "model/ops/fp8.hpp"
#include "model/ops/fp8_block_groups.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "tests/model/ops/every_op.hpp"

namespace mgplan::model {

namespace {

using Results = std::vector<std::pair<std::string, Tensor>>;

void keep_bytes(Maker& maker, Results& results, const std::string& name, const Tensor& tensor) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.bytes()));
    maker.device().read(tensor, bytes.data());
    results.emplace_back(name, make(maker.device(), {tensor.bytes()}, Dtype::int32, {bytes.begin(), bytes.end()}));
}

void keep(Maker& maker, Results& results, const std::string& name, const auto& cast) {
    keep_bytes(maker, results, name + ", codes", cast.codes);
    keep_bytes(maker, results, name + ", scales", cast.scales);
}

/// Where the columns of a cast both ways go.
Fp8Columns turned(const Fp8Blocks& into) {
    return {into.codes, into.scales, into.scaling, ColumnCodes::turned};
}

Fp8Scaling vectors_of(bool of_32) {
    return of_32 ? Fp8Scaling::vectors_of_32 : Fp8Scaling::vectors_of_128;
}

/// Libraries write bf16 and fp32 alone.
Dtype output_of(const Maker& maker) {
    return maker.dtype() == Dtype::bf16 ? Dtype::bf16 : Dtype::fp32;
}

void cast(Maker& maker, bool of_32, Results& results) {
    const Fp8Scaling vectors = vectors_of(of_32);
    for (const Shape& shape :
         {Shape{13, 7}, Shape{3, 300}, Shape{300, 3}, Shape{130, 160}, Shape{257, 515}, Shape{3, 4112}, Shape{144, 272}, Shape{272, 16}}) {
        const Tensor x = maker.random(shape);
        keep(maker, results, "quantise_rows", quantise_rows(x, vectors, "rows"));
        keep(maker, results, "quantise_columns", quantise_columns(x, vectors, ColumnCodes::as_rows, "columns"));
        keep(maker, results, "quantise_columns, turned", quantise_columns(x, vectors, ColumnCodes::turned, "columns"));
        for (const ColumnCodes lie : {ColumnCodes::as_rows, ColumnCodes::turned}) {
            const Fp8BothWays both = quantise_both_ways(x, vectors, lie, "rows", "columns");
            keep(maker, results, "quantise_both_ways, rows", both.rows);
            keep(maker, results, "quantise_both_ways, columns", both.columns);
        }
        if (of_32) continue;
        const auto empty = [&](std::int64_t rows, std::int64_t columns, const char* name) {
            return empty_blocks(maker.device(), Fp8Scaling::squares_of_128, rows, columns, MemoryCategory::activations, name);
        };
        const Fp8Blocks squares = empty(shape[0], shape[1], "squares"), across = empty(shape[1], shape[0], "across");
        quantise_blocks(x, squares);
        keep(maker, results, "quantise_blocks of squares", squares);
        quantise_both_ways(x, squares, turned(across));
        keep(maker, results, "quantise_both_ways of squares", squares);
        keep(maker, results, "quantise_both_ways of squares, across", across);
    }
    keep(maker, results, "quantise_rows of zeros", quantise_rows(maker.zeros({4, 64}, maker.dtype()), vectors, "zeros"));
}

/// x of (m, k) times a weight of (n, k), and both gradients: sums over k, n and m.
void multiply(Maker& maker, bool of_32, std::int64_t m, std::int64_t n, std::int64_t k, Results& results) {
    const Fp8Scaling vectors = vectors_of(of_32);
    const Dtype out = output_of(maker);
    const Tensor x = maker.random({m, k}), weight = maker.random({n, k}), dy = maker.random({m, n});
    Fp8Blocks values, transposed;
    if (of_32) {
        values = quantise_rows(weight, vectors, "weight");
        transposed = turn_columns(quantise_columns(weight, vectors, ColumnCodes::as_rows, "weight"));
    } else {
        values = empty_blocks(maker.device(), Fp8Scaling::squares_of_128, n, k, MemoryCategory::activations, "weight");
        transposed = empty_blocks(maker.device(), Fp8Scaling::squares_of_128, k, n, MemoryCategory::activations, "weight");
        quantise_both_ways(weight, values, turned(transposed));
    }
    results.emplace_back("block_matmul", block_matmul(quantise_rows(x, vectors, "x"), values, out, "product"));
    results.emplace_back("block_matmul of a gradient", block_matmul(quantise_rows(dy, vectors, "dy"), transposed, out, "product"));
    const Fp8Blocks columns_of_x = turn_columns(quantise_columns(x, vectors, ColumnCodes::as_rows, "x")),
                    columns_of_dy = turn_columns(quantise_columns(dy, vectors, ColumnCodes::turned, "dy"));
    const Tensor sum = maker.random({n, k}, Dtype::fp32), written = maker.random({n, k}, Dtype::fp32);
    block_matmul_accumulate(columns_of_dy, columns_of_x, sum);
    results.emplace_back("block_matmul_accumulate", sum);
    block_matmul_write(columns_of_dy, columns_of_x, written);
    results.emplace_back("block_matmul_write", written);
}

/// Rows of each group times its matrix of (n, k), and the gradient of that: sums over k and over the group's rows.
void multiply_groups(Maker& maker, bool of_32, const std::vector<std::int64_t>& rows, Results& results) {
    const Fp8Scaling vectors = vectors_of(of_32);
    const std::int64_t m = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), n = 64, k = 160;
    const Tensor x = maker.random({m, k}), dy = maker.random({m, n});
    std::vector<Fp8Blocks> matrices;
    std::vector<Tensor> sums;
    for (std::size_t group = 0; group < rows.size(); ++group) {
        matrices.push_back(
            empty_blocks(maker.device(), of_32 ? vectors : Fp8Scaling::squares_of_128, n, k, MemoryCategory::activations, "matrix"));
        quantise_blocks(maker.random({n, k}), matrices.back());
        sums.push_back(maker.random({n, k}, Dtype::fp32));
    }
    const Fp8BothWays both_of_dy = quantise_groups_both_ways(dy, vectors, rows, "dy", "columns of dy"),
                      both_of_x = quantise_groups_both_ways(x, vectors, rows, "x", "columns of x");
    keep(maker, results, "quantise_groups_both_ways, rows", both_of_x.rows);
    keep(maker, results, "quantise_groups_both_ways, columns", both_of_x.columns);
    results.emplace_back("block_grouped_matmul", block_grouped_matmul(both_of_x.rows, matrices, rows, output_of(maker), "product"));
    block_grouped_accumulate(both_of_dy.columns, both_of_x.columns, rows, sums);
    for (const Tensor& sum : sums) results.emplace_back("block_grouped_accumulate", sum);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> run_fp8_block_ops(Maker& maker, bool of_32) {
    Results results;
    cast(maker, of_32, results);
    multiply(maker, of_32, 320, 352, 64, results);
    multiply(maker, of_32, 256, 256, 256, results);
    multiply_groups(maker, of_32, {69, 0, 80, 139}, results);  // 8 does not divide them, one is empty and one beyond a block
    return results;
}

std::vector<std::pair<std::string, Tensor>> run_short_fp8_block_ops(Maker& maker, bool of_32) {
    Results results;
    multiply(maker, of_32, 32, 64, 96, results);
    multiply(maker, of_32, 160, 32, 288, results);
    multiply(maker, of_32, 32, 160, 544, results);
    multiply_groups(maker, of_32, {5, 0, 16, 139}, results);
    return results;
}

}  // namespace mgplan::model
