#include "model/ops/grouped_matmul.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product.hpp"

namespace mgplan::model {
namespace {

void expect_groups(const Tensor& a, std::span<const std::int64_t> rows, std::size_t groups) {
    expect_float(a, "a of a grouped product");
    MGPLAN_ASSERT(a.shape().rank() == 2, "a has rows and columns");
    MGPLAN_ASSERT(rows.size() == groups && groups > 0, "each group has a matrix");
    MGPLAN_ASSERT(std::ranges::all_of(rows, [](std::int64_t each) { return each >= 0; }), "groups have rows");
    MGPLAN_ASSERT(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == a.shape()[0], "the groups are all rows");
}

/// Returns scratch for the largest product (m, n, k) among the groups; undefined if none is needed.
ProductScratch scratch_for(Device& device, Dtype dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
    if (m == 0 || n == 0 || k == 0) return {};
    return product_scratch(device, dtype, m, n, k);
}

/// `busy`: groups with rows.
std::int64_t rows_of_one(const Tensor& a, std::int64_t busy) {
    return busy == 0 ? 0 : (a.shape()[0] + busy - 1) / busy;
}

double operations(std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace

Tensor grouped_matmul(const Tensor& a, std::span<const Tensor> b, std::span<const std::int64_t> rows, bool transpose_b,
                      std::string_view name) {
    expect_groups(a, rows, b.size());
    const std::int64_t k = a.shape()[1], n = b.front().shape()[transpose_b ? 0 : 1];
    for (const Tensor& each : b) {
        expect_dtype(each, a.dtype(), "b of a grouped product");
        expect_shape(each, transpose_b ? Shape{n, k} : Shape{k, n}, "b of a grouped product");
        expect_same_device(a, each);
    }
    Device& device = a.device();
    Tensor out = device.empty({a.shape()[0], n}, a.dtype(), MemoryCategory::activations, name);
    // Matrices of empty groups are not read.
    const auto busy = static_cast<std::int64_t>(std::ranges::count_if(rows, [](std::int64_t each) { return each > 0; }));
    device.report({"grouped_matmul",
                   operations(a.shape()[0], n, k),
                   a.bytes() + busy * b.front().bytes(),
                   out.bytes(),
                   busy,
                   {},
                   {busy, rows_of_one(a, busy), n, k, transpose_b, false, a.dtype()}});
    const ProductScratch scratch = scratch_for(device, a.dtype(), *std::ranges::max_element(rows), n, k);
    if (!device.computes() || out.elements() == 0) return out;
    const std::vector<Input> matrices(b.begin(), b.end());
    device.kernels().grouped_matmul(device, {a, matrices.data(), out, rows.data(), std::ssize(rows), n, k, transpose_b, scratch.a,
                                             scratch.b, scratch.out, scratch.workspace});
    return out;
}

void grouped_matmul_accumulate(const Tensor& a, const Tensor& b, std::span<const std::int64_t> rows, std::span<const Tensor> out) {
    expect_groups(a, rows, out.size());
    expect_dtype(b, a.dtype(), "b of a grouped product");
    expect_same_device(a, b);
    MGPLAN_ASSERT(b.shape().rank() == 2 && b.shape()[0] == a.shape()[0], "a and b have the same rows");
    const std::int64_t m = a.shape()[1], n = b.shape()[1];
    for (const Tensor& each : out) {
        expect_accumulator(each, a, "the sum of a grouped product");
        expect_shape(each, {m, n}, "the sum of a grouped product");
    }
    Device& device = a.device();
    const auto busy = static_cast<std::int64_t>(std::ranges::count_if(rows, [](std::int64_t each) { return each > 0; }));
    device.report({"grouped_matmul",
                   operations(m, n, a.shape()[0]),
                   total_bytes(a, b) + busy * out.front().bytes(),
                   busy * out.front().bytes(),
                   busy,
                   {},
                   {busy, m, n, rows_of_one(a, busy), false, true, a.dtype()}});
    const ProductScratch scratch = scratch_for(device, a.dtype(), m, n, *std::ranges::max_element(rows));
    if (!device.computes() || a.shape()[0] == 0) return;
    const std::vector<Output> sums(out.begin(), out.end());
    device.kernels().grouped_matmul_accumulate(
        device, {a, b, sums.data(), rows.data(), std::ssize(rows), m, n, scratch.a, scratch.b, scratch.out, scratch.workspace});
}

}  // namespace mgplan::model
