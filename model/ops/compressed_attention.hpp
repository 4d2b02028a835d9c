#pragma once
// Attention to the last tokens of a sequence and to keys that each stand for several tokens before (DeepSeek-V4; transformers 5.23.0,
// modeling_deepseek_v4.py; Megatron-LM's branch dev at d48bd6be, transformer/experimental_attention_variant/csa.py). One head of keys,
// which are their own values, serves all heads of queries. Implemented for shapes alone: no device here computes it
// (layers_known_of_shapes()). Rows are places of the sequence, of each place the sequences of a microbatch.

#include <cstdint>

#include "model/device/tensor.hpp"
#include "model/ops/attention.hpp"

namespace mgplan::model {

/// Compression of tokens to keys: one for every `rate` whole tokens of a sequence, out of these and, with `overlaps`, the `rate` tokens
/// before them. Tokens after the last whole window have none.
struct Compression {
    std::int64_t rate = 1;
    bool overlaps = false;
    /// Number of keys of one sequence of `places`.
    [[nodiscard]] std::int64_t keys(std::int64_t places) const { return places / rate; }
    /// Columns of the tokens that are compressed to keys of `width` values.
    [[nodiscard]] std::int64_t columns(std::int64_t width) const { return overlaps ? 2 * width : width; }
};

/// The sum of each window's tokens, weighed value by value with the softmax over the window of `gates` and `places` (rate, columns): tokens
/// and gates (rows, columns) of `batch` sequences, which have at least one whole window -> (keys of all sequences, width).
[[nodiscard]] Tensor compress_keys(const Tensor& tokens, const Tensor& gates, const Tensor& places, Compression compression,
                                   std::int64_t batch);
struct CompressionGradients {
    Tensor tokens, gates;
};
/// Weights are made again; adds to the gradient of `places`.
[[nodiscard]] CompressionGradients compress_keys_backward(const Tensor& d_keys, const Tensor& tokens, const Tensor& gates,
                                                          const Tensor& places, const Tensor& places_gradient, Compression compression,
                                                          std::int64_t batch);

/// Keys that a query sees: of its sequence the last `window` tokens, including its own, and the compressed keys whose tokens all come
/// before it, at most `most` of these (0: all).
struct SparseSight {
    std::int64_t window = 1;
    std::int64_t rate = 0;  ///< 0: no compressed keys
    std::int64_t most = 0;
    /// Number of (query, key) pairs of one sequence of `places` and one head.
    [[nodiscard]] double pairs(std::int64_t places) const;
};

/// Attention of queries (rows, heads, width) to keys (rows, width) and compressed keys (undefined: none), with a logit for each head that
/// takes part in the softmax and has no value. `chosen` (rows, at most `most`) int32: the compressed keys of each row; undefined: all that
/// it sees. Two products over the pairs that are seen.
[[nodiscard]] AttentionResult sparse_attention(const Tensor& q, const Tensor& keys, const Tensor& compressed, const Tensor& chosen,
                                               const Tensor& sinks, const SparseSight& sight, std::int64_t batch);
struct SparseAttentionGradients {
    Tensor q, keys, compressed;  ///< the last undefined without compressed keys
};
/// Five products over the same pairs: scores again, their gradient, and the gradients of values, queries and keys, of which the first and
/// the last go to one tensor. Adds to the gradient of the sinks.
[[nodiscard]] SparseAttentionGradients sparse_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& keys,
                                                                 const Tensor& compressed, const Tensor& chosen,
                                                                 const AttentionResult& result, const Tensor& sinks_gradient,
                                                                 const SparseSight& sight, std::int64_t batch);

}  // namespace mgplan::model
