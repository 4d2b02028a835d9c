#pragma once
// Attention sinks: one logit for each head that takes part in every row's softmax and has no value (gpt-oss; StreamingLLM,
// arXiv 2309.17453; Transformer Engine's softmax_offset). Attention with a sink is attention without, scaled down.

#include "model/ops/attention.hpp"

namespace mgplan::model {

/// result, over all keys of its rows, becomes that with sinks (heads): output · exp(lse - lse'), lse' = log(exp(lse) + exp(sink)).
/// In place; attention_backward() is then right for q, k and v.
void add_sinks(const AttentionResult& result, const Tensor& sinks);

/// gradient (heads) -= Σ_rows exp(sink - lse') · (d_output · output); the gradient may be fp32 where sinks are 16-bit.
void sinks_gradient(const Tensor& d_output, const AttentionResult& result, const Tensor& sinks, const Tensor& gradient);

}  // namespace mgplan::model
