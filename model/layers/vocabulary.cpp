#include "model/layers/vocabulary.hpp"

#include <algorithm>
#include <vector>

#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/positions.hpp"

namespace mgplan::model {
namespace {

/// Rows of the padded table of words on each tp rank.
std::int64_t shard_rows(const RankContext& context, const ModelSpec& model) {
    return model.padded_vocab(context.tp->size()) / context.tp->size();
}

/// Returns x · factor; x itself if the factor is 1.
Tensor scaled(const RankContext& context, const Tensor& x, double factor) {
    if (factor == 1) return x;
    Tensor y = context.device->empty(x.shape(), x.dtype(), MemoryCategory::activations, "scaled gradient");
    copy(x, y);
    scale(y, factor);
    return y;
}

Tensor position_ids_of(const RankContext& context, const MicrobatchContext& microbatch) {
    return microbatch.position_ids.defined() ? microbatch.position_ids : position_ids(*context.device, positions_of(context, microbatch));
}

}  // namespace

Tensor position_ids(Device& device, const Positions& positions) {
    Tensor ids = device.empty({positions.rows()}, Dtype::int32, MemoryCategory::activations, "position ids");
    if (!device.computes()) return ids;
    std::vector<std::int32_t> values;
    for (std::int64_t row = 0; row < positions.rows(); ++row)
        values.push_back(static_cast<std::int32_t>(positions.at(row / positions.batch)));
    device.write(ids, values.data());
    return ids;
}

VocabularyEmbedding::VocabularyEmbedding(const ModelSpec& model, const WeightTable& weights, const std::string& prefix)
    : model_(model),
      words_(weights.at(prefix + "word_embeddings.weight")),
      positions_(weights.find(prefix + "position_embeddings.weight")),
      token_types_(weights.find(prefix + "tokentype_embeddings.weight")),
      norm_weight_(weights.find(prefix + "norm.weight")),
      norm_bias_(weights.find(prefix + "norm.bias")) {
    if (words_.start != nullptr) words_.start->sums = true;
}

std::vector<VocabularyEmbedding::Added> VocabularyEmbedding::added_tables(const RankContext& context,
                                                                          const MicrobatchContext& microbatch) const {
    std::vector<Added> tables;
    if (positions_.defined()) tables.push_back({&positions_, position_ids_of(context, microbatch)});
    if (token_types_.defined()) {
        tables.push_back({&token_types_, context.device->zeros({positions_of(context, microbatch).rows()}, Dtype::int32,
                                                               MemoryCategory::activations, "token type ids")});
    }
    return tables;
}

ResidualPath VocabularyEmbedding::dropout_of(std::int64_t layer) const {
    Residual dropped;
    dropped.dropout = model_.hidden_dropout;
    return {dropped, false, layer, ResidualPlace::embedding};
}

Tensor VocabularyEmbedding::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& ids,
                                    EmbeddingSaved& saved, std::int64_t layer) const {
    const std::int64_t rows = shard_rows(context, model_);
    Tensor x = leave_region(context, embedding(ids, words_.value, rows * context.tp->rank()));
    // These tables are whole on every rank: with sequence parallelism each takes its rows.
    const std::int64_t mine = x.shape()[0], first = context.sequence_parallel ? mine * context.tp->rank() : 0;
    for (const Added& added : added_tables(context, microbatch))
        add(embedding(added.ids.slice(first, first + mine), added.table->value, 0), x);
    if (model_.embedding_multiplier != 1) scale(x, model_.embedding_multiplier);
    if (model_.embedding_norm) {
        saved.sum = x;
        x = norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, saved.statistics);
    }
    if (model_.hidden_dropout == 0) return x;
    const Tensor nothing = context.device->zeros(x.shape(), x.dtype(), MemoryCategory::activations, "empty residual");
    return dropout_of(layer).sum(context, microbatch, x, nothing);
}

void VocabularyEmbedding::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, const Tensor& ids,
                                   EmbeddingSaved& saved, std::int64_t layer) const {
    if (!words_.trained()) {  // nothing in front of the layers is trained
        saved = {};
        return;
    }
    Tensor d_dropped = dropout_of(layer).backward(context, microbatch, dy);
    if (model_.embedding_norm) {
        d_dropped = norm_backward(d_dropped, saved.sum, norm_weight_.value, saved.statistics, model_.normalization, norm_weight_.gradient,
                                  norm_bias_.gradient);
        saved = {};
    }
    const Tensor whole = enter_region(context, scaled(context, d_dropped, model_.embedding_multiplier));
    embedding_backward(whole, ids, shard_rows(context, model_) * context.tp->rank(), words_.gradient);
    for (const Added& added : added_tables(context, microbatch)) embedding_backward(whole, added.ids, 0, added.table->gradient);
}

VocabularyLoss::VocabularyLoss(const ModelSpec& model, const Weight& output, Weight bias)
    : model_(model), output_(output, std::move(bias)) {}

VocabularyShard VocabularyLoss::shard(const RankContext& context) const {
    const std::int64_t rows = model_.output_rows(context.tp->size()) / context.tp->size(), first = rows * context.tp->rank();
    return {first, std::clamp<std::int64_t>(model_.labels.value_or(model_.vocab) - first, 0, rows)};
}

Tensor VocabularyLoss::forward(const RankContext& context, const Tensor& normed, const Tensor& targets, VocabularyLossSaved& saved) const {
    const Range range(*context.device, "loss forward");
    saved.logits = output_.forward(context, normed);
    if (model_.logit_multiplier != 1) scale(saved.logits, model_.logit_multiplier);
    if (model_.logit_softcap > 0) soft_cap(saved.logits, model_.logit_softcap);
    saved.maximum = row_maximum(saved.logits, shard(context));
    context.tp->all_reduce(saved.maximum, Reduction::maximum);
    saved.sums = softmax_sums(saved.logits, targets, saved.maximum, shard(context));
    context.tp->all_reduce(saved.sums.target, Reduction::sum);
    context.tp->all_reduce(saved.sums.exponentials, Reduction::sum);
    return token_losses(saved.sums, targets);
}

Tensor VocabularyLoss::backward(const RankContext& context, const Tensor& normed, const Tensor& targets, double d_loss,
                                VocabularyLossSaved& saved) const {
    const Range range(*context.device, "loss backward");
    cross_entropy_backward(saved.logits, targets, saved.maximum, saved.sums.exponentials, shard(context), d_loss, model_.logit_softcap);
    if (model_.logit_multiplier != 1) scale(saved.logits, model_.logit_multiplier);
    Tensor d_normed = output_.backward(context, saved.logits, normed);
    saved.logits = {};
    return d_normed;
}

LossHead::LossHead(const ModelSpec& model, const WeightTable& weights, const Weight& output)
    : model_(model),
      norm_weight_(weights.find("decoder.final_layernorm.weight")),
      norm_bias_(weights.find("decoder.final_layernorm.bias")),
      loss_(model, output, weights.find("output_layer.bias")) {}

Tensor LossHead::normalise(const RankContext& context, const Tensor& x, LossHeadSaved& saved) const {
    saved.x = x;
    saved.normed = norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, saved.statistics);
    return saved.normed;
}

Tensor LossHead::forward(const RankContext& context, const Tensor& targets, LossHeadSaved& saved) const {
    Tensor losses = loss_.forward(context, saved.normed, targets, saved.loss);
    if (!loss_.reads_input()) saved.normed = {};
    return losses;
}

Tensor LossHead::backward(const RankContext& context, const Tensor& targets, double d_loss, LossHeadSaved& saved) const {
    Tensor d_normed = loss_.backward(context, saved.normed, targets, d_loss, saved.loss);
    saved.normed = {};
    return d_normed;
}

Tensor LossHead::normalise_backward(const Tensor& d_normed, LossHeadSaved& saved) const {
    Tensor dx = norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, model_.normalization, norm_weight_.gradient,
                              norm_bias_.gradient);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
