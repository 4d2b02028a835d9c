#pragma once
// Where cuDNN's attention finds queries, keys and values: strides of (batch, heads, places, width), as cuDNN orders sizes.

#include <array>
#include <cstdint>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// In values.
using FourStrides = std::array<std::int64_t, 4>;

/// cuDNN's order of sizes is (batch, heads, places, width); ours in memory is (places, batch, heads, width).
[[nodiscard]] inline FourStrides strides_of(const FusedShape& shape, std::int64_t heads, std::int64_t width) {
    return {heads * width, width, shape.batch * heads * width, 1};
}

/// Strides of the queries, or of the keys or values (their `heads`), and of their gradients, for a shape from by_group().
[[nodiscard]] inline FourStrides input_strides(const FusedShape& shape, std::int64_t heads, std::int64_t width) {
    if (!shape.packed) return strides_of(shape, heads, width);
    const std::int64_t group = (shape.heads / shape.kv_heads + 2) * width, head = shape.heads == shape.kv_heads ? group : width;
    return {shape.kv_heads * group, head, shape.batch * shape.kv_heads * group, 1};
}

/// Returns a packed shape as passed to cuDNN. If several query heads share a key, four strides cannot address the heads of all groups,
/// since a key and a value lie between them; but they can address one group. So each group is a sequence of its own, with one key head.
/// Arrays that are not packed, (places, sequences, groups, heads of a group, width), lie the same either way.
[[nodiscard]] inline FusedShape by_group(FusedShape shape) {
    if (!shape.packed || shape.heads == shape.kv_heads) return shape;
    shape.batch *= shape.kv_heads;
    shape.heads /= shape.kv_heads;
    shape.kv_heads = 1;
    return shape;
}

}  // namespace mgplan::runtime::cuda
