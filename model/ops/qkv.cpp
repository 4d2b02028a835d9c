#include "model/ops/qkv.hpp"

#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/errors.hpp"

namespace mgplan::model {

QkvParts split_qkv(const Tensor& packed, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
    const std::int64_t per_group = heads / kv_heads;
    MGPLAN_ASSERT(heads % kv_heads == 0 && packed.shape().rank() == 2 && packed.shape()[1] == (heads + 2 * kv_heads) * head_dim,
                  "the packed projection holds q, k and v of every head");
    const std::int64_t rows = packed.shape()[0];
    Device& device = packed.device();
    const auto part = [&](std::int64_t count, std::string_view name) {
        return device.empty({rows, count * head_dim}, packed.dtype(), MemoryCategory::activations, name);
    };
    const Tensor q = part(heads, "queries"), k = part(kv_heads, "keys"), v = part(kv_heads, "values");
    for (std::int64_t group = 0; group < kv_heads; ++group) {
        const std::int64_t begin = group * (per_group + 2) * head_dim, queries_end = begin + per_group * head_dim;
        set_columns(columns(packed, begin, queries_end), q, group * per_group * head_dim);
        set_columns(columns(packed, queries_end, queries_end + head_dim), k, group * head_dim);
        set_columns(columns(packed, queries_end + head_dim, queries_end + 2 * head_dim), v, group * head_dim);
    }
    return {q.view({rows, heads, head_dim}), k.view({rows, kv_heads, head_dim}), v.view({rows, kv_heads, head_dim})};
}

Tensor join_qkv(const QkvParts& parts) {
    const std::int64_t rows = parts.q.shape()[0], heads = parts.q.shape()[1], kv_heads = parts.k.shape()[1], head_dim = parts.q.shape()[2];
    const std::int64_t per_group = heads / kv_heads;
    const Tensor packed = parts.q.device().empty({rows, (heads + 2 * kv_heads) * head_dim}, parts.q.dtype(), MemoryCategory::activations,
                                                 "packed queries, keys, values");
    const Tensor q = parts.q.view({rows, heads * head_dim}), k = parts.k.view({rows, kv_heads * head_dim}),
                 v = parts.v.view({rows, kv_heads * head_dim});
    for (std::int64_t group = 0; group < kv_heads; ++group) {
        const std::int64_t begin = group * (per_group + 2) * head_dim, queries_end = begin + per_group * head_dim;
        set_columns(columns(q, group * per_group * head_dim, (group + 1) * per_group * head_dim), packed, begin);
        set_columns(columns(k, group * head_dim, (group + 1) * head_dim), packed, queries_end);
        set_columns(columns(v, group * head_dim, (group + 1) * head_dim), packed, queries_end + head_dim);
    }
    return packed;
}

}  // namespace mgplan::model
