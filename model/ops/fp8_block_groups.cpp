#include "model/ops/fp8_block_groups.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/ops/checks.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/product.hpp"

namespace mgplan::model {
namespace {

std::int64_t sum_of(std::span<const std::int64_t> rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

std::int64_t filled(std::int64_t rows) {
    return Fp8ScaleLayout::up(rows, kRowsOfVectors);
}

/// First row and first scale of each group, and the ends of all.
struct GroupPlaces {
    std::vector<std::int64_t> rows{0}, scales{0};
    [[nodiscard]] bool is_empty(std::size_t group) const { return rows[group] == rows[group + 1]; }
    /// Returns a group's part of `all`.
    [[nodiscard]] Tensor of(const Tensor& all, std::size_t group) const { return all.slice(rows[group], rows[group + 1]); }
    [[nodiscard]] Tensor scales_of(const Tensor& all, std::size_t group) const { return all.slice(scales[group], scales[group + 1]); }
    [[nodiscard]] Fp8Blocks of(const Fp8Blocks& all, std::size_t group) const {
        return {of(all.codes, group), scales_of(all.scales, group), all.scaling};
    }
    [[nodiscard]] Fp8Columns of(const Fp8Columns& all, std::size_t group) const {
        return {of(all.codes, group), scales_of(all.scales, group), all.scaling, all.lie};
    }
};

template <class Layout>
GroupPlaces places_of_groups(std::span<const std::int64_t> rows, const Layout& layout) {
    GroupPlaces places;
    for (const std::int64_t count : rows) {
        places.rows.push_back(places.rows.back() + count);
        places.scales.push_back(places.scales.back() + (count == 0 ? 0 : layout(count).count()));
    }
    return places;
}

GroupPlaces places_along_rows(std::span<const std::int64_t> rows, Fp8Scaling scaling, std::int64_t width) {
    return places_of_groups(rows, [&](std::int64_t count) { return Fp8ScaleLayout(scaling, filled(count), width); });
}
GroupPlaces places_along_columns(std::span<const std::int64_t> rows, Fp8Scaling scaling, std::int64_t width) {
    return places_of_groups(rows, [&](std::int64_t count) { return Fp8ScaleLayout(scaling, width, count); });
}

void expect_group_scales(const Tensor& codes, const Tensor& scales, Fp8Scaling scaling, std::int64_t rows, const GroupPlaces& places) {
    MGPLAN_ASSERT(codes.defined() && codes.dtype() == Dtype::fp8 && codes.shape().rank() == 2 && codes.shape()[0] == rows,
                  "groups of rows are codes in fp8, and room behind them");
    MGPLAN_ASSERT(scaling == Fp8Scaling::vectors_of_128 || scaling == Fp8Scaling::vectors_of_32, "groups of rows have vectors");
    expect_dtype(scales, fp8_scale_dtype(scaling), "scales of groups");
    expect_shape(scales, {places.scales.back()}, "scales of groups");
    expect_same_device(codes, scales);
}

Tensor codes_of_groups(const Tensor& x, std::int64_t more, std::string_view name) {
    return x.device().empty({x.shape()[0] + more, x.shape()[1]}, Dtype::fp8, MemoryCategory::activations, name);
}
Tensor scales_of_groups(const Tensor& x, Fp8Scaling scaling, const GroupPlaces& places) {
    return x.device().empty({places.scales.back()}, fp8_scale_dtype(scaling), MemoryCategory::activations, "scales of groups in blocks");
}

/// Returns room for casts along rows, with zeros after the last group.
Fp8Blocks rows_of_groups(const Tensor& x, Fp8Scaling scaling, const GroupPlaces& places, std::string_view name) {
    MGPLAN_ASSERT(places.rows.back() == x.shape()[0], "the groups are all rows");
    Fp8Blocks made{codes_of_groups(x, kRowsOfVectors, name), scales_of_groups(x, scaling, places), scaling};
    x.device().zero(made.codes.slice(x.shape()[0], made.codes.shape()[0]));
    return made;
}

/// Number of groups that have rows, and their average number of rows.
struct GroupsAtWork {
    std::int64_t count, rows;
};

GroupsAtWork groups_at_work(std::span<const std::int64_t> rows) {
    const auto count = static_cast<std::int64_t>(std::ranges::count_if(rows, [](std::int64_t each) { return each > 0; }));
    return {count, count == 0 ? 0 : (sum_of(rows) + count - 1) / count};
}

double block_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace

Fp8BothWays quantise_groups_both_ways(const Tensor& x, Fp8Scaling scaling, std::span<const std::int64_t> rows, std::string_view rows_name,
                                      std::string_view columns_name) {
    const GroupPlaces places = places_along_rows(rows, scaling, x.shape()[1]);
    const GroupPlaces column_places = places_along_columns(rows, scaling, x.shape()[1]);
    Fp8BothWays made{rows_of_groups(x, scaling, places, rows_name),
                     {codes_of_groups(x, 0, columns_name), scales_of_groups(x, scaling, column_places), scaling, ColumnCodes::as_rows}};
    for (std::size_t group = 0; group < rows.size(); ++group) {
        if (places.is_empty(group)) continue;
        quantise_both_ways(places.of(x, group), places.of(made.rows, group), column_places.of(made.columns, group), filled(rows[group]));
    }
    return made;
}

Tensor block_grouped_matmul(const Fp8Blocks& a, std::span<const Fp8Blocks> b, std::span<const std::int64_t> rows, Dtype out,
                            std::string_view name) {
    MGPLAN_ASSERT(!rows.empty() && rows.size() == b.size(), "each group has a matrix");
    const std::int64_t sum = sum_of(rows), k = a.codes.shape()[1], n = b.front().codes.shape()[0];
    const GroupPlaces places = places_along_rows(rows, a.scaling, k);
    expect_group_scales(a.codes, a.scales, a.scaling, sum + kRowsOfVectors, places);
    for (const Fp8Blocks& each : b) {
        expect_shape(each.codes, {n, k}, "b of a grouped product in blocks");
        expect_shape(each.scales, {Fp8ScaleLayout(each.scaling, n, k).count()}, "scales of b of a grouped product in blocks");
        expect_same_device(a.codes, each.codes, each.scales);
    }
    Device& device = a.codes.device();
    const Tensor product = device.empty({sum + kRowsOfVectors, n}, out, MemoryCategory::activations, name);
    const GroupsAtWork work = groups_at_work(rows);
    device.report({"grouped_matmul",
                   block_operations(sum, n, k),
                   sum * k + work.count * b.front().codes.bytes(),
                   sum * n * bytes_of(out),
                   work.count,
                   {},
                   {work.count, work.rows, n, k, true, false, Dtype::fp8}});
    if (sum == 0) return product.slice(0, 0);
    const ProductScratch scratch = product_scratch(device, Dtype::fp8, filled(*std::ranges::max_element(rows)), n, k);
    for (std::size_t group = 0; device.computes() && group < rows.size(); ++group) {
        if (places.is_empty(group)) continue;
        // In the order of the rows: rows written after a group's end are overwritten by the next group.
        const std::int64_t begin = places.rows[group], count = filled(rows[group]);
        device.kernels().matmul(device, {a.codes.slice(begin, begin + count), b[group].codes, product.slice(begin, begin + count), count, n,
                                         k, false, true, false, scratch.a, scratch.b, scratch.out, scratch.workspace,
                                         a.scales.slice(places.scales[group], places.scales[group + 1]), b[group].scales, a.scaling,
                                         b[group].scaling, ProductAlgorithm::near});
    }
    return product.slice(0, sum);
}

void block_grouped_accumulate(const Fp8Columns& a, const Fp8Columns& b, std::span<const std::int64_t> rows, std::span<const Tensor> out) {
    MGPLAN_ASSERT(!rows.empty() && rows.size() == out.size() && a.scaling == b.scaling, "each group has a sum");
    const std::int64_t sum = sum_of(rows), m = a.codes.shape()[1], n = b.codes.shape()[1];
    const GroupPlaces places_of_a = places_along_columns(rows, a.scaling, m), places_of_b = places_along_columns(rows, b.scaling, n);
    MGPLAN_ASSERT(a.lie == ColumnCodes::as_rows && b.lie == ColumnCodes::as_rows, "groups' columns are turned here");
    expect_group_scales(a.codes, a.scales, a.scaling, sum, places_of_a);
    expect_group_scales(b.codes, b.scales, b.scaling, sum, places_of_b);
    for (const Tensor& each : out) {
        expect_float(each, "the sum of a grouped product in blocks");
        expect_shape(each, {m, n}, "the sum of a grouped product in blocks");
        expect_same_device(a.codes, b.codes, each);
    }
    if (sum == 0) return;
    Device& device = a.codes.device();
    const std::int64_t multiple = a.scaling == Fp8Scaling::vectors_of_32 ? kMxfp8Multiple : kFp8Multiple;
    // Room for the largest group's zeros too, not rounded, so that an arena sees that the size depends on the routers' choices.
    const std::int64_t most = *std::ranges::max_element(rows) + multiple - 1;
    const Tensor a_columns = device.empty({m * most}, Dtype::fp8, MemoryCategory::activations, "transposed codes of a group");
    const Tensor b_columns = device.empty({n * most}, Dtype::fp8, MemoryCategory::activations, "transposed codes of a group");
    const GroupsAtWork work = groups_at_work(rows);
    device.report({"grouped_matmul",
                   block_operations(m, n, sum),
                   a.codes.bytes() + b.codes.bytes() + work.count * out.front().bytes(),
                   work.count * out.front().bytes(),
                   work.count,
                   {},
                   {work.count, m, n, work.rows, false, true, Dtype::fp8}});
    const ProductScratch scratch = product_scratch(device, Dtype::fp8, m, n, most);
    for (std::size_t group = 0; group < rows.size(); ++group) {
        if (places_of_a.is_empty(group)) continue;
        const std::int64_t inner = Fp8ScaleLayout::up(rows[group], multiple);  // the same for both matrices
        const Tensor a_group = a_columns.slice(0, m * inner).view({m, inner}), b_group = b_columns.slice(0, n * inner).view({n, inner});
        transpose_codes(places_of_a.of(a.codes, group), a_group);
        transpose_codes(places_of_b.of(b.codes, group), b_group);
        if (!device.computes()) continue;
        device.kernels().matmul(device, {a_group, b_group, out[group], m, n, inner, false, true, true, scratch.a, scratch.b, scratch.out,
                                         scratch.workspace, places_of_a.scales_of(a.scales, group), places_of_b.scales_of(b.scales, group),
                                         a.scaling, b.scaling, ProductAlgorithm::near});
    }
}

}  // namespace mgplan::model
