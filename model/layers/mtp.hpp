#pragma once
// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 section 2.2; Megatron-core transformer/multi_token_prediction.py): after the
// decoder, depth k = 1, 2, … predicts the token k places after the next one, from the state of depth k - 1 and the embedding
// of the token in between. Embedding and output layer are the model's own.

#include <optional>
#include <string>
#include <vector>

#include "model/layers/decoder_layer.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/layers/vocabulary.hpp"
#include "plan/layout/layout.hpp"

namespace mgplan::model {

/// Tensors one depth saves. Full recompute (uniform) drops `inner`.
struct MtpDepthSaved {
    /// Between the two inputs and the final norm.
    struct Inner {
        NormStatistics embedded_statistics, state_statistics;
        LinearInput joined;  ///< (rows, 2·hidden): the normalised embedding, then the normalised state; input of the projection
        DecoderLayer::Saved layer;
    };

    Tensor embedded;  ///< (rows, hidden), embedding of the tokens in between
    Tensor state;     ///< (rows, hidden) of the depth before, after its final norm
    std::optional<Inner> inner;
    Tensor x;  ///< output of the decoder layer
    NormStatistics statistics;
    Tensor normed;  ///< input of the output layer and of the next depth
    VocabularyLossSaved loss;
};

/// One depth: two norms, projection of 2·hidden to hidden, a decoder layer of the last kind, a final norm. The projection is
/// column-parallel, its output gathered over tp; with sequence parallelism each rank then takes its rows (_concat_embeddings).
class MtpDepth {
public:
    /// Units that a depth reports: its norms and projection, then its layer's.
    static constexpr int kUnits = 1 + DecoderLayer::kUnits;

    /// `prefix`: "mtp.layers.0."; `depth` from 0. Its layer has the global number model.layers + depth.
    MtpDepth(const ModelSpec& model, const Layer& layer, const WeightTable& weights, const std::string& prefix, std::int64_t depth,
             EnumSet<RecomputeModule> recompute, bool recompute_all);

    /// state (rows outside the tp region, hidden) -> the next state; `ids` (rows) of the tokens in between.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const VocabularyEmbedding& embedding,
                                 const Tensor& ids, const Tensor& state, MtpDepthSaved& saved, const UnitEvents& events) const;
    /// Returns the gradient of the state; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const VocabularyEmbedding& embedding,
                                  const Tensor& ids, const Tensor& d_next, MtpDepthSaved& saved, const UnitEvents& events) const;

private:
    /// From the two inputs to the decoder layer's output.
    [[nodiscard]] Tensor run(const RankContext& context, const MicrobatchContext& microbatch, const MtpDepthSaved& saved,
                             MtpDepthSaved::Inner& inner, const UnitEvents& events) const;

    const ModelSpec& model_;
    std::int64_t number_;  ///< of the layer
    bool recomputes_;
    Weight embedded_norm_, embedded_norm_bias_, state_norm_, state_norm_bias_, final_norm_, final_norm_bias_;
    ColumnParallelLinear projection_;
    DecoderLayer layer_;
};

/// All depths with their losses. Depth k counts factor / depths · mean loss over the tokens that have a target (Megatron-LM's
/// --mtp-loss-scaling-factor); the last k places of a sequence have none.
class Mtp {
public:
    /// `output`: the output layer's weight.
    Mtp(const ModelSpec& model, const Layer& layer, const WeightTable& weights, std::int64_t depths, const Weight& output,
        EnumSet<RecomputeModule> recompute, bool recompute_all);

    /// `normed`: the decoder's output after its final norm. Adds each depth's losses to context.losses.
    void forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, const Tensor& targets,
                 std::vector<MtpDepthSaved>& saved, const UnitEvents& events) const;
    /// Returns the gradient of `normed` from all depths. `d_loss`: as of the main loss's rows.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& targets, double d_loss,
                                  std::vector<MtpDepthSaved>& saved, const UnitEvents& events) const;

private:
    const ModelSpec& model_;
    VocabularyEmbedding embedding_;
    VocabularyLoss loss_;
    std::vector<MtpDepth> depths_;
};

}  // namespace mgplan::model
