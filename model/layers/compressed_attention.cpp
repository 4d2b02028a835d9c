#include "model/layers/compressed_attention.hpp"

#include <cmath>
#include <utility>

#include "model/layers/rotary_scaling.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/index_scores.hpp"
#include "model/ops/linear_recurrence.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {
namespace {

/// Products that stay in the storage type where a recipe quantises others (simulator/piece/piece_recorder.cpp).
constexpr std::string_view kUnquantised = "16 bits";

/// Rotates the last `rotated` values of each head in place; `inverse`: back.
void turn_last(const RotaryAngles& angles, const Positions& positions, const Tensor& heads, std::int64_t rotated, bool inverse) {
    if (rotated == 0) return;
    const std::int64_t rows = heads.shape()[0], count = heads.shape()[1], width = heads.shape()[2];
    const Tensor rows_by_head = heads.view({rows * count, width});
    const Tensor part = columns(rows_by_head, width - rotated, width).view({rows, count, rotated});
    const Tensor turned = rotary(part, positions, rotated, angles, inverse);
    set_columns(turned.view({rows * count, rotated}), rows_by_head, width - rotated);
}

Tensor as_one_head(const Tensor& rows) {
    return rows.view({rows.shape()[0], 1, rows.shape()[1]});
}

Tensor rows_of_heads(const Tensor& heads) {
    return heads.view({heads.shape()[0] * heads.shape()[1], heads.shape()[2]});
}

Tensor heads_of_row(const Tensor& heads) {
    return heads.view({heads.shape()[0], heads.shape()[1] * heads.shape()[2]});
}

Positions positions_of_keys(const MicrobatchContext& microbatch, Compression compression) {
    return zigzag_positions(compression.keys(microbatch.sequence), microbatch.batch, 1, 0);
}

Compression compression_of(const mgplan::CompressedAttention& mixer) {
    return {mixer.compression_rate, mixer.overlaps};
}

RotaryAngles angles_of(const mgplan::CompressedAttention& mixer, const LayerSite& site) {
    return rotary_angles(mixer.rotary, mixer.rotary_dim, site.max_positions);
}

}  // namespace

KeyCompressor::KeyCompressor(const mgplan::CompressedAttention& mixer, const LayerSite& site, const std::string& prefix)
    : compression_(compression_of(mixer)),
      rotated_(mixer.rotary_dim),
      angles_(angles_of(mixer, site)),
      tokens_(site.weights.at(prefix + "wkv.weight")),
      gates_(site.weights.at(prefix + "wgate.weight")),
      places_(site.weights.at(prefix + "ape")),
      norm_(site.weights.at(prefix + "norm.weight")) {}

Tensor KeyCompressor::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                              KeyCompressorSaved& saved) const {
    {
        const Range range(*context.device, kUnquantised);
        saved.tokens = tokens_.forward(context, normed);
        saved.gates = gates_.forward(context, normed);
    }
    saved.raw = compress_keys(saved.tokens, saved.gates, places_.value, compression_, microbatch.batch);
    Tensor keys = norm(saved.raw, norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.statistics);
    turn_last(angles_, positions_of_keys(microbatch, compression_), as_one_head(keys), rotated_, false);
    return keys;
}

Tensor KeyCompressor::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_keys, const Tensor& normed,
                               KeyCompressorSaved& saved) const {
    turn_last(angles_, positions_of_keys(microbatch, compression_), as_one_head(d_keys), rotated_, true);
    CompressionGradients gradients;
    {
        const Tensor d_raw = norm_backward(d_keys, saved.raw, norm_.value, saved.statistics, Normalization::rms_norm, norm_.gradient, {});
        gradients =
            compress_keys_backward(d_raw, saved.tokens, saved.gates, places_.value, places_.gradient, compression_, microbatch.batch);
    }
    saved = {};
    const Range range(*context.device, kUnquantised);
    Tensor d_normed = tokens_.backward(context, gradients.tokens, normed);
    gradients.tokens = {};
    add(gates_.backward(context, gradients.gates, normed), d_normed);
    return d_normed;
}

CompressedKeyIndexer::CompressedKeyIndexer(const mgplan::CompressedAttention& mixer, const LayerSite& site, const std::string& prefix)
    : mixer_(mixer),
      angles_(angles_of(mixer, site)),
      keys_(mixer, site, prefix + "compressor."),
      queries_(site.weights.at(prefix + "linear_wq_b.weight")),
      weights_(site.weights.at(prefix + "weights_proj.weight")) {}

Tensor CompressedKeyIndexer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                     const Tensor& q_latent) const {
    const std::int64_t rows = normed.shape()[0];
    const Tensor q = matmul(q_latent, queries_.value, {.b = true}, "index queries").view({rows, mixer_.index_heads, mixer_.index_head_dim});
    turn_last(angles_, positions_of(context, microbatch), q, mixer_.rotary_dim, false);
    KeyCompressorSaved dropped;
    const Tensor keys = keys_.forward(context, microbatch, normed, dropped);
    dropped = {};
    Tensor weights;
    {
        const Range range(*context.device, kUnquantised);
        weights = matmul(normed, weights_.value, {.b = true}, "index weights");  // (rows, heads)
    }
    scale(weights, 1 / std::sqrt(static_cast<double>(mixer_.index_heads * mixer_.index_head_dim)));
    return largest_places(index_scores(q, keys, weights, microbatch.batch), mixer_.index_top_k);
}

CompressedAttention::CompressedAttention(const mgplan::CompressedAttention& mixer, const LayerSite& site)
    : mixer_(mixer),
      window_(site.layer.window),
      residual_(site, ResidualPlace::attention),
      angles_(angles_of(mixer, site)),
      compression_(compression_of(mixer)),
      keeps_normed_(!site.recompute.contains(RecomputeModule::layernorm)),
      keeps_projected_(!site.recompute.contains(RecomputeModule::mla_up_proj)),
      norm_(site, site.prefix + "input_layernorm."),
      latent_norm_(site.weights.at(site.prefix + "self_attention.q_layernorm.weight")),
      keys_norm_(site.weights.at(site.prefix + "self_attention.kv_layernorm.weight")),
      sinks_(site.weights.at(site.prefix + "self_attention.core_attention.attn_sink")),
      by_groups_(site.weights.at(site.prefix + "self_attention.o_group_proj")),
      down_(site.weights.at(site.prefix + "self_attention.linear_q_down_proj.weight")),
      to_keys_(site.weights.at(site.prefix + "self_attention.linear_kv_proj.weight")),
      up_(site.weights.at(site.prefix + "self_attention.linear_q_up_proj.weight"), Weight{}),
      output_(site.weights.at(site.prefix + "self_attention.linear_proj.weight"), Weight{}) {
    const std::string core = site.prefix + "self_attention.core_attention.";
    if (compression_.rate > 0) compressor_.emplace(mixer, site, core + "compressor.");
    if (mixer.index_heads > 0) indexer_.emplace(mixer, site, core + "indexer.");
}

bool CompressedAttention::compresses(const MicrobatchContext& microbatch) const {
    return compressor_ && compression_.keys(microbatch.sequence) > 0;
}

SparseSight CompressedAttention::sight(const MicrobatchContext& microbatch) const {
    return {window_, compresses(microbatch) ? compression_.rate : 0, indexer_ ? mixer_.index_top_k : 0};
}

void CompressedAttention::project(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                  Saved& saved) const {
    const Positions positions = positions_of(context, microbatch);
    saved.q_raw = up_.forward(context, saved.latent).view({normed.shape()[0], mixer_.heads, mixer_.head_dim});
    saved.q = norm(rows_of_heads(saved.q_raw), {}, {}, Normalization::rms_norm, context.norm_epsilon, saved.q_statistics)
                  .view(saved.q_raw.shape());
    turn_last(angles_, positions, saved.q, mixer_.rotary_dim, false);
    saved.keys_raw = to_keys_.forward(context, normed);
    saved.keys = norm(saved.keys_raw, keys_norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.keys_statistics);
    turn_last(angles_, positions, as_one_head(saved.keys), mixer_.rotary_dim, false);
}

Tensor CompressedAttention::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    saved.latent_raw = down_.forward(context, saved.normed);
    saved.latent = norm(saved.latent_raw, latent_norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.latent_statistics);
    project(context, microbatch, saved.normed, saved);
    if (compresses(microbatch)) {
        saved.compressed = compressor_->forward(context, microbatch, saved.normed, saved.compressor);
        if (indexer_) saved.chosen = indexer_->forward(context, microbatch, saved.normed, saved.latent);
    }
    saved.core = sparse_attention(saved.q, saved.keys, saved.compressed, saved.chosen, sinks_.value, sight(microbatch), microbatch.batch);
    if (!keeps_projected_) {
        saved.q_raw = saved.q = saved.keys_raw = saved.keys = {};
        saved.q_statistics = saved.keys_statistics = {};
    }
    // Values were rotated as keys are; a copy of their sum is rotated back, because the core's backward reads the sum itself.
    saved.turned = context.device->empty(saved.core.output.shape(), x.dtype(), MemoryCategory::activations, "attention output turned back");
    copy(saved.core.output, saved.turned);
    turn_last(angles_, positions_of(context, microbatch), saved.turned, mixer_.rotary_dim, true);
    saved.joined = block_products(heads_of_row(saved.turned), by_groups_.value, {});
    const Tensor y = output_.forward(context, saved.joined);
    const Tensor path = residual_.carried(x, saved.normed);
    if (!keeps_normed_) saved.normed = {};
    return residual_.sum(context, microbatch, y, path);
}

Tensor CompressedAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                     Saved& saved) const {
    if (!saved.normed.defined()) saved.normed = norm_.again(context, saved.norm);
    SparseAttentionGradients gradients;
    {
        Tensor d_output;
        {
            const Tensor d_branch = residual_.backward(context, microbatch, dy);
            const Tensor d_joined = output_.backward(context, d_branch, saved.joined);
            d_output = block_products_backward(d_joined, heads_of_row(saved.turned), by_groups_.value, by_groups_.gradient, {})
                           .view(saved.turned.shape());
        }
        saved.joined = saved.turned = {};
        turn_last(angles_, positions_of(context, microbatch), d_output, mixer_.rotary_dim, false);
        if (!saved.q.defined()) {
            const Range range(*context.device, "recompute");
            project(context, microbatch, saved.normed, saved);
        }
        gradients = sparse_attention_backward(d_output, saved.q, saved.keys, saved.compressed, saved.chosen, saved.core, sinks_.gradient,
                                              sight(microbatch), microbatch.batch);
    }
    saved.core = {};
    saved.q = saved.keys = saved.compressed = saved.chosen = {};
    const Tensor d_compressed = std::move(gradients.compressed);
    Tensor d_normed = project_backward(context, microbatch, gradients, saved);
    gradients = {};
    if (d_compressed.defined()) add(compressor_->backward(context, microbatch, d_compressed, saved.normed, saved.compressor), d_normed);
    saved.normed = {};
    residual_.add_to_normed(dy, d_normed);
    const Tensor path = residual_.in_norm(context, dy);
    Tensor dx = norm_.backward(d_normed, saved.norm, path);
    d_normed = {};
    if (!path.defined()) residual_.add_to_input(dy, dx);
    saved = {};
    return dx;
}

Tensor CompressedAttention::project_backward(const RankContext& context, const MicrobatchContext& microbatch,
                                             const SparseAttentionGradients& gradients, Saved& saved) const {
    const Positions positions = positions_of(context, microbatch);
    Tensor d_latent;
    {
        turn_last(angles_, positions, gradients.q, mixer_.rotary_dim, true);
        const Tensor d_queries =
            norm_backward(rows_of_heads(gradients.q), rows_of_heads(saved.q_raw), {}, saved.q_statistics, Normalization::rms_norm, {}, {})
                .view({saved.q_raw.shape()[0], mixer_.heads * mixer_.head_dim});
        saved.q_raw = {};
        d_latent = up_.backward(context, d_queries, saved.latent);
    }
    d_latent = norm_backward(d_latent, saved.latent_raw, latent_norm_.value, saved.latent_statistics, Normalization::rms_norm,
                             latent_norm_.gradient, {});
    Tensor d_normed = down_.backward(context, d_latent, saved.normed);
    d_latent = {};
    turn_last(angles_, positions, as_one_head(gradients.keys), mixer_.rotary_dim, true);
    const Tensor d_keys = norm_backward(gradients.keys, saved.keys_raw, keys_norm_.value, saved.keys_statistics, Normalization::rms_norm,
                                        keys_norm_.gradient, {});
    saved.keys_raw = {};
    add(to_keys_.backward(context, d_keys, saved.normed), d_normed);
    return d_normed;
}

}  // namespace mgplan::model
