#include <tuple>

#include "model/ops/fp8.hpp"
#include "model/ops/fp8_block_groups.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "tests/model/ops/every_op.hpp"

namespace mgplan::model {

std::vector<std::pair<std::string, Tensor>> run_fp8_block_ops(Maker& maker, bool of_32) {
    std::vector<std::pair<std::string, Tensor>> results;
    Device& device = maker.device();
    const auto keep_bytes = [&](const std::string& name, const Tensor& tensor) {
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.bytes()));
        device.read(tensor, bytes.data());
        results.emplace_back(name, make(device, {tensor.bytes()}, Dtype::int32, {bytes.begin(), bytes.end()}));
    };
    const auto keep = [&](const std::string& name, const auto& cast) {
        keep_bytes(name + ", codes", cast.codes);
        keep_bytes(name + ", scales", cast.scales);
    };
    const Fp8Scaling vectors = of_32 ? Fp8Scaling::vectors_of_32 : Fp8Scaling::vectors_of_128;
    for (const Shape& shape : {Shape{13, 7}, Shape{3, 300}, Shape{300, 3}, Shape{130, 160}, Shape{257, 515}, Shape{3, 4112}}) {
        const Tensor x = maker.random(shape);
        keep("quantise_rows", quantise_rows(x, vectors, "rows"));
        keep("quantise_columns", quantise_columns(x, vectors, "columns"));
        if (of_32) continue;
        const Fp8Blocks squares =
                            empty_blocks(device, Fp8Scaling::squares_of_128, shape[0], shape[1], MemoryCategory::activations, "squares"),
                        across =
                            empty_blocks(device, Fp8Scaling::squares_of_128, shape[1], shape[0], MemoryCategory::activations, "across");
        quantise_blocks(x, squares, across.scales);
        keep("quantise_blocks of squares", squares);
        keep_bytes("quantise_blocks of squares, across", across.scales);
    }
    keep("quantise_rows of zeros", quantise_rows(maker.zeros({4, 64}, maker.dtype()), vectors, "zeros"));
    // Libraries write bf16 and fp32 alone.
    const Dtype out = maker.dtype() == Dtype::bf16 ? Dtype::bf16 : Dtype::fp32;
    for (const auto& [m, n, k] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{32, 64, 96}, {160, 32, 288}, {32, 160, 544}}) {
        const Tensor x = maker.random({m, k}), weight = maker.random({n, k}), dy = maker.random({m, n});
        Fp8Blocks values, transposed;
        if (of_32) {
            values = quantise_rows(weight, vectors, "weight");
            transposed = turn_columns(quantise_columns(weight, vectors, "weight"));
        } else {
            values = empty_blocks(device, Fp8Scaling::squares_of_128, n, k, MemoryCategory::activations, "weight");
            transposed = empty_blocks(device, Fp8Scaling::squares_of_128, k, n, MemoryCategory::activations, "weight");
            quantise_blocks(weight, values, transposed.scales);
            transpose_codes(values.codes, transposed.codes);
        }
        results.emplace_back("block_matmul", block_matmul(quantise_rows(x, vectors, "x"), values, out, "product"));
        results.emplace_back("block_matmul of a gradient", block_matmul(quantise_rows(dy, vectors, "dy"), transposed, out, "product"));
        const Fp8Blocks columns_of_x = turn_columns(quantise_columns(x, vectors, "x")),
                        columns_of_dy = turn_columns(quantise_columns(dy, vectors, "dy"));
        const Tensor sum = maker.random({n, k}, Dtype::fp32), written = maker.random({n, k}, Dtype::fp32);
        block_matmul_accumulate(columns_of_dy, columns_of_x, sum);
        results.emplace_back("block_matmul_accumulate", sum);
        block_matmul_write(columns_of_dy, columns_of_x, written);
        results.emplace_back("block_matmul_write", written);
    }
    // Groups that 8 does not divide, an empty one, and one beyond a block.
    const std::vector<std::int64_t> rows{5, 0, 16, 139};
    const std::int64_t m = 160, n = 64, k = 160;
    const Tensor x = maker.random({m, k}), dy = maker.random({m, n});
    std::vector<Fp8Blocks> matrices;
    std::vector<Tensor> sums;
    for (std::size_t group = 0; group < rows.size(); ++group) {
        matrices.push_back(empty_blocks(device, of_32 ? vectors : Fp8Scaling::squares_of_128, n, k, MemoryCategory::activations, "matrix"));
        quantise_blocks(maker.random({n, k}), matrices.back());
        sums.push_back(maker.random({n, k}, Dtype::fp32));
    }
    const Fp8Blocks groups = quantise_group_rows(x, vectors, rows, "x");
    keep("quantise_group_rows", groups);
    results.emplace_back("block_grouped_matmul", block_grouped_matmul(groups, matrices, rows, out, "product"));
    block_grouped_accumulate(quantise_group_columns(dy, vectors, rows, "dy"), quantise_group_columns(x, vectors, rows, "x"), rows, sums);
    for (const Tensor& sum : sums) results.emplace_back("block_grouped_accumulate", sum);
    return results;
}

}  // namespace mgplan::model
