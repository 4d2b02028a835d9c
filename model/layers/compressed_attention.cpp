#include "model/layers/compressed_attention.hpp"

#include <cmath>
#include <utility>

#include "model/layers/residual.hpp"
#include "model/layers/rotary_scaling.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/index_scores.hpp"
#include "model/ops/linear_recurrence.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/rotary.hpp"
#include "plan/model/layer_parts.hpp"

namespace mgplan::model {
namespace {

/// Products that stay in the storage type where a recipe quantises others (simulator/piece/piece_recorder.cpp).
constexpr std::string_view kUnquantised = "16 bits";

/// Rotates the last `rotated` values of each head in place; `inverse`: back.
void turn_last(const ModelSpec& model, const Positions& positions, const Tensor& heads, std::int64_t rotated, bool inverse) {
    if (rotated == 0) return;
    const std::int64_t rows = heads.shape()[0], count = heads.shape()[1], width = heads.shape()[2];
    const Tensor rows_by_head = heads.view({rows * count, width});
    const Tensor part = columns(rows_by_head, width - rotated, width).view({rows, count, rotated});
    const Tensor turned = rotary(part, positions, rotated, rotary_angles(model, rotated), inverse);
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

Compression compression_of(const LayerPart& part) {
    return {part_size(part, "rate"), part_size(part, "overlaps") != 0};
}

}  // namespace

KeyCompressor::KeyCompressor(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, Compression compression,
                             std::int64_t rotated)
    : model_(model),
      compression_(compression),
      rotated_(rotated),
      tokens_(weights.at(prefix + "wkv.weight")),
      gates_(weights.at(prefix + "wgate.weight")),
      places_(weights.at(prefix + "ape")),
      norm_(weights.at(prefix + "norm.weight")) {}

Tensor KeyCompressor::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                              KeyCompressorSaved& saved) const {
    {
        const Range range(*context.device, kUnquantised);
        saved.tokens = tokens_.forward(context, normed);
        saved.gates = gates_.forward(context, normed);
    }
    saved.raw = compress_keys(saved.tokens, saved.gates, places_.value, compression_, microbatch.batch);
    Tensor keys = norm(saved.raw, norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.statistics);
    turn_last(model_, positions_of_keys(microbatch, compression_), as_one_head(keys), rotated_, false);
    return keys;
}

Tensor KeyCompressor::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_keys, const Tensor& normed,
                               KeyCompressorSaved& saved) const {
    turn_last(model_, positions_of_keys(microbatch, compression_), as_one_head(d_keys), rotated_, true);
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

CompressedKeyIndexer::CompressedKeyIndexer(const ModelSpec& model, const LayerPart& part, const WeightTable& weights,
                                           const std::string& prefix, Compression compression)
    : model_(model),
      heads_(part_size(part, "index_heads")),
      width_(part_size(part, "index_dim")),
      rotated_(part_size(part, "rotated")),
      top_k_(part_size(part, "index_top_k")),
      keys_(model, weights, prefix + "compressor.", compression, rotated_),
      queries_(weights.at(prefix + "linear_wq_b.weight")),
      weights_(weights.at(prefix + "weights_proj.weight")) {}

Tensor CompressedKeyIndexer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                     const Tensor& q_latent) const {
    const std::int64_t rows = normed.shape()[0];
    const Tensor q = matmul(q_latent, queries_.value, {.b = true}, "index queries").view({rows, heads_, width_});
    turn_last(model_, positions_of(context, microbatch), q, rotated_, false);
    KeyCompressorSaved dropped;
    const Tensor keys = keys_.forward(context, microbatch, normed, dropped);
    dropped = {};
    Tensor weights;
    {
        const Range range(*context.device, kUnquantised);
        weights = matmul(normed, weights_.value, {.b = true}, "index weights");  // (rows, heads)
    }
    scale(weights, 1 / std::sqrt(static_cast<double>(heads_ * width_)));
    return largest_places(index_scores(q, keys, weights, microbatch.batch), top_k_);
}

CompressedAttention::CompressedAttention(const ModelSpec& model, const LayerPart& part, const WeightTable& weights,
                                         const std::string& prefix, std::int64_t layer, EnumSet<RecomputeModule> recompute)
    : model_(model),
      layer_(layer),
      heads_(part_size(part, "heads")),
      width_(part_size(part, "head_dim")),
      window_(part_size(part, "window")),
      rotated_(part_size(part, "rotated")),
      top_k_(part_size(part, "index_heads") > 0 ? part_size(part, "index_top_k") : 0),
      compression_(compression_of(part)),
      keeps_normed_(!recompute.contains(RecomputeModule::layernorm)),
      keeps_projected_(!recompute.contains(RecomputeModule::mla_up_proj)),
      norm_(model, weights.at(prefix + "input_layernorm.weight"), {}),
      latent_norm_(weights.at(prefix + "self_attention.q_layernorm.weight")),
      keys_norm_(weights.at(prefix + "self_attention.kv_layernorm.weight")),
      sinks_(weights.at(prefix + "self_attention.core_attention.attn_sink")),
      by_groups_(weights.at(prefix + "self_attention.o_group_proj")),
      down_(weights.at(prefix + "self_attention.linear_q_down_proj.weight")),
      to_keys_(weights.at(prefix + "self_attention.linear_kv_proj.weight")),
      up_(weights.at(prefix + "self_attention.linear_q_up_proj.weight"), Weight{}),
      output_(weights.at(prefix + "self_attention.linear_proj.weight"), Weight{}) {
    const std::string core = prefix + "self_attention.core_attention.";
    if (compression_.rate > 0) compressor_.emplace(model, weights, core + "compressor.", compression_, rotated_);
    if (top_k_ > 0) indexer_.emplace(model, part, weights, core + "indexer.", compression_);
}

bool CompressedAttention::compresses(const MicrobatchContext& microbatch) const {
    return compressor_ && compression_.keys(microbatch.sequence) > 0;
}

SparseSight CompressedAttention::sight(const MicrobatchContext& microbatch) const {
    return {window_, compresses(microbatch) ? compression_.rate : 0, top_k_};
}

void CompressedAttention::project(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                  Saved& saved) const {
    const Positions positions = positions_of(context, microbatch);
    saved.q_raw = up_.forward(context, saved.latent).view({normed.shape()[0], heads_, width_});
    saved.q = norm(rows_of_heads(saved.q_raw), {}, {}, Normalization::rms_norm, context.norm_epsilon, saved.q_statistics)
                  .view(saved.q_raw.shape());
    turn_last(model_, positions, saved.q, rotated_, false);
    saved.keys_raw = to_keys_.forward(context, normed);
    saved.keys = norm(saved.keys_raw, keys_norm_.value, {}, Normalization::rms_norm, context.norm_epsilon, saved.keys_statistics);
    turn_last(model_, positions, as_one_head(saved.keys), rotated_, false);
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
    turn_last(model_, positions_of(context, microbatch), saved.turned, rotated_, true);
    saved.joined = block_products(heads_of_row(saved.turned), by_groups_.value, {});
    const Tensor y = output_.forward(context, saved.joined);
    const Tensor path = residual_path(model_, x, saved.normed);
    if (!keeps_normed_) saved.normed = {};
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, path);
}

Tensor CompressedAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                     Saved& saved) const {
    if (!saved.normed.defined()) saved.normed = norm_.again(context, saved.norm);
    SparseAttentionGradients gradients;
    {
        Tensor d_output;
        {
            const Tensor d_branch = residual_backward(context, microbatch, model_, layer_, ResidualPlace::attention, dy);
            const Tensor d_joined = output_.backward(context, d_branch, saved.joined);
            d_output = block_products_backward(d_joined, heads_of_row(saved.turned), by_groups_.value, by_groups_.gradient, {})
                           .view(saved.turned.shape());
        }
        saved.joined = saved.turned = {};
        turn_last(model_, positions_of(context, microbatch), d_output, rotated_, false);
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
    add_path_to_normed(model_, ResidualPlace::attention, dy, d_normed);
    const Tensor path = path_in_norm(context, model_, dy);
    Tensor dx = norm_.backward(d_normed, saved.norm, path);
    d_normed = {};
    if (!path.defined()) add_path_to_input(model_, dy, dx);
    saved = {};
    return dx;
}

Tensor CompressedAttention::project_backward(const RankContext& context, const MicrobatchContext& microbatch,
                                             const SparseAttentionGradients& gradients, Saved& saved) const {
    const Positions positions = positions_of(context, microbatch);
    Tensor d_latent;
    {
        turn_last(model_, positions, gradients.q, rotated_, true);
        const Tensor d_queries =
            norm_backward(rows_of_heads(gradients.q), rows_of_heads(saved.q_raw), {}, saved.q_statistics, Normalization::rms_norm, {}, {})
                .view({saved.q_raw.shape()[0], heads_ * width_});
        saved.q_raw = {};
        d_latent = up_.backward(context, d_queries, saved.latent);
    }
    d_latent = norm_backward(d_latent, saved.latent_raw, latent_norm_.value, saved.latent_statistics, Normalization::rms_norm,
                             latent_norm_.gradient, {});
    Tensor d_normed = down_.backward(context, d_latent, saved.normed);
    d_latent = {};
    turn_last(model_, positions, as_one_head(gradients.keys), rotated_, true);
    const Tensor d_keys = norm_backward(gradients.keys, saved.keys_raw, keys_norm_.value, saved.keys_statistics, Normalization::rms_norm,
                                        keys_norm_.gradient, {});
    saved.keys_raw = {};
    add(to_keys_.backward(context, d_keys, saved.normed), d_normed);
    return d_normed;
}

}  // namespace mgplan::model
