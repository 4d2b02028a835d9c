#include "model/ops/fp8_grouped.hpp"

#include <algorithm>
#include <numeric>

#include "model/ops/checks.hpp"
#include "model/ops/fp8_history.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product.hpp"

namespace mgplan::model {
namespace {

void expect_code_groups(const Fp8Tensor& a, std::span<const std::int64_t> rows) {
    MGPLAN_ASSERT(a.defined() && bytes_of(a.codes.dtype()) == 1 && a.codes.shape().rank() == 2, "groups of rows are codes in fp8");
    MGPLAN_ASSERT(!rows.empty() && std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == a.codes.shape()[0],
                  "the groups are all rows");
    expect_shape(a.scale, {std::ssize(rows), kFp8ScaleElements}, "scales of groups");
    expect_dtype(a.scale, Dtype::fp32, "scales of groups");
    expect_same_device(a.codes, a.scale);
}

/// Returns the factor from a group's codes to its values, (1).
Tensor factor_of(const Fp8Tensor& groups, std::int64_t group) {
    return groups.scale.slice(group, group + 1).view({kFp8ScaleElements}).slice(1, 2);
}

std::int64_t padded(std::int64_t rows) {
    return (rows + kFp8Multiple - 1) / kFp8Multiple * kFp8Multiple;
}

/// Calls work(group, first row, end) for all groups that have rows.
template <class Work>
void for_each_group(std::span<const std::int64_t> rows, const Work& work) {
    std::int64_t begin = 0;
    for (std::int64_t group = 0; group < std::ssize(rows); ++group) {
        const std::int64_t end = begin + rows[static_cast<std::size_t>(group)];
        if (end > begin) work(group, begin, end);
        begin = end;
    }
}

double fp8_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

struct BusyGroups {
    std::int64_t count = 0;
    std::int64_t rows = 0;  ///< of one, on the average
};

BusyGroups busy_groups(std::span<const std::int64_t> rows) {
    const auto count = static_cast<std::int64_t>(std::ranges::count_if(rows, [](std::int64_t each) { return each > 0; }));
    const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    return {count, count == 0 ? 0 : (sum + count - 1) / count};
}

}  // namespace

Fp8Tensor quantise_groups(const Tensor& x, Dtype dtype, std::span<const std::int64_t> rows, std::string_view name) {
    Device& device = x.device();
    Fp8Tensor cast{
        device.empty(x.shape(), dtype, MemoryCategory::activations, name),
        device.empty({std::ssize(rows), kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scales of fp8, one for each group")};
    for_each_group(rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
        const Tensor scale = cast.scale.slice(group, group + 1).view({kFp8ScaleElements});
        find_largest(x.slice(begin, end), scale);
        quantise(x.slice(begin, end), {cast.codes.slice(begin, end), scale});
    });
    return cast;
}

Fp8Tensor quantise_groups(const Tensor& x, Dtype dtype, std::span<const std::int64_t> rows, const Tensor& scales,
                          std::span<const Tensor> largest, std::string_view name) {
    Fp8Tensor cast{x.device().empty(x.shape(), dtype, MemoryCategory::activations, name), scales};
    expect_code_groups(cast, rows);
    MGPLAN_ASSERT(rows.size() == largest.size(), "each group has a largest magnitude");
    for_each_group(rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
        raise_largest(x.slice(begin, end), largest[static_cast<std::size_t>(group)]);
        quantise(x.slice(begin, end), {cast.codes.slice(begin, end), scales.slice(group, group + 1).view({kFp8ScaleElements})});
    });
    return cast;
}

Tensor fp8_grouped_matmul(const Fp8Tensor& a, std::span<const Fp8Tensor> b, std::span<const std::int64_t> rows, Dtype out,
                          std::string_view name) {
    expect_code_groups(a, rows);
    MGPLAN_ASSERT(rows.size() == b.size(), "each group has a matrix");
    const std::int64_t k = a.codes.shape()[1], n = b.front().codes.shape()[0];
    for (const Fp8Tensor& each : b) {
        expect_shape(each.codes, {n, k}, "b of a grouped product in fp8");
        expect_dtype(each.codes, Dtype::fp8, "b of a grouped product in fp8");
        expect_same_device(a.codes, each.codes, each.scale);
    }
    Device& device = a.codes.device();
    Tensor product = device.empty({a.codes.shape()[0], n}, out, MemoryCategory::activations, name);
    const BusyGroups busy = busy_groups(rows);
    device.report({"grouped_matmul",
                   fp8_operations(a.codes.shape()[0], n, k),
                   a.codes.bytes() + busy.count * b.front().codes.bytes(),
                   product.bytes(),
                   busy.count,
                   {},
                   {busy.count, busy.rows, n, k, true, false, Dtype::fp8}});
    if (product.elements() == 0) return product;
    const ProductScratch scratch = product_scratch(device, a.codes.dtype(), *std::ranges::max_element(rows), n, k);
    if (!device.computes()) return product;
    for_each_group(rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
        const Fp8Tensor& matrix = b[static_cast<std::size_t>(group)];
        device.kernels().matmul(device, {a.codes.slice(begin, end), matrix.codes, product.slice(begin, end), end - begin, n, k, false, true,
                                         false, scratch.a, scratch.b, scratch.out, scratch.workspace, factor_of(a, group),
                                         matrix.scale.slice(1, 2), Fp8Scaling::tensor, Fp8Scaling::tensor, ProductAlgorithm::near});
    });
    return product;
}

void fp8_grouped_matmul_accumulate(const Fp8Tensor& a, const Fp8Tensor& b, std::span<const std::int64_t> rows,
                                   std::span<const Tensor> out) {
    expect_code_groups(a, rows);
    expect_code_groups(b, rows);
    MGPLAN_ASSERT(rows.size() == out.size(), "each group has a sum");
    const std::int64_t m = a.codes.shape()[1], n = b.codes.shape()[1];
    for (const Tensor& each : out) {
        expect_float(each, "the sum of a grouped product in fp8");
        expect_shape(each, {m, n}, "the sum of a grouped product in fp8");
        expect_same_device(a.codes, b.codes, each);
    }
    if (a.codes.shape()[0] == 0) return;
    Device& device = a.codes.device();
    // Room for the largest group's zeros too, not rounded, so that an arena sees that the size depends on the routers' choices.
    const std::int64_t most = *std::ranges::max_element(rows) + kFp8Multiple - 1;
    const Tensor a_columns = device.empty({m * most}, a.codes.dtype(), MemoryCategory::activations, "transposed codes of a group");
    const Tensor b_columns = device.empty({n * most}, b.codes.dtype(), MemoryCategory::activations, "transposed codes of a group");
    const BusyGroups busy = busy_groups(rows);
    device.report({"grouped_matmul",
                   fp8_operations(m, n, a.codes.shape()[0]),
                   a.codes.bytes() + b.codes.bytes() + busy.count * out.front().bytes(),
                   busy.count * out.front().bytes(),
                   busy.count,
                   {},
                   {busy.count, m, n, busy.rows, false, true, Dtype::fp8}});
    const ProductScratch scratch = product_scratch(device, a.codes.dtype(), m, n, most);
    for_each_group(rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
        const std::int64_t inner = padded(end - begin);
        const Tensor a_group = a_columns.slice(0, m * inner).view({m, inner}), b_group = b_columns.slice(0, n * inner).view({n, inner});
        transpose_codes(a.codes.slice(begin, end), a_group);
        transpose_codes(b.codes.slice(begin, end), b_group);
        if (!device.computes()) return;
        device.kernels().matmul(device, {a_group, b_group, out[static_cast<std::size_t>(group)], m, n, inner, false, true, true, scratch.a,
                                         scratch.b, scratch.out, scratch.workspace, factor_of(a, group), factor_of(b, group),
                                         Fp8Scaling::tensor, Fp8Scaling::tensor, ProductAlgorithm::near});
    });
}

}  // namespace mgplan::model
