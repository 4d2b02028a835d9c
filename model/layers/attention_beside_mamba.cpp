#include "model/layers/attention_beside_mamba.hpp"

#include <utility>

#include "model/ops/elementwise.hpp"

namespace mgplan::model {

AttentionBesideMamba::AttentionBesideMamba(const AttentionBesideMamba2& mixer, const LayerSite& site)
    : attention_multiplier_(mixer.attention_output_multiplier),
      // The norm of both branches is named as the one in front of attention alone.
      ends_(site, "self_attention.linear_qkv"),
      attention_(mixer.attention, site),
      state_(mixer.mamba2, site,
             {.gate = mixer.state_gate_multiplier,
              .input = mixer.state_input_multiplier,
              .write = mixer.state_write_multiplier,
              .read = mixer.state_read_multiplier,
              .step = mixer.state_step_multiplier,
              .output = mixer.state_output_multiplier}) {}

Tensor AttentionBesideMamba::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor y = attention_.branch(context, microbatch, ends_.enter(context, x, saved), saved.attention);
    if (attention_multiplier_ != 1) scale(y, attention_multiplier_);
    add(state_.branch(context, microbatch, saved.normed, saved.state), y);
    return ends_.leave(context, microbatch, y, x, saved);
}

Tensor AttentionBesideMamba::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                      Saved& saved) const {
    Tensor d_sum = ends_.backward_into(context, microbatch, dy, saved);
    Tensor d_normed = state_.branch_backward(context, microbatch, d_sum, saved.normed, saved.state);
    saved.state = {};
    if (attention_multiplier_ != 1) {
        // A copy, for the residual path reads what came in.
        const Tensor scaled = context.device->empty(d_sum.shape(), d_sum.dtype(), MemoryCategory::activations, "scaled gradient");
        copy(d_sum, scaled);
        scale(scaled, attention_multiplier_);
        d_sum = scaled;
    }
    add(attention_.branch_backward(context, microbatch, std::move(d_sum), saved.normed, saved.attention), d_normed);
    Tensor dx = ends_.backward_out(context, dy, std::move(d_normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
