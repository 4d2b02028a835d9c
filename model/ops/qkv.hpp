#pragma once
// Taking the packed projection of grouped-query attention apart, and putting its gradient together again.

#include "model/device/tensor.hpp"

namespace mgplan::model {

struct QkvParts {
    Tensor q;  ///< (rows, heads, head_dim)
    Tensor k;  ///< (rows, kv_heads, head_dim)
    Tensor v;  ///< (rows, kv_heads, head_dim)
};

/// packed (rows, (heads + 2·kv_heads)·head_dim) holds for each kv head its heads/kv_heads query heads, its key, its value.
[[nodiscard]] QkvParts split_qkv(const Tensor& packed, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
[[nodiscard]] Tensor join_qkv(const QkvParts& parts);

}  // namespace mgplan::model
