#pragma once
// Core attention over a sequence that is spread over context-parallel ranks.

#include <string_view>

#include "model/layers/context.hpp"
#include "model/ops/attention.hpp"

namespace mgplan::model {

/// Names of the tensors that hold the rows of all cp ranks in the all-gather exchange; only their bytes grow with cp.
inline constexpr std::string_view kGatheredOverCp = "gathered keys or values";
inline constexpr std::string_view kGradientsOverCp = "key or value gradients of all ranks";

/// Parameters of the core attention besides its operands.
struct CoreAttention {
    double scale = 1;         ///< of the scores
    std::int64_t window = 0;  ///< places that a query sees, its own and those before; 0: all before
    double soft_cap = 0;      ///< of the scores; 0: none
    Weight sinks;             ///< one logit for each of the rank's heads; undefined: none
};

/// q, k, v hold this rank's slice of the sequence (zigzag_positions); the result is that slice's attention over the whole
/// sequence. The exchange follows context.cp_comm_type: ring (p2p), all-gather, or all-to-all of heads against sequence.
/// The backward adds to the gradient of the sinks.
[[nodiscard]] AttentionResult sharded_attention(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q,
                                                const Tensor& k, const Tensor& v, const CoreAttention& core);

[[nodiscard]] AttentionGradients sharded_attention_backward(const RankContext& context, const MicrobatchContext& microbatch,
                                                            const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                                            const AttentionResult& result, const CoreAttention& core);

/// reads_packed() of this core.
[[nodiscard]] bool reads_packed_core(const RankContext& context, const MicrobatchContext& microbatch, const PackedHeads& heads,
                                     const CoreAttention& core);
/// The same of queries, keys and values that lie packed, of whole sequences: cp has one rank.
[[nodiscard]] AttentionResult packed_core(const MicrobatchContext& microbatch, const Tensor& packed, const PackedHeads& heads,
                                          const CoreAttention& core);
/// Returns the gradient of `packed`.
[[nodiscard]] Tensor packed_core_backward(const MicrobatchContext& microbatch, const Tensor& d_output, const Tensor& packed,
                                          const PackedHeads& heads, const AttentionResult& result, const CoreAttention& core);

}  // namespace mgplan::model
