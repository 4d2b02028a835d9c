#include "model/layers/latent_qkv.hpp"

#include "model/layers/rotary_scaling.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/latent_keys.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {

namespace {

/// Queries' last projection: from their latent, or without one from the layer's input.
std::string query_projection(const LatentAttention& mixer) {
    return std::string("self_attention.") + (mixer.q_lora_rank > 0 ? "linear_q_up_proj" : "linear_q_proj");
}

}  // namespace

LatentQkv::LatentQkv(const LatentAttention& mixer, const LayerSite& site)
    : mixer_(mixer),
      normalization_(site.layer.norms.norm.kind),
      angles_(rotary_angles(mixer.rotary.value_or(Rotary{}), mixer.qk_rope_head_dim, site.max_positions)),
      recompute_up_(site.recompute.contains(RecomputeModule::mla_up_proj)),
      q_norm_weight_(site.weights.find(site.prefix + query_projection(mixer) + ".layer_norm_weight")),
      q_norm_bias_(site.weights.find(site.prefix + query_projection(mixer) + ".layer_norm_bias")),
      kv_norm_weight_(site.weights.find(site.prefix + "self_attention.linear_kv_up_proj.layer_norm_weight")),
      kv_norm_bias_(site.weights.find(site.prefix + "self_attention.linear_kv_up_proj.layer_norm_bias")),
      q_down_(site, "self_attention.linear_q_down_proj"),
      kv_down_(site, "self_attention.linear_kv_down_proj"),
      q_up_(site, query_projection(mixer)),
      kv_up_(site, "self_attention.linear_kv_up_proj") {}

void LatentQkv::add_copied(std::vector<CopiedWeight>& into) const {
    if (mixer_.q_lora_rank > 0) q_down_.add_copied(into);
    kv_down_.add_copied(into);
    q_up_.add_copied(into);
    kv_up_.add_copied(into);
}

LinearInput LatentQkv::input(const Tensor& normed) const {
    return mixer_.q_lora_rank > 0 ? kv_down_.input(normed) : normed;
}

void LatentQkv::rotate_queries(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, bool inverse) const {
    const std::int64_t width = mixer_.qk_rope_head_dim, own = mixer_.qk_nope_head_dim;
    if (width == 0 || !mixer_.rotary) return;
    const std::int64_t rows = q.shape()[0], heads = q.shape()[1];
    const Tensor by_head = q.view({rows * heads, own + width});
    const Tensor part = columns(by_head, own, own + width).view({rows, heads, width});
    const Tensor turned = rotary(part, positions_of(context, microbatch), width, angles_, inverse);
    set_columns(turned.view({rows * heads, width}), by_head, own);
}

Tensor LatentQkv::rotated_keys(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& k, bool inverse) const {
    if (!mixer_.rotary) return k;  // Kimi Linear: shared by all heads all the same
    const std::int64_t rows = k.shape()[0], width = k.shape()[1];
    return rotary(k.view({rows, 1, width}), positions_of(context, microbatch), width, angles_, inverse).view({rows, width});
}

QkvParts LatentQkv::forward(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                            LatentQkvSaved& saved) const {
    const std::int64_t rank = mixer_.kv_lora_rank, width = mixer_.qk_rope_head_dim;
    if (mixer_.q_lora_rank > 0) saved.q_latent = q_down_.forward(context, normed, &saved.q_down);
    {
        const Tensor both = kv_down_.forward(context, normed, &saved.kv_down);  // (rows outside, kv_lora_rank + qk_rope_head_dim)
        saved.kv_latent = columns(both, 0, rank);
        if (width > 0) saved.k_rotary = rotated_keys(context, microbatch, enter_region(context, columns(both, rank, rank + width)), false);
    }
    QkvParts parts = forward_up(context, microbatch, normed, saved);
    if (!recompute_up_) saved.k_rotary = Tensor();
    return parts;
}

void LatentQkv::discard_up(LatentQkvSaved& saved) const {
    saved.q_normed = {};
    saved.kv_normed = {};
}

QkvParts LatentQkv::forward_up(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                               LatentQkvSaved& saved) const {
    const std::int64_t heads = mixer_.heads / context.tp->size();
    const auto normalised = [&](const Tensor& latent, const Weight& weight, const Weight& bias, NormStatistics& statistics) {
        if (!weight.defined()) return latent;
        return norm(latent, weight.value, bias.value, normalization_,
                    mixer_.latent_norm_epsilon > 0 ? mixer_.latent_norm_epsilon : context.norm_epsilon, statistics);
    };
    const bool q_normed = mixer_.q_lora_rank > 0 || q_norm_weight_.defined();
    if (mixer_.q_lora_rank == 0 && q_normed) saved.q_latent = normed.x;
    if (q_normed) saved.q_normed = q_up_.input(context, normalised(saved.q_latent, q_norm_weight_, q_norm_bias_, saved.q_statistics));
    saved.kv_normed = kv_up_.input(context, normalised(saved.kv_latent, kv_norm_weight_, kv_norm_bias_, saved.kv_statistics));
    QkvParts parts;
    const Tensor q = q_up_.forward(context, q_normed ? saved.q_normed : normed, &saved.q_up);
    saved.q_normed.end_forward();
    if (!q_up_.reads_input(saved.q_up)) saved.q_normed = {};
    const std::int64_t rows = q.shape()[0];
    parts.q = q.view({rows, heads, head_dim()});
    rotate_queries(context, microbatch, parts.q, false);
    const Tensor projected =
        kv_up_.forward(context, saved.kv_normed, &saved.kv_up).view({rows, heads, mixer_.qk_nope_head_dim + mixer_.v_head_dim});
    saved.kv_normed.end_forward();
    if (!kv_up_.reads_input(saved.kv_up)) saved.kv_normed = {};
    LatentKeys keys = join_latent_keys(projected, saved.k_rotary, mixer_.qk_nope_head_dim);
    parts.k = std::move(keys.k);
    parts.v = std::move(keys.v);
    return parts;
}

Tensor LatentQkv::backward(const RankContext& context, const MicrobatchContext& microbatch, AttentionGradients gradients,
                           const LinearInput& normed, LatentQkvSaved& saved) const {
    const auto through_norm = [&](Tensor dy, const Tensor& latent, const Weight& weight, const Weight& bias,
                                  const NormStatistics& statistics) {
        if (!weight.defined()) return dy;
        return norm_backward(dy, latent, weight.value, statistics, normalization_, weight.gradient, bias.gradient);
    };
    const std::int64_t rows = gradients.q.shape()[0], heads = gradients.q.shape()[1], rank = mixer_.kv_lora_rank;
    rotate_queries(context, microbatch, gradients.q, true);
    const Tensor dq = gradients.q.view({rows, heads * head_dim()});
    gradients.q = Tensor();
    Tensor d_normed;
    if (mixer_.q_lora_rank > 0) {
        const Tensor d_latent = through_norm(q_up_.backward(context, dq, saved.q_normed, &saved.q_up), saved.q_latent, q_norm_weight_,
                                             q_norm_bias_, saved.q_statistics);
        d_normed = q_down_.backward(context, d_latent, normed, &saved.q_down);
    } else {
        d_normed = through_norm(q_up_.backward(context, dq, q_norm_weight_.defined() ? saved.q_normed : normed, &saved.q_up), normed.x,
                                q_norm_weight_, q_norm_bias_, saved.q_statistics);
    }

    LatentKeyGradients keys = split_latent_keys(gradients.k, gradients.v, mixer_.qk_nope_head_dim);
    gradients = {};
    const Tensor d_projected = keys.projected.view({rows, heads * (mixer_.qk_nope_head_dim + mixer_.v_head_dim)});
    const Tensor d_latent = through_norm(kv_up_.backward(context, d_projected, saved.kv_normed, &saved.kv_up), saved.kv_latent,
                                         kv_norm_weight_, kv_norm_bias_, saved.kv_statistics);
    const Tensor d_both = context.device->empty({d_latent.shape()[0], rank + mixer_.qk_rope_head_dim}, d_latent.dtype(),
                                                MemoryCategory::activations, "gradient of latent and shared keys");
    set_columns(d_latent, d_both, 0);
    // Each tp rank has the shared part's gradient of its own heads.
    if (keys.shared.defined()) set_columns(leave_region(context, rotated_keys(context, microbatch, keys.shared, true)), d_both, rank);
    add(kv_down_.backward(context, d_both, normed, &saved.kv_down), d_normed);
    return d_normed;
}

}  // namespace mgplan::model
