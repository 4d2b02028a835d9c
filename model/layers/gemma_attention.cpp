#include "model/layers/gemma_attention.hpp"

#include <cmath>
#include <utility>

#include "model/layers/rotary_scaling.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {
namespace {

/// Returns each head as a row, for its norm.
Tensor head_rows(const Tensor& heads) {
    return heads.view({heads.shape()[0] * heads.shape()[1], heads.shape()[2]});
}

Tensor heads_joined(const Tensor& heads) {
    return heads.view({heads.shape()[0], heads.shape()[1] * heads.shape()[2]});
}

}  // namespace

LayerInputs::LayerInputs(const LayerSite& site, std::int64_t width, const std::string& module)
    : width_(width),
      words_(site.weights.at(site.prefix + module + "layer_input.words.weight")),
      norm_(site.weights.at("layer_inputs.norm.weight")),
      projection_(site.weights.at(site.prefix + module + "layer_input.projection.weight")),
      gate_(site.weights.at(site.prefix + module + "layer_input.gate.weight")),
      back_(site.weights.at(site.prefix + module + "layer_input.back.weight")),
      behind_(site, site.prefix + module + "layer_input.norm.") {}

Tensor LayerInputs::ids_of(const RankContext& context, const Tensor& x) const {
    const std::int64_t rows = x.shape()[0] * (context.sequence_parallel ? context.tp->size() : 1);
    return context.device->empty({rows}, Dtype::int32, MemoryCategory::workspace, "ids of a layer's inputs");
}

Tensor LayerInputs::forward(const RankContext& context, const Tensor& x, LayerInputsSaved& saved) const {
    saved.stream = x;
    const std::int64_t first = words_.value.shape()[0] * context.tp->rank();
    const Tensor input = leave_region(context, embedding(ids_of(context, x), words_.value, first));  // (rows outside, width)
    saved.projected = projection_.forward(context, x);
    saved.normed = norm(saved.projected, norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.statistics);
    add(saved.normed, input);
    saved.normed = {};
    saved.joined = context.device->empty({x.shape()[0], 2 * width_}, x.dtype(), MemoryCategory::activations, "gate and layer input");
    set_columns(gate_.forward(context, x), saved.joined, 0);
    set_columns(input, saved.joined, width_);
    saved.gated = activation(saved.joined, Activation::gelu, true);
    return behind_.forward(context, back_.forward(context, saved.gated), saved.behind);
}

void LayerInputs::backward(const RankContext& context, const Tensor& dy, const Tensor& d_x, LayerInputsSaved& saved) const {
    const Tensor d_gated = back_.backward(context, behind_.backward(dy, saved.behind), saved.gated);
    const Tensor d_joined = activation_backward(d_gated, saved.joined, Activation::gelu, true);
    saved.gated = saved.joined = {};
    const Tensor d_input = columns(d_joined, width_, 2 * width_);
    add(gate_.backward(context, columns(d_joined, 0, width_), saved.stream), d_x);
    const Tensor d_projected =
        norm_backward(d_input, saved.projected, norm_.value, saved.statistics, Normalization::rms_norm, norm_.gradient, {});
    add(projection_.backward(context, d_projected, saved.stream), d_x);  // of the embeddings; the stream is used in their place
    embedding_backward(enter_region(context, d_input), ids_of(context, dy), words_.value.shape()[0] * context.tp->rank(), words_.gradient);
    saved = {};
}

LowRankBypass::LowRankBypass(const LayerSite& site)
    : there_(site.weights.at(site.prefix + "bypass.there.weight")),
      back_(site.weights.at(site.prefix + "bypass.back.weight")),
      norm_(site, site.prefix + "bypass.norm.") {}

Tensor LowRankBypass::forward(const RankContext& context, const Tensor& x, Saved& saved) const {
    saved.latent = there_.forward(context, x);
    return norm_.forward(context, back_.forward(context, saved.latent), saved.norm);
}

Tensor LowRankBypass::backward(const RankContext& context, const Tensor& dy, const Tensor& x, Saved& saved) const {
    const Tensor d_latent = back_.backward(context, norm_.backward(dy, saved.norm), saved.latent);
    saved = {};
    return there_.backward(context, d_latent, x);
}

GemmaAttention::GemmaAttention(const mgplan::GemmaAttention& mixer, const LayerSite& site)
    : mixer_(mixer),
      window_(site.layer.window),
      max_positions_(site.max_positions),
      residual_(site, ResidualPlace::attention),
      norm_(site, site.prefix + "self_attention.linear_qkv.layer_norm_"),
      behind_(site, site.prefix + "post_self_attn_layernorm."),
      q_norm_(site.weights.at(site.prefix + "self_attention.q_layernorm.weight")),
      k_norm_(site.weights.find(site.prefix + "self_attention.k_layernorm.weight")),
      projection_(site.weights.at(site.prefix + "self_attention.linear_qkv.weight"),
                  site.weights.find(site.prefix + "self_attention.linear_qkv.bias")),
      output_(site.weights.at(site.prefix + "self_attention.linear_proj.weight"),
              site.weights.find(site.prefix + "self_attention.linear_proj.bias")) {
    if (mixer.layer_input_width > 0) inputs_.emplace(site, mixer.layer_input_width);
    if (mixer.bypass_rank > 0) bypass_.emplace(site);
}

CoreAttention GemmaAttention::core_of(const MicrobatchContext& microbatch) const {
    return {.scale = 1, .window = window_ >= microbatch.sequence ? 0 : window_, .sinks = {}};
}

Tensor GemmaAttention::turned(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, bool inverse) const {
    return rotary(x, positions_of(context, microbatch), mixer_.head_dim, rotary_angles(mixer_.rotary, mixer_.head_dim, max_positions_),
                  inverse);
}

Tensor GemmaAttention::taken_over(const RankContext& context, const Tensor& q, std::string_view name) const {
    return context.device->empty({q.shape()[0], mixer_.kv_heads / context.tp->size(), mixer_.head_dim}, q.dtype(),
                                 MemoryCategory::activations, name);
}

Tensor GemmaAttention::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    const Tensor packed = projection_.forward(context, saved.normed);
    const std::int64_t tp = context.tp->size(), rows = packed.shape()[0], queries = mixer_.heads / tp, groups = mixer_.kv_heads / tp;
    const auto block = [&](std::int64_t begin, std::int64_t heads) {
        return columns(packed, begin * mixer_.head_dim, (begin + heads) * mixer_.head_dim).view({rows, heads, mixer_.head_dim});
    };
    const auto normed = [&](const Tensor& raw, const Weight& weight, NormStatistics& statistics) {
        return norm(head_rows(raw), weight.value, {}, Normalization::rms_norm, context.norm_epsilon, statistics).view(raw.shape());
    };
    saved.q_raw = mixer_.shares_kv ? packed.view({rows, queries, mixer_.head_dim}) : block(0, queries);
    saved.q = turned(context, microbatch, normed(saved.q_raw, q_norm_, saved.q_statistics), false);
    if (!mixer_.shares_kv) {
        saved.k_raw = block(queries, groups);
        saved.v_raw = mixer_.key_is_value ? saved.k_raw : block(queries + groups, groups);
        saved.k = turned(context, microbatch, normed(saved.k_raw, k_norm_, saved.k_statistics), false);
        saved.v = normed(saved.v_raw, {}, saved.v_statistics);
    }
    {
        const Tensor k = mixer_.shares_kv ? taken_over(context, saved.q, "keys of another layer") : saved.k;
        const Tensor v = mixer_.shares_kv ? taken_over(context, saved.q, "values of another layer") : saved.v;
        saved.core = sharded_attention(context, microbatch, saved.q, k, v, core_of(microbatch));
    }
    const Tensor y = output_.forward(context, heads_joined(saved.core.output));
    Tensor sum = residual_.sum(context, microbatch, behind_.forward(context, y, saved.behind), x);
    if (bypass_) {
        add(bypass_->forward(context, saved.normed, saved.bypass), sum);
        add(saved.normed, sum);
        scale(sum, std::sqrt(0.5));
    }
    if (inputs_) add(inputs_->forward(context, sum, saved.inputs), sum);
    return sum;
}

Tensor GemmaAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    if (inputs_) inputs_->backward(context, dy, dy, saved.inputs);
    if (bypass_) scale(dy, std::sqrt(0.5));
    const Tensor d_branch = behind_.backward(residual_.backward(context, microbatch, dy), saved.behind);
    const Tensor d_output = output_.backward(context, d_branch, heads_joined(saved.core.output));
    const Tensor d_packed = to_projection(context, microbatch, d_output, saved);
    const Tensor d_normed = projection_.backward(context, d_packed, saved.normed);
    if (bypass_) {
        add(bypass_->backward(context, dy, saved.normed, saved.bypass), d_normed);
        add(dy, d_normed);
    }
    const Tensor path = residual_.in_norm(context, dy);
    Tensor dx = norm_.backward(d_normed, saved.norm, path);
    if (!path.defined()) residual_.add_to_input(dy, dx);
    saved = {};
    return dx;
}

Tensor GemmaAttention::to_projection(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output,
                                     Saved& saved) const {
    const Tensor k = mixer_.shares_kv ? taken_over(context, saved.q, "keys of another layer") : saved.k;
    const Tensor v = mixer_.shares_kv ? taken_over(context, saved.q, "values of another layer") : saved.v;
    AttentionGradients gradients = sharded_attention_backward(context, microbatch, d_output.view(saved.core.output.shape()), saved.q, k, v,
                                                              saved.core, core_of(microbatch));
    saved.core = {};
    const auto through = [&](const Tensor& d_heads, const Tensor& raw, const Weight& weight, const NormStatistics& statistics) {
        return heads_joined(
            norm_backward(head_rows(d_heads), head_rows(raw), weight.value, statistics, Normalization::rms_norm, weight.gradient, {})
                .view(raw.shape()));
    };
    Tensor dq = through(turned(context, microbatch, gradients.q, true), saved.q_raw, q_norm_, saved.q_statistics);
    saved.q = saved.q_raw = {};
    // Gradients of keys and values of another layer are added to its own.
    if (mixer_.shares_kv) {
        add(gradients.k, k);
        add(gradients.v, v);
        return dq;
    }
    const Tensor dk = through(turned(context, microbatch, gradients.k, true), saved.k_raw, k_norm_, saved.k_statistics);
    const Tensor dv = through(gradients.v, saved.v_raw, {}, saved.v_statistics);
    gradients = {};
    saved.k = saved.v = saved.k_raw = saved.v_raw = {};
    if (mixer_.key_is_value) add(dv, dk);
    const std::int64_t wide = dq.shape()[1], narrow = dk.shape()[1];
    Tensor d_packed = context.device->empty({dq.shape()[0], wide + (mixer_.key_is_value ? 1 : 2) * narrow}, dq.dtype(),
                                            MemoryCategory::activations, "gradient of queries, keys and values");
    set_columns(dq, d_packed, 0);
    set_columns(dk, d_packed, wide);
    if (!mixer_.key_is_value) set_columns(dv, d_packed, wide + narrow);
    return d_packed;
}

}  // namespace mgplan::model
