#include "model/layers/fp8_block_linear.hpp"

#include "model/device/device.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Rows of a layout's tile, and of the longest block.
constexpr std::int64_t kTileRows = 128;

/// Scales of all tp ranks, (ranks, those of one).
Tensor gathered_scales(const RankContext& context, const Tensor& own) {
    Tensor all = context.device->empty({context.tp->size(), own.elements()}, own.dtype(), MemoryCategory::communication, "gathered scales");
    context.tp->all_gather(own, all);
    return all;
}

/// Ranks' scales in `outer` stretches each, stretch by stretch.
Tensor interleaved(const Tensor& all, std::int64_t outer) {
    const std::int64_t ranks = all.shape()[0];
    return swap_leading(all.view({ranks, outer, all.shape()[1] / outer})).view({all.elements()});
}

Fp8Blocks gather_blocks(const RankContext& context, const Fp8Blocks& own) {
    const Tensor codes = enter_region(context, own.codes), all = gathered_scales(context, own.scales);
    // Vectors of 128 stand block by block, those of 32 in tiles of rows.
    const Fp8ScaleLayout layout(own.scaling, own.codes.shape()[0], own.codes.shape()[1]);
    if (own.scaling == Fp8Scaling::vectors_of_128) return {codes, interleaved(all, layout.blocks), own.scaling};
    return {codes, all.view({all.elements()}), own.scaling};
}

Fp8Columns gather_columns_of_blocks(const RankContext& context, const Fp8Columns& own) {
    const Tensor codes = enter_region(context, own.codes), all = gathered_scales(context, own.scales);
    // A rank's rows are blocks of their own of every column: vectors of 128 stand block by block, those of 32 in tiles of columns.
    if (own.scaling == Fp8Scaling::vectors_of_128) return {codes, all.view({all.elements()}), own.scaling};
    return {codes, interleaved(all, (own.codes.shape()[1] + kTileRows - 1) / kTileRows), own.scaling};
}

Fp8Blocks rows_of_input(const Weight& weight, const LinearInput& x, const RankContext* gathered) {
    constexpr std::string_view kName = "input in fp8";
    if (gathered != nullptr && !x.in_fp8() && casts_behind_gather(x.x))
        return quantise_rows(enter_region(*gathered, x.x), vectors_beside(*weight.fp8), kName);
    MGPLAN_ASSERT(!x.in_fp8() || x.forward.defined(), "a forward reads blocks along rows");
    const Fp8Blocks own = x.in_fp8() ? x.forward : quantise_rows(x.x, vectors_beside(*weight.fp8), kName);
    return gathered != nullptr ? gather_blocks(*gathered, own) : own;
}

Fp8Columns columns_of_input(const Weight& weight, const LinearInput& x, const RankContext* gathered) {
    constexpr std::string_view kName = "columns of the input in fp8";
    if (gathered != nullptr && !x.in_fp8() && casts_behind_gather(x.x))
        return quantise_columns(enter_region(*gathered, x.x), vectors_beside(*weight.fp8), kName);
    const Fp8Columns own =
        x.in_fp8() ? Fp8Columns{x.x, x.scale, vectors_beside(*weight.fp8)} : quantise_columns(x.x, vectors_beside(*weight.fp8), kName);
    return gathered != nullptr ? gather_columns_of_blocks(*gathered, own) : own;
}

}  // namespace

bool casts_behind_gather(const Tensor& x) {
    return x.shape()[0] % kTileRows != 0;
}

LinearInput cast_input(const Weight& weight, const Tensor& x) {
    Fp8Blocks rows = quantise_rows(x, vectors_beside(*weight.fp8), "input in fp8");
    return {std::move(rows), quantise_columns(x, vectors_beside(*weight.fp8), "columns of the input in fp8")};
}

Tensor multiply_input(const Weight& weight, const LinearInput& x, const RankContext* gathered, std::string_view name) {
    return block_matmul(rows_of_input(weight, x, gathered), weight.fp8->blocks->values, weight.value.dtype(), name);
}

BlockGradient cast_gradient(const Weight& weight, const Tensor& dy) {
    Fp8Blocks rows = quantise_rows(dy, vectors_beside(*weight.fp8), "output gradient in fp8");
    return {std::move(rows), quantise_columns(dy, vectors_beside(*weight.fp8), "columns of the output gradient in fp8")};
}

Tensor multiply_gradient(const Weight& weight, BlockGradient& dy) {
    Tensor dx = block_matmul(dy.rows, weight.fp8->blocks->transposed, weight.value.dtype(), "input gradient");
    dy.rows = {};
    return dx;
}

void add_block_gradient(const Weight& weight, const Fp8Columns& dy, const LinearInput& x, const RankContext* gathered) {
    const Fp8Blocks columns_of_x = turn_columns(columns_of_input(weight, x, gathered)), columns_of_dy = turn_columns(dy);
    if (weight.start == nullptr || !weight.start->empty) return block_matmul_accumulate(columns_of_dy, columns_of_x, weight.gradient);
    block_matmul_write(columns_of_dy, columns_of_x, weight.gradient);
    weight.start->empty = false;
}

}  // namespace mgplan::model
