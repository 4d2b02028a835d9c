#pragma once
// The two ends of the model: looking tokens up, and the loss over the vocabulary, both divided over tp by vocabulary rows.

#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Place of every row in its sequence, as ids into the table of learned positions: (rows) int32, written by the host.
[[nodiscard]] Tensor position_ids(Device& device, const Positions& positions);

/// Tensors that the norm of the embeddings saves; none without a norm.
struct EmbeddingSaved {
    Tensor sum;  ///< (rows outside, hidden): its input
    NormStatistics statistics;
};

/// Word embedding (and learned positions, and token types, and a norm of their sum) of one microbatch's slice: ids outside the rank's
/// rows give zeros, and the sum over tp gives the rest. With sequence parallelism the result is scattered by rows. Every token is of
/// type 0: a language model's data has no types.
class VocabularyEmbedding {
public:
    VocabularyEmbedding(const ModelSpec& model, const WeightTable& weights, const std::string& prefix);

    /// ids (rows) int32 of the cp rank's slice, in row order; a negative id stands for no token, whose embedding is 0.
    /// `layer`: the layer after it, for dropout.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& ids, EmbeddingSaved& saved,
                                 std::int64_t layer = 0) const;
    /// Consumes what was saved.
    void backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, const Tensor& ids,
                  EmbeddingSaved& saved, std::int64_t layer = 0) const;

private:
    const ModelSpec& model_;
    /// The whole tables, the same on every tp rank, with the id of every row in each.
    struct Added {
        const Weight* table;
        Tensor ids;
    };
    [[nodiscard]] ResidualPath dropout_of(std::int64_t layer) const;
    [[nodiscard]] std::vector<Added> added_tables(const RankContext& context, const MicrobatchContext& microbatch) const;

    Weight words_, positions_, token_types_, norm_weight_, norm_bias_;
};

struct VocabularyLossSaved {
    Tensor logits;  ///< (rows, padded vocabulary / tp); overwritten by its gradient
    Tensor maximum;
    SoftmaxSums sums;
};

/// Output projection, vocab-parallel cross-entropy. Padded rows of the vocabulary never count.
class VocabularyLoss {
public:
    /// `output`: the output layer's weight, which may be the embedding's.
    /// `bias`: of the output layer; undefined without one.
    VocabularyLoss(const ModelSpec& model, const Weight& output, Weight bias = {});

    /// Losses of each row, (rows) in fp32 (fp64 for fp64), 0 where the target is negative; targets (rows) int32.
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& normed, const Tensor& targets, VocabularyLossSaved& saved) const;
    /// Gradient of `normed`. `d_loss`: gradient of each row's loss, one factor for all rows. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& normed, const Tensor& targets, double d_loss,
                                  VocabularyLossSaved& saved) const;
    /// True if a backward reads `normed`.
    [[nodiscard]] bool reads_input() const { return output_.reads_input(); }

private:
    [[nodiscard]] VocabularyShard shard(const RankContext& context) const;

    const ModelSpec& model_;
    ColumnParallelLinear output_;
};

struct LossHeadSaved {
    Tensor x;
    NormStatistics statistics;
    Tensor normed;
    VocabularyLossSaved loss;
};

/// The final norm and the loss after it.
class LossHead {
public:
    LossHead(const ModelSpec& model, const WeightTable& weights, const Weight& output);

    /// x (rows, hidden) -> the same, normalised: input of the output layer and of multi-token prediction.
    [[nodiscard]] Tensor normalise(const RankContext& context, const Tensor& x, LossHeadSaved& saved) const;
    /// Losses of each row after normalise(), as VocabularyLoss has them.
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& targets, LossHeadSaved& saved) const;
    /// Gradient of what normalise() returned; frees it and the logits.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& targets, double d_loss, LossHeadSaved& saved) const;
    /// Gradient of x from that of the normalised.
    [[nodiscard]] Tensor normalise_backward(const Tensor& d_normed, LossHeadSaved& saved) const;

private:
    const ModelSpec& model_;
    Weight norm_weight_, norm_bias_;
    VocabularyLoss loss_;
};

}  // namespace mgplan::model
