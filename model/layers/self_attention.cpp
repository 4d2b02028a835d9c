#include "model/layers/self_attention.hpp"

#include <cmath>
#include <string_view>
#include <utility>

#include "model/layers/context_parallel.hpp"
#include "model/layers/offload.hpp"
#include "model/layers/rotary_scaling.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gate.hpp"

namespace mgplan::model {
namespace {

/// `width`: of a head's queries.
double softmax_scale(const AttentionScores& scores, std::int64_t width, double factor) {
    return scores.multiplier > 0 ? factor * scores.multiplier : factor / std::sqrt(static_cast<double>(width));
}

/// The core's output as the output projection sees it: (rows, heads / tp · v_head_dim).
Tensor joined_heads(const Tensor& output) {
    return output.view({output.shape()[0], output.shape()[1] * output.shape()[2]});
}

/// Every value a row of its own: a gate of rows is then one of values.
Tensor as_column(const Tensor& x) {
    return x.view({x.elements(), 1});
}

/// Input of the output projection: (rows, heads / tp · v_head_dim).
Tensor projection_input(const SelfAttentionSaved& saved) {
    const Tensor output = joined_heads(saved.core.output);
    return saved.gated.defined() ? saved.gated.view(output.shape()) : output;
}

/// Moves inputs of modules, by one of the functions of model/layers/offload.hpp.
void move_inputs(const RankContext& context, const SelfAttentionSaved& saved, void (*move)(const RankContext&, ModuleInputs)) {
    using enum OffloadModule;
    move(context, {{attn_norm, saved.x},
                   {qkv_linear, saved.normed.x},
                   {core_attn, saved.q},
                   {core_attn, saved.k},
                   {core_attn, saved.v},
                   {core_attn, saved.packed_heads},
                   {attn_proj, saved.gated.defined() ? saved.gated : saved.core.output}});
}

}  // namespace

SelfAttention::SelfAttention(const LayerSite& site, const AttentionScores& scores, double scale, const std::string& norm)
    : norms_(site.layer.norms),
      residual_(site, ResidualPlace::attention),
      recompute_(site.recompute),
      norm_weight_(site.weights.find(site.prefix + norm + "weight")),
      norm_bias_(site.weights.find(site.prefix + norm + "bias")),
      projection_(site, "self_attention.linear_proj"),
      behind_(site, site.prefix + "post_self_attn_layernorm."),
      core_{scale, site.layer.window, scores.softcap, site.weights.find(site.prefix + "self_attention.core_attention.softmax_offset")} {}

// The norm belongs to the packed projection (Transformer Engine fuses them); latent attention has two down projections after one norm,
// which is separate.
SelfAttention::SelfAttention(const Attention& mixer, const LayerSite& site)
    : SelfAttention(site, mixer.scores, softmax_scale(mixer.scores, mixer.head_dim, 1), "self_attention.linear_qkv.layer_norm_") {
    packed_.emplace(mixer, site);
}

SelfAttention::SelfAttention(const LatentAttention& mixer, const LayerSite& site)
    : SelfAttention(site, mixer.scores,
                    softmax_scale(mixer.scores, mixer.qk_nope_head_dim + mixer.qk_rope_head_dim,
                                  rotary_score_factor(mixer.rotary.value_or(Rotary{}))),
                    "input_layernorm.") {
    if (mixer.index_heads > 0) indexer_.emplace(mixer, site);
    latent_.emplace(mixer, site);
}

CoreAttention SelfAttention::core_of(const MicrobatchContext& microbatch) const {
    CoreAttention core = core_;
    if (core.window >= microbatch.sequence) core.window = 0;
    return core;
}

void SelfAttention::add_copied(std::vector<CopiedWeight>& into) const {
    if (packed_) packed_->add_copied(into);
    if (latent_) latent_->add_copied(into);
    projection_.add_copied(into);
}

LinearInput SelfAttention::normalised(const RankContext& context, const Tensor& x, NormStatistics& statistics) const {
    const auto read = [&](const Tensor& rows) { return packed_ ? packed_->input(context, rows) : latent_->input(rows); };
    if (!norms_.before) return read(x);
    return read(norm(x, norm_weight_.value, norm_bias_.value, norms_.norm.kind, context.norm_epsilon, statistics));
}

Tensor SelfAttention::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x,
                              SelfAttentionSaved& saved) const {
    saved.x = x;
    saved.normed = normalised(context, x, saved.statistics);
    const Tensor y = branch(context, microbatch, saved.normed, saved);
    const Tensor path = residual_.carried(x, saved.normed.x);
    if (recompute_.contains(RecomputeModule::layernorm) || !reads_normed(saved)) saved.normed = {};
    Tensor sum = residual_.sum(context, microbatch, behind_.forward(context, y, saved.behind), path);
    move_inputs(context, saved, inputs_to_host);
    return sum;
}

Tensor SelfAttention::branch(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                             SelfAttentionSaved& saved) const {
    project(context, microbatch, normed, saved);
    saved.normed.end_forward();
    if (indexer_) saved.chosen = indexer_->forward(context, microbatch, normed.x, saved.latent.q_normed.x);
    saved.core = attend(context, microbatch, saved);
    if (latent_ && latent_->recomputes_up()) {
        latent_->discard_up(saved.latent);
        saved.q = saved.k = saved.v = {};
    }
    if (saved.packed.gate.defined()) saved.gated = gate_rows(as_column(joined_heads(saved.core.output)), as_column(saved.packed.gate));
    Tensor y = projection_.forward(context, projection_input(saved), &saved.adapter);
    if (!projection_.reads_input()) saved.gated = {};
    // The projection's input stays; only what the core alone keeps is made again.
    if (recompute_.contains(RecomputeModule::core_attn)) saved.core.log_sum_exp = Tensor();
    return y;
}

Tensor SelfAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                               SelfAttentionSaved& saved) const {
    move_inputs(context, saved, inputs_from_host);
    if (!saved.normed.defined() && reads_normed(saved)) {
        const Range range(*context.device, "recompute");
        NormStatistics again;
        saved.normed = normalised(context, saved.x, again);
        saved.normed.end_forward();
    }
    recompute(context, microbatch, saved.normed, saved);
    Tensor d_normed = branch_backward(context, microbatch, behind_.backward(residual_.backward(context, microbatch, dy), saved.behind),
                                      saved.normed, saved);
    saved.normed = {};
    residual_.add_to_normed(dy, d_normed);
    const Tensor path = residual_.in_norm(context, dy);
    Tensor dx = norms_.before ? norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, norms_.norm.kind,
                                              norm_weight_.gradient, norm_bias_.gradient, path)
                              : d_normed;
    d_normed = {};
    if (!path.defined()) residual_.add_to_input(dy, dx);
    saved = {};
    return dx;
}

void SelfAttention::recompute(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                              SelfAttentionSaved& saved) const {
    if (latent_ && !saved.q.defined()) {
        const Range range(*context.device, "recompute");
        const QkvParts parts = latent_->forward_up(context, microbatch, normed, saved.latent);
        saved.q = parts.q;
        saved.k = parts.k;
        saved.v = parts.v;
    }
    if (!saved.core.log_sum_exp.defined()) {
        const Range range(*context.device, "recompute");
        saved.core = attend(context, microbatch, saved);
    }
}

bool SelfAttention::stays_packed(const RankContext& context, const MicrobatchContext& microbatch) const {
    if (!packed_ || !packed_->stays_packed(context)) return false;
    return reads_packed_core(context, microbatch, packed_->heads(context), core_of(microbatch));
}

void SelfAttention::project(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                            SelfAttentionSaved& saved) const {
    if (stays_packed(context, microbatch)) {
        saved.packed_heads = packed_->forward_packed(context, microbatch, normed, saved.packed);
        return;
    }
    QkvParts parts =
        latent_ ? latent_->forward(context, microbatch, normed, saved.latent) : packed_->forward(context, microbatch, normed, saved.packed);
    saved.q = std::move(parts.q);
    saved.k = std::move(parts.k);
    saved.v = std::move(parts.v);
}

AttentionResult SelfAttention::attend(const RankContext& context, const MicrobatchContext& microbatch,
                                      const SelfAttentionSaved& saved) const {
    if (stays_packed(context, microbatch)) return packed_core(microbatch, saved.packed_heads, packed_->heads(context), core_of(microbatch));
    return sharded_attention(context, microbatch, saved.q, saved.k, saved.v, core_of(microbatch));
}

Tensor SelfAttention::branch_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, const LinearInput& normed,
                                      SelfAttentionSaved& saved) const {
    recompute(context, microbatch, normed, saved);
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_output = projection_.backward(context, dy, projection_input(saved), &saved.adapter);
    dy = {};
    saved.gated = {};
    Tensor d_gate;
    if (saved.packed.gate.defined()) {
        d_output =
            gate_rows_backward(as_column(d_output), as_column(joined_heads(saved.core.output)), as_column(saved.packed.gate), d_gate);
        d_gate = d_gate.view(saved.packed.gate.shape());
    }
    d_output = d_output.view(saved.core.output.shape());
    Tensor d_normed = heads_backward(context, microbatch, std::move(d_output), d_gate, normed, saved);
    d_gate = {};
    saved.packed = {};
    saved.latent = {};
    return d_normed;
}

Tensor SelfAttention::heads_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor d_output, const Tensor& d_gate,
                                     const LinearInput& normed, SelfAttentionSaved& saved) const {
    Tensor d_packed;
    AttentionGradients gradients;
    if (stays_packed(context, microbatch))
        d_packed = packed_core_backward(microbatch, d_output, saved.packed_heads, packed_->heads(context), saved.core, core_of(microbatch));
    else
        gradients = sharded_attention_backward(context, microbatch, d_output, saved.q, saved.k, saved.v, saved.core, core_of(microbatch));
    d_output = {};
    saved.core = {};
    saved.chosen = {};
    saved.q = saved.k = saved.v = saved.packed_heads = {};
    if (d_packed.defined()) return packed_->backward_packed(context, microbatch, d_packed, normed, saved.packed);
    return latent_ ? latent_->backward(context, microbatch, std::move(gradients), normed, saved.latent)
                   : packed_->backward(context, microbatch, std::move(gradients), d_gate, normed, saved.packed);
}

}  // namespace mgplan::model
