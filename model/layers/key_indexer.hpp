#pragma once
// The indexer of DeepSeek Sparse Attention (DeepSeek-V3.2-Exp, section 2.1; Megatron-core
// transformer/experimental_attention_variant/dsa.py, DSAIndexer): chooses the keys that each query sees. Its products and scores run
// forward alone, since the choice has no gradient; its own loss (--dsa-indexer-loss-coeff) is not computed.

#include "model/layers/context.hpp"

namespace mgplan::model {

/// Whole on every tp rank, each of which scores all rows of the region with all index heads.
class KeyIndexer {
public:
    KeyIndexer(const LatentAttention& mixer, const LayerSite& site);

    /// normed (rows outside the tp region, hidden), q_latent (rows outside, q_lora_rank) after its norm -> places of the keys chosen
    /// for each row, (rows inside, at most index_top_k) int32. Over cp the keys of all ranks are gathered.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                 const Tensor& q_latent) const;

private:
    LatentAttention mixer_;
    std::int64_t max_positions_;
    Weight queries_, keys_, norm_weight_, norm_bias_, weights_;
};

}  // namespace mgplan::model
