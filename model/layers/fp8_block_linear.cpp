#include "model/layers/fp8_block_linear.hpp"

#include <utility>

#include "model/device/device.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Rows of a layout's tile, and of the longest block.
constexpr std::int64_t kTileRows = 128;

constexpr std::string_view kColumnsName = "columns of the input in fp8";

/// Scales of all tp ranks, (ranks, those of one).
Underway start_gathering_scales(const RankContext& context, Tensor own) {
    Tensor all = context.device->empty({context.tp->size(), own.elements()}, own.dtype(), MemoryCategory::communication, "gathered scales");
    auto pending = context.tp->start_all_gather(own, all);
    return {std::move(own), std::move(all), std::move(pending)};
}

/// Ranks' scales in `outer` stretches each, stretch by stretch.
Tensor interleaved(const Tensor& all, std::int64_t outer) {
    const std::int64_t ranks = all.shape()[0];
    return swap_leading(all.view({ranks, outer, all.shape()[1] / outer})).view({all.elements()});
}

Fp8Blocks gather_blocks(const RankContext& context, const Fp8Blocks& own) {
    const Tensor codes = enter_region(context, own.codes), all = start_gathering_scales(context, own.scales).wait();
    // Vectors of 128 are ordered block by block, those of 32 in tiles of rows.
    const Fp8ScaleLayout layout(own.scaling, own.codes.shape()[0], own.codes.shape()[1]);
    if (own.scaling == Fp8Scaling::vectors_of_128) return {codes, interleaved(all, layout.blocks), own.scaling};
    return {codes, all.view({all.elements()}), own.scaling};
}

/// Returns codes, in the order of rows, and scales of all ranks.
Fp8Columns arranged(Tensor codes, const Tensor& scales, Fp8Scaling scaling) {
    // A rank's rows are blocks of their own of every column: vectors of 128 are ordered block by block, those of 32 in tiles of columns.
    const std::int64_t columns = codes.shape()[1];
    if (scaling == Fp8Scaling::vectors_of_128) return {std::move(codes), scales.view({scales.elements()}), scaling, ColumnCodes::as_rows};
    return {std::move(codes), interleaved(scales, (columns + kTileRows - 1) / kTileRows), scaling, ColumnCodes::as_rows};
}

Fp8Blocks rows_of_input(const Weight& weight, const LinearInput& x, const RankContext* gathered) {
    constexpr std::string_view kName = "input in fp8";
    if (gathered != nullptr && !x.in_fp8() && casts_behind_gather(x.x))
        return quantise_rows(enter_region(*gathered, x.x), vectors_beside(*weight.fp8), kName);
    MGPLAN_ASSERT(!x.in_fp8() || x.forward.defined(), "a forward reads blocks along rows");
    const Fp8Blocks own = x.in_fp8() ? x.forward : quantise_rows(x.x, vectors_beside(*weight.fp8), kName);
    return gathered != nullptr ? gather_blocks(*gathered, own) : own;
}

}  // namespace

bool casts_behind_gather(const Tensor& x) {
    return x.shape()[0] % kTileRows != 0;
}

LinearInput cast_input(const Weight& weight, const Tensor& x, const RankContext* gathered) {
    const ColumnCodes lie = gathered != nullptr ? ColumnCodes::as_rows : ColumnCodes::turned;
    Fp8BothWays cast = quantise_both_ways(x, vectors_beside(*weight.fp8), lie, "input in fp8", kColumnsName);
    return {std::move(cast.rows), std::move(cast.columns)};
}

Tensor multiply_input(const Weight& weight, const LinearInput& x, const RankContext* gathered, ProductAlgorithm algorithm,
                      std::string_view name) {
    return block_matmul(rows_of_input(weight, x, gathered), weight.fp8->blocks->values, weight.value.dtype(), name, algorithm);
}

BlockGradient cast_gradient(const Weight& weight, const Tensor& dy) {
    Fp8BothWays cast = quantise_both_ways(dy, vectors_beside(*weight.fp8), ColumnCodes::turned, "output gradient in fp8",
                                          "columns of the output gradient in fp8");
    return {std::move(cast.rows), std::move(cast.columns)};
}

Tensor multiply_gradient(const Weight& weight, BlockGradient& dy, ProductAlgorithm algorithm) {
    Tensor dx = block_matmul(dy.rows, weight.fp8->blocks->transposed, weight.value.dtype(), "input gradient", algorithm);
    dy.rows = {};
    return dx;
}

ColumnsUnderway start_columns(const Weight& weight, const LinearInput& x, const RankContext* gathered) {
    ColumnsUnderway columns;
    columns.scaling_ = vectors_beside(*weight.fp8);
    if (gathered == nullptr) {
        columns.own_ = x;
    } else if (!x.in_fp8() && casts_behind_gather(x.x)) {
        columns.what_ = ColumnsUnderway::What::rows;
        columns.rows_ = start_entering(*gathered, x.x);
    } else {
        Fp8Columns own =
            x.in_fp8() ? x.columns(columns.scaling_) : quantise_columns(x.x, columns.scaling_, ColumnCodes::as_rows, kColumnsName);
        MGPLAN_ASSERT(own.lie == ColumnCodes::as_rows, "ranks' rows are gathered behind each other");
        columns.what_ = ColumnsUnderway::What::codes;
        columns.rows_ = start_entering(*gathered, std::move(own.codes));
        columns.scales_ = start_gathering_scales(*gathered, std::move(own.scales));
    }
    return columns;
}

Fp8Columns ColumnsUnderway::wait() {
    switch (what_) {
        case What::own: {
            const LinearInput own = std::exchange(own_, {});
            return own.in_fp8() ? own.columns(scaling_) : quantise_columns(own.x, scaling_, ColumnCodes::turned, kColumnsName);
        }
        case What::rows:
            return quantise_columns(rows_.wait(), scaling_, ColumnCodes::turned, kColumnsName);
        case What::codes:
            break;
    }
    Tensor codes = rows_.wait();
    return arranged(std::move(codes), scales_.wait(), scaling_);
}

void add_block_gradient(const Weight& weight, const Fp8Columns& dy, Fp8Columns x, ProductAlgorithm algorithm) {
    const Fp8Blocks columns_of_x = turn_columns(std::exchange(x, {}));  // the codes that were turned are freed before the product
    const Fp8Blocks columns_of_dy = turn_columns(dy);
    if (weight.start == nullptr || !weight.start->empty)
        return block_matmul_accumulate(columns_of_dy, columns_of_x, weight.gradient, algorithm);
    block_matmul_write(columns_of_dy, columns_of_x, weight.gradient, algorithm);
    weight.start->empty = false;
}

}  // namespace mgplan::model
