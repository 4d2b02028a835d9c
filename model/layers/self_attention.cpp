#include "model/layers/self_attention.hpp"

#include <cmath>

#include "model/layers/context_parallel.hpp"
#include "model/layers/residual.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/qkv.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {
namespace {

/// Width of the rotated part of each head; an even number.
std::int64_t rotated_width(const ModelSpec& model) {
    if (model.position != PositionEmbedding::rope) return 0;
    return static_cast<std::int64_t>(static_cast<double>(model.head_dim) * model.rotary_fraction) / 2 * 2;
}

Positions positions_of(const RankContext& context, const MicrobatchContext& microbatch) {
    return zigzag_positions(microbatch.sequence, microbatch.batch, context.cp->size(), context.cp->rank());
}

double softmax_scale(const ModelSpec& model) {
    return 1 / std::sqrt(static_cast<double>(model.head_dim));
}

/// Heads as rows: (rows · heads, head_dim).
Tensor head_rows(const Tensor& x) {
    return x.view({x.shape()[0] * x.shape()[1], x.shape()[2]});
}

}  // namespace

SelfAttention::SelfAttention(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                             EnumSet<RecomputeModule> recompute)
    : model_(model),
      layer_(layer),
      recompute_(recompute),
      norm_weight_(weights.at(prefix + "linear_qkv.layer_norm_weight")),
      norm_bias_(weights.find(prefix + "linear_qkv.layer_norm_bias")),
      q_norm_weight_(weights.find(prefix + "q_layernorm.weight")),
      q_norm_bias_(weights.find(prefix + "q_layernorm.bias")),
      k_norm_weight_(weights.find(prefix + "k_layernorm.weight")),
      k_norm_bias_(weights.find(prefix + "k_layernorm.bias")),
      qkv_(weights.at(prefix + "linear_qkv.weight"), weights.find(prefix + "linear_qkv.bias")),
      projection_(weights.at(prefix + "linear_proj.weight"), weights.find(prefix + "linear_proj.bias")) {}

Tensor SelfAttention::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x,
                              SelfAttentionSaved& saved) const {
    const std::int64_t heads = model_.heads / context.tp->size(), kv_heads = model_.kv_heads / context.tp->size();
    saved.x = x;
    saved.normed = norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, saved.statistics);
    QkvParts parts = split_qkv(qkv_.forward(context, saved.normed), heads, kv_heads, model_.head_dim);
    if (q_norm_weight_.defined()) {
        saved.q_before_norm = parts.q;
        saved.k_before_norm = parts.k;
        parts.q = norm(head_rows(parts.q), q_norm_weight_.value, q_norm_bias_.value, model_.normalization, context.norm_epsilon,
                       saved.q_statistics)
                      .view(parts.q.shape());
        parts.k = norm(head_rows(parts.k), k_norm_weight_.value, k_norm_bias_.value, model_.normalization, context.norm_epsilon,
                       saved.k_statistics)
                      .view(parts.k.shape());
    }
    if (const auto width = rotated_width(model_); width > 0) {
        const Positions positions = positions_of(context, microbatch);
        parts.q = rotary(parts.q, positions, width, context.rotary_base, false);
        parts.k = rotary(parts.k, positions, width, context.rotary_base, false);
    }
    saved.q = parts.q;
    saved.k = parts.k;
    saved.v = parts.v;
    saved.core = sharded_attention(context, microbatch, saved.q, saved.k, saved.v, softmax_scale(model_));
    const Tensor output = saved.core.output.view({saved.core.output.shape()[0], heads * model_.head_dim});
    const Tensor y = projection_.forward(context, output);
    // The projection's input stays; only what the core alone keeps is made again.
    if (recompute_.contains(RecomputeModule::core_attn)) saved.core.log_sum_exp = Tensor();
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, x);
}

Tensor SelfAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                               SelfAttentionSaved& saved) const {
    const std::int64_t heads = model_.heads / context.tp->size();
    if (!saved.normed.defined()) {
        NormStatistics again;
        saved.normed = norm(saved.x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, again);
    }
    if (!saved.core.log_sum_exp.defined())
        saved.core = sharded_attention(context, microbatch, saved.q, saved.k, saved.v, softmax_scale(model_));
    const Tensor output = saved.core.output.view({saved.core.output.shape()[0], heads * model_.head_dim});
    const Tensor d_output =
        projection_.backward(context, residual_backward(context, microbatch, model_, layer_, ResidualPlace::attention, dy), output);
    AttentionGradients gradients = sharded_attention_backward(context, microbatch, d_output.view(saved.core.output.shape()), saved.q,
                                                              saved.k, saved.v, saved.core, softmax_scale(model_));
    saved.core = {};
    if (const auto width = rotated_width(model_); width > 0) {
        const Positions positions = positions_of(context, microbatch);
        gradients.q = rotary(gradients.q, positions, width, context.rotary_base, true);
        gradients.k = rotary(gradients.k, positions, width, context.rotary_base, true);
    }
    if (q_norm_weight_.defined()) {
        gradients.q = norm_backward(head_rows(gradients.q), head_rows(saved.q_before_norm), q_norm_weight_.value, saved.q_statistics,
                                    model_.normalization, q_norm_weight_.gradient, q_norm_bias_.gradient)
                          .view(gradients.q.shape());
        gradients.k = norm_backward(head_rows(gradients.k), head_rows(saved.k_before_norm), k_norm_weight_.value, saved.k_statistics,
                                    model_.normalization, k_norm_weight_.gradient, k_norm_bias_.gradient)
                          .view(gradients.k.shape());
    }
    const Tensor d_packed = join_qkv({gradients.q, gradients.k, gradients.v});
    gradients = {};
    const Tensor d_normed = qkv_.backward(context, d_packed, saved.normed);
    Tensor dx = norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, model_.normalization, norm_weight_.gradient,
                              norm_bias_.gradient);
    add(dy, dx);  // the residual path
    saved = {};
    return dx;
}

}  // namespace mgplan::model
