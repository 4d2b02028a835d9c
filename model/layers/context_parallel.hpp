#pragma once
// Core attention over a sequence that is spread over context-parallel ranks.

#include "model/layers/context.hpp"
#include "model/ops/attention.hpp"

namespace mgplan::model {

/// q, k, v hold this rank's slice of the sequence (zigzag_positions); the result is that slice's attention over the whole
/// sequence. The exchange follows context.cp_comm_type: ring (p2p), all-gather, or all-to-all of heads against sequence.
[[nodiscard]] AttentionResult sharded_attention(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q,
                                                const Tensor& k, const Tensor& v, double scale);

[[nodiscard]] AttentionGradients sharded_attention_backward(const RankContext& context, const MicrobatchContext& microbatch,
                                                            const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                                            const AttentionResult& result, double scale);

}  // namespace mgplan::model
