#include "model/ops/qkv.hpp"

#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

void expect_packed(const Tensor& packed, const PackedHeads& heads) {
    MGPLAN_ASSERT(packed.shape().rank() == 2, "the packed projection has rows and values");
    MGPLAN_ASSERT(heads.head_dim > 0 && heads.kv_heads > 0 && heads.heads > 0 && heads.heads % heads.kv_heads == 0,
                  "the heads are a multiple of the key and value heads");
    MGPLAN_ASSERT(packed.shape()[1] == heads.width(), "the packed projection holds q, k and v of every head");
}

// Seen as (rows · kv_heads, (heads / kv_heads + 2) · head_dim), the queries, keys and values of all groups are three ranges of
// columns.
QkvParts split_qkv(const Tensor& packed, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
    expect_packed(packed, {heads, kv_heads, head_dim});
    const std::int64_t queries = heads / kv_heads * head_dim, width = queries + 2 * head_dim;
    const std::int64_t rows = packed.shape()[0];
    const Tensor groups = packed.view({rows * kv_heads, width});
    return {columns(groups, 0, queries).view({rows, heads, head_dim}),
            columns(groups, queries, queries + head_dim).view({rows, kv_heads, head_dim}),
            columns(groups, queries + head_dim, width).view({rows, kv_heads, head_dim})};
}

Tensor join_qkv(const QkvParts& parts) {
    const std::int64_t rows = parts.q.shape()[0], heads = parts.q.shape()[1], kv_heads = parts.k.shape()[1], head_dim = parts.q.shape()[2];
    const std::int64_t queries = heads / kv_heads * head_dim, width = queries + 2 * head_dim;
    const Tensor groups =
        parts.q.device().empty({rows * kv_heads, width}, parts.q.dtype(), MemoryCategory::activations, "packed queries, keys, values");
    set_columns(parts.q.view({rows * kv_heads, queries}), groups, 0);
    set_columns(parts.k.view({rows * kv_heads, head_dim}), groups, queries);
    set_columns(parts.v.view({rows * kv_heads, head_dim}), groups, queries + head_dim);
    return groups.view({rows, kv_heads * width});
}

}  // namespace mgplan::model
