#pragma once
// The two ends of the model: looking tokens up, and the loss over the vocabulary, both divided over tp by vocabulary rows.

#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Word embedding (and learned positions, and token types) of one microbatch's slice: ids outside the rank's rows give zeros,
/// and the sum over tp gives the rest. With sequence parallelism the result is scattered by rows. Every token is of type 0:
/// a language model's data has no types.
class VocabularyEmbedding {
public:
    VocabularyEmbedding(const ModelSpec& model, const WeightTable& weights, const std::string& prefix);

    /// ids (rows) int32 of the cp rank's slice, in row order.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& ids) const;
    void backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, const Tensor& ids) const;

private:
    const ModelSpec& model_;
    /// The whole tables, the same on every tp rank, with the id of every row in each.
    struct Added {
        const Weight* table;
        Tensor ids;
    };
    [[nodiscard]] std::vector<Added> added_tables(const RankContext& context, const MicrobatchContext& microbatch) const;

    Weight words_, positions_, token_types_;
};

struct LossHeadSaved {
    Tensor x;
    NormStatistics statistics;
    Tensor normed;
    Tensor logits;  ///< (rows, padded vocabulary / tp); overwritten by its gradient
    Tensor maximum;
    SoftmaxSums sums;
};

/// Final norm, output projection, vocab-parallel cross-entropy. Padded rows of the vocabulary never count.
class LossHead {
public:
    /// `output`: "output_layer.weight", or the embedding's weight when tied on one stage.
    LossHead(const ModelSpec& model, const WeightTable& weights, const std::string& output);

    /// Losses of each row, (rows) in fp32 (fp64 for fp64); targets (rows) int32.
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, const Tensor& targets, LossHeadSaved& saved) const;
    /// `d_loss`: gradient of each row's loss, one factor for all rows.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& targets, double d_loss, LossHeadSaved& saved) const;

private:
    [[nodiscard]] VocabularyShard shard(const RankContext& context) const;

    const ModelSpec& model_;
    Weight norm_weight_, norm_bias_;
    ColumnParallelLinear output_;
};

}  // namespace mgplan::model
