#include "model/layers/model_chunk.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/core.h>

#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

ModelChunk::ModelChunk(const ModelSpec& model, const ChunkLayers& layers, const StageChunk& contents, const WeightTable& weights,
                       const RecomputeChoice& recompute)
    : contents_(contents), recompute_(recompute), streams_(model, weights, contents.embedding, contents.loss) {
    if (contents.embedding) embedding_.emplace(model, weights, "embedding.");
    for (std::int64_t i = 0; i < contents.decoders; ++i) {
        const std::int64_t layer = contents.first_decoder + i;
        layers_.emplace_back(layer_site(model, layers.decoders[static_cast<std::size_t>(i)], weights,
                                        fmt::format("decoder.layers.{}.", layer), layer, recompute.modules));
    }
    if (!contents.loss) return;
    // A tied embedding on the same chunk is the output layer too; elsewhere the chunk holds a copy under its own name.
    const bool shares = model.tied_embeddings && contents.embedding;
    const Weight& output = weights.at(shares ? "embedding.word_embeddings.weight" : "output_layer.weight");
    // Megatron-core recomputes these layers in full with the uniform method alone (multi_token_prediction.py).
    const bool recompute_all = recompute.full == RecomputeMethod::uniform;
    if (contents.mtp > 0) mtp_.emplace(model, *layers.prediction, weights, contents.mtp, output, recompute.modules, recompute_all);
    head_.emplace(model, weights, output);
}

int ModelChunk::unit_of(const std::string& parameter) const {
    constexpr std::string_view kEmbedding = "embedding.", kLayers = "decoder.layers.", kMtp = "mtp.layers.";
    if (parameter.starts_with(kEmbedding)) return 0;
    const bool decodes = parameter.starts_with(kLayers), predicts = parameter.starts_with(kMtp);
    if (!decodes && !predicts) return units() - 1;
    std::int64_t layer = -1;
    const char* const end = parameter.data() + parameter.size();
    const auto [rest_begin, error] = std::from_chars(parameter.data() + (decodes ? kLayers : kMtp).size(), end, layer);
    if (decodes) layer -= contents_.first_decoder;
    MGPLAN_ASSERT(error == std::errc{} && layer >= 0 && layer < (decodes ? contents_.decoders : contents_.mtp),
                  "the parameter is of one of the chunk's layers");
    std::string_view rest(rest_begin, static_cast<std::size_t>(end - rest_begin));
    int first = first_mtp_unit() + MtpDepth::kUnits * static_cast<int>(layer);
    if (decodes) {
        first = unit_of_layer(static_cast<std::size_t>(layer));
    } else {
        constexpr std::string_view kLayer = ".transformer_layer";
        if (!rest.starts_with(kLayer)) return first;
        rest.remove_prefix(kLayer.size());
        ++first;
    }
    const bool attends = rest.starts_with(".self_attention.") || rest.starts_with(".input_layernorm.") || rest.starts_with(".mixer.");
    return first + (attends ? 0 : 1);
}

std::size_t ModelChunk::recomputed_block(std::size_t i) const {
    if (!recompute_.full) return 0;
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(recompute_.layers, 0));
    if (*recompute_.full == RecomputeMethod::block) return i < wanted ? 1 : 0;
    return std::min(std::max<std::size_t>(wanted, 1), layers_.size() - i);
}

int ModelChunk::section_behind(std::size_t i) const {
    return i + 1 < layers_.size() || head_ ? section_of_layer(i + 1) : -1;
}

int ModelChunk::section_below(std::size_t i, const ChunkSaved& saved) const {
    if (i == 0) return -1;
    const bool again = recompute_.full && !saved.layers[i - 1].kept();
    return section_of_layer(again ? block_begin(i - 1, saved) : i - 1);
}

std::size_t ModelChunk::block_begin(std::size_t i, const ChunkSaved& saved) {
    while (!saved.checkpoints[i].defined()) {
        MGPLAN_ASSERT(i > 0, "a recomputed block begins with a kept input");
        --i;
    }
    return i;
}

Tensor ModelChunk::run_layers(const RankContext& context, const MicrobatchContext& microbatch, Tensor x, std::size_t begin, std::size_t end,
                              ChunkSaved& saved, bool again) {
    for (std::size_t i = begin; i < end; ++i) {
        const Range range(*context.device, "layer forward", contents_.first_decoder + static_cast<std::int64_t>(i));
        const bool stays = again && i + 1 == end;
        enter(section_of_layer(i), stays ? -1 : section_behind(i));
        const bool to_graph =
            i + 1 < layers_.size() && ends_layer(layers_[i].graphed(context)) && begins_layer(layers_[i + 1].graphed(context));
        x = layers_[i].forward(context, microbatch, x, saved.layers[i], events_of_layer(context, i), place_of(microbatch, i), !to_graph);
        if (!stays) leave(section_of_layer(i));
    }
    return x;
}

GraphPlace ModelChunk::place_of(const MicrobatchContext& microbatch, std::size_t i) const {
    return {microbatch.slot, number_, contents_.first_decoder + static_cast<std::int64_t>(i)};
}

std::int64_t ModelChunk::captured_layers(const RankContext& context) const {
    return std::count_if(layers_.begin(), layers_.end(),
                         [&](const DecoderLayer& layer) { return layer.graphed(context) != GraphedPart::none; });
}

Tensor ModelChunk::message(const RankContext& context, const Tensor& x, std::string_view name) {
    Tensor message = context.device->empty(x.shape(), x.dtype(), MemoryCategory::communication, name);
    copy(x, message);
    return message;
}

Tensor ModelChunk::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& input, const Tensor& targets,
                           ChunkSaved& saved) {
    saved.layers.resize(layers_.size());
    saved.checkpoints.resize(layers_.size());
    const UnitEvents first = events(context, 0), last = events(context, units() - 1);
    Tensor x = input;
    if (embedding_) {
        const Range range(*context.device, "embedding forward");
        enter(0, layers_.empty() && !head_ ? -1 : section_of_layer(0));
        first.before_use(0);
        x = embedding_->forward(context, microbatch, input, saved.embedding);
        x = streams_.split(context, x, saved.streams);
        leave(0);
    }
    for (std::size_t i = 0; i < layers_.size();) {
        const std::size_t block = recomputed_block(i);
        if (block == 0) {
            x = run_layers(context, microbatch, x, i, i + 1, saved);
            ++i;
            continue;
        }
        saved.checkpoints[i] = x;
        for (std::size_t j = i; j < i + block; ++j) {
            const Range range(*context.device, "layer forward", contents_.first_decoder + static_cast<std::int64_t>(j));
            enter(section_of_layer(j), section_behind(j));
            DecoderLayer::Saved dropped;
            x = layers_[j].forward(context, microbatch, x, dropped, events_of_layer(context, j));
            leave(section_of_layer(j));
        }
        i += block;
    }
    if (!head_) {
        const bool fixed = !layers_.empty() && ends_layer(layers_.back().graphed(context));
        return fixed ? message(context, x, "sent activations") : x;
    }
    const Range range(*context.device, "head forward");
    enter(section_of_head(), -1);
    last.before_use(0);
    x = streams_.join(context, x, saved.streams);
    const Tensor normed = head_->normalise(context, x, saved.head);
    if (mtp_) {
        if (!embedding_) first.before_use(0);
        mtp_->forward(context, microbatch, normed, targets, saved.mtp, events(context, first_mtp_unit()));
    }
    Tensor losses = head_->forward(context, targets, saved.head);
    leave(section_of_head());
    return losses;
}

Tensor ModelChunk::backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, double d_loss, const Tensor& ids,
                            const Tensor& targets, ChunkSaved& saved) {
    Tensor gradient = std::move(dy);
    if (head_) {
        const Range range(*context.device, "head backward");
        enter(section_of_head(), section_below(layers_.size(), saved));
        if (events_ != nullptr) events_->before_gradients(section_of_head());
        gradient = head_->backward(context, targets, d_loss, saved.head);
        if (mtp_) {
            add(mtp_->backward(context, microbatch, targets, d_loss, saved.mtp, events(context, first_mtp_unit())), gradient);
            if (!embedding_) events(context, 0).after_backward(0);
        }
        gradient = head_->normalise_backward(gradient, saved.head);
        gradient = streams_.join_backward(context, gradient, saved.streams);
        events(context, units() - 1).after_backward(0);
        leave(section_of_head());
        if (events_ != nullptr) events_->after_gradients(section_of_head(), gradients_below(layers_.size()));
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
        if (recompute_.full && !saved.layers[i].kept()) {
            // The last layer of a recomputed block: run the block again from its input.
            const std::size_t begin = block_begin(i, saved);
            (void)run_layers(context, microbatch, saved.checkpoints[begin], begin, i + 1, saved, true);
            saved.checkpoints[begin] = Tensor();
        }
        const Range range(*context.device, "layer backward", contents_.first_decoder + static_cast<std::int64_t>(i));
        enter(section_of_layer(i), section_below(i, saved));
        if (events_ != nullptr) events_->before_gradients(section_of_layer(i));
        gradient = layers_[i].backward(context, microbatch, std::move(gradient), saved.layers[i], events_of_layer(context, i),
                                       place_of(microbatch, i));
        leave(section_of_layer(i));
        if (events_ != nullptr) events_->after_gradients(section_of_layer(i), gradients_below(i));
    }
    if (!embedding_) {
        const bool fixed = !layers_.empty() && begins_layer(layers_.front().graphed(context));
        return fixed ? message(context, gradient, "sent gradients") : gradient;
    }
    const Range range(*context.device, "embedding backward");
    if (events_ != nullptr) events_->before_gradients(0);
    gradient = streams_.split_backward(context, gradient, saved.streams);
    embedding_->backward(context, microbatch, gradient, ids, saved.embedding);
    gradient = {};
    events(context, 0).after_backward(0);
    if (events_ != nullptr) events_->after_gradients(0, -1);
    return {};
}

}  // namespace mgplan::model
