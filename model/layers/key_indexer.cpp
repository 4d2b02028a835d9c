#include "model/layers/key_indexer.hpp"

#include <cmath>

#include "model/layers/context_parallel.hpp"
#include "model/layers/rotary_scaling.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/index_scores.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {

namespace {

const Weight& indexer_weight(const LayerSite& site, const char* name) {
    return site.weights.at(site.prefix + "self_attention.core_attention.indexer." + name);
}

}  // namespace

KeyIndexer::KeyIndexer(const LatentAttention& mixer, const LayerSite& site)
    : mixer_(mixer),
      max_positions_(site.max_positions),
      queries_(indexer_weight(site, "linear_wq_b.weight")),
      keys_(indexer_weight(site, "linear_wk.weight")),
      norm_weight_(indexer_weight(site, "k_norm.weight")),
      norm_bias_(indexer_weight(site, "k_norm.bias")),
      weights_(indexer_weight(site, "linear_weights_proj.weight")) {}

Tensor KeyIndexer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                           const Tensor& q_latent) const {
    const std::int64_t width = mixer_.index_head_dim, heads = mixer_.index_heads, turned = mixer_.qk_rope_head_dim;
    const Positions positions = positions_of(context, microbatch);
    const RotaryAngles angles = rotary_angles(mixer_.rotary.value_or(Rotary{}), turned, max_positions_);
    const auto rotated = [&](const Tensor& x) { return turned > 0 ? rotary(x, positions, turned, angles, false) : x; };
    const Tensor x = enter_region(context, normed);
    const std::int64_t rows = x.shape()[0];
    Tensor q = matmul(enter_region(context, q_latent), queries_.value, {.b = true}, "index queries");  // (rows, heads · width)
    q = rotated(q.view({rows, heads, width}));
    NormStatistics statistics;
    constexpr double kEpsilon = 1e-6;  // modeling_deepseek_v32.py, DeepseekV32Indexer
    Tensor k = norm(matmul(x, keys_.value, {.b = true}, "index keys"), norm_weight_.value, norm_bias_.value, Normalization::layer_norm,
                    kEpsilon, statistics);
    k = rotated(k.view({rows, 1, width})).view({rows, width});
    if (const int cp = context.cp->size(); cp > 1) {
        const Tensor all = context.device->empty({rows * cp, width}, k.dtype(), MemoryCategory::communication, kGatheredOverCp);
        context.cp->all_gather(k, all);
        k = all;
    }
    const Tensor weights = matmul(x, weights_.value, {.b = true}, "index weights");  // (rows, heads)
    scale(weights, 1 / std::sqrt(static_cast<double>(heads * width)));
    return largest_places(index_scores(q, k, weights, microbatch.batch), mixer_.index_top_k);
}

}  // namespace mgplan::model
