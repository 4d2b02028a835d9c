#pragma once
// Splits the packed projection of grouped-query attention, and joins its gradient.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Layout of heads in a row of it: for each kv head its heads / kv_heads query heads, its key, its value.
struct PackedHeads {
    std::int64_t heads, kv_heads, head_dim;

    /// Query heads of a group.
    [[nodiscard]] std::int64_t group_heads() const { return heads / kv_heads; }
    /// Values of a group.
    [[nodiscard]] std::int64_t group_width() const { return (group_heads() + 2) * head_dim; }
    /// Values of a row.
    [[nodiscard]] std::int64_t width() const { return kv_heads * group_width(); }
};

/// packed is (rows, heads.width()), and every kv head has the same number of query heads (assertions).
void expect_packed(const Tensor& packed, const PackedHeads& heads);

struct QkvParts {
    Tensor q;  ///< (rows, heads, head_dim)
    Tensor k;  ///< (rows, kv_heads, head_dim)
    Tensor v;  ///< (rows, kv_heads, head_dim)
};

/// packed (rows, (heads + 2·kv_heads)·head_dim), PackedHeads. Each part is a copy, and so is what they are joined to.
[[nodiscard]] QkvParts split_qkv(const Tensor& packed, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
[[nodiscard]] Tensor join_qkv(const QkvParts& parts);

}  // namespace mgplan::model
