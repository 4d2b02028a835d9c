#include "model/layers/model_chunk.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plan/errors.hpp"

namespace mgplan::model {

DecoderLayer::DecoderLayer(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                           EnumSet<RecomputeModule> recompute)
    : attention_(model, weights, prefix + "self_attention.", layer, recompute) {
    if (model.is_moe_layer(layer))
        moe_.emplace(model, weights, prefix, layer, recompute);
    else
        mlp_.emplace(model, weights, prefix + "mlp.", layer, recompute);
}

Tensor DecoderLayer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor middle = attention_.forward(context, microbatch, x, saved.attention);
    return moe_ ? moe_->forward(context, microbatch, middle, saved.moe) : mlp_->forward(context, microbatch, middle, saved.mlp);
}

Tensor DecoderLayer::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    const Tensor middle = moe_ ? moe_->backward(context, microbatch, dy, saved.moe) : mlp_->backward(context, microbatch, dy, saved.mlp);
    return attention_.backward(context, microbatch, middle, saved.attention);
}

ModelChunk::ModelChunk(const ModelSpec& model, const StageChunk& contents, const WeightTable& weights, const RecomputeChoice& recompute)
    : contents_(contents), recompute_(recompute) {
    if (contents.embedding) embedding_.emplace(model, weights, "embedding.");
    for (std::int64_t i = 0; i < contents.decoders; ++i) {
        const std::int64_t layer = contents.first_decoder + i;
        layers_.emplace_back(model, weights, fmt::format("decoder.layers.{}.", layer), layer, recompute.modules);
    }
    // A tied embedding on the same chunk is the output layer too; elsewhere the chunk holds a copy under its own name.
    const bool shares = model.tied_embeddings && contents.embedding;
    if (contents.loss) head_.emplace(model, weights, shares ? "embedding.word_embeddings.weight" : "output_layer.weight");
}

std::size_t ModelChunk::recomputed_block(std::size_t i) const {
    if (!recompute_.full) return 0;
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(recompute_.layers, 0));
    if (*recompute_.full == RecomputeMethod::block) return i < wanted ? 1 : 0;
    return std::min(std::max<std::size_t>(wanted, 1), layers_.size() - i);
}

Tensor ModelChunk::run_layers(const RankContext& context, const MicrobatchContext& microbatch, Tensor x, std::size_t begin, std::size_t end,
                              ChunkSaved& saved) {
    for (std::size_t i = begin; i < end; ++i) x = layers_[i].forward(context, microbatch, x, saved.layers[i]);
    return x;
}

Tensor ModelChunk::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& input, const Tensor& targets,
                           ChunkSaved& saved) {
    saved.layers.resize(layers_.size());
    saved.checkpoints.resize(layers_.size());
    Tensor x = embedding_ ? embedding_->forward(context, microbatch, input) : input;
    for (std::size_t i = 0; i < layers_.size();) {
        const std::size_t block = recomputed_block(i);
        if (block == 0) {
            x = run_layers(context, microbatch, x, i, i + 1, saved);
            ++i;
            continue;
        }
        saved.checkpoints[i] = x;
        for (std::size_t j = i; j < i + block; ++j) {
            DecoderLayer::Saved dropped;
            x = layers_[j].forward(context, microbatch, x, dropped);
        }
        i += block;
    }
    return head_ ? head_->forward(context, x, targets, saved.head) : x;
}

Tensor ModelChunk::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, double d_loss,
                            const Tensor& ids, const Tensor& targets, ChunkSaved& saved) {
    Tensor gradient = head_ ? head_->backward(context, targets, d_loss, saved.head) : dy;
    for (std::size_t i = layers_.size(); i-- > 0;) {
        if (!saved.layers[i].attention.x.defined()) {
            // The last layer of a recomputed block: run the block again from its input.
            std::size_t begin = i;
            while (!saved.checkpoints[begin].defined()) {
                MGPLAN_ASSERT(begin > 0, "a recomputed block begins with a kept input");
                --begin;
            }
            (void)run_layers(context, microbatch, saved.checkpoints[begin], begin, i + 1, saved);
            saved.checkpoints[begin] = Tensor();
        }
        gradient = layers_[i].backward(context, microbatch, gradient, saved.layers[i]);
    }
    if (!embedding_) return gradient;
    embedding_->backward(context, microbatch, gradient, ids);
    return {};
}

}  // namespace mgplan::model
