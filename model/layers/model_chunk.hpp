#pragma once
// The layers that one model chunk of one pipeline rank holds: embedding, decoder layers,
// multi-token prediction, loss head.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/decoder_layer.hpp"
#include "model/layers/mtp.hpp"
#include "model/layers/stream_ends.hpp"
#include "model/layers/vocabulary.hpp"
#include "model/layers/weight_events.hpp"
#include "plan/layout/stage_split.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::model {

/// Recompute of a chunk, from the layout.
struct RecomputeChoice {
    EnumSet<RecomputeModule> modules;  ///< of selective; empty otherwise
    /// Full recompute. uniform: only the input of every `layers` layers is kept; block: the first `layers` of the chunk
    /// keep their input alone. Nothing: no full recompute.
    std::optional<RecomputeMethod> full;
    std::int64_t layers = 0;
};

/// Tensors that one microbatch saves in a chunk between its forward and its backward.
struct ChunkSaved {
    std::vector<DecoderLayer::Saved> layers;
    std::vector<Tensor> checkpoints;  ///< inputs of recomputed blocks of layers
    std::vector<MtpDepthSaved> mtp;
    LossHeadSaved head;
    EmbeddingSaved embedding;
    StreamEndsSaved streams;
};

/// Runs whole chunks, independent of pipelines. Not thread-safe.
class ModelChunk {
public:
    /// `contents`: of this chunk; `weights`: its parameters under the names of plan/parameters/parameters.hpp.
    ModelChunk(const ModelSpec& model, const StageChunk& contents, const WeightTable& weights, const RecomputeChoice& recompute)
        : ModelChunk(model, chunk_layers(model, contents), contents, weights, recompute) {}
    /// The same with these layers.
    ModelChunk(const ModelSpec& model, const ChunkLayers& layers, const StageChunk& contents, const WeightTable& weights,
               const RecomputeChoice& recompute);

    /// Input of the first chunk: ids (rows) int32; of the others: the stream (rows outside the tp region, hidden).
    /// Returns the stream, or in the last chunk the losses of all rows.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& input,
                                 const Tensor& targets, ChunkSaved& saved);
    /// `dy`: gradient of the stream; unused in the last chunk, where `d_loss` is the gradient of every row's loss. Returns
    /// the gradient of the input stream, undefined in the first chunk. With context.deferred the products that make weight
    /// gradients, and the events after them, wait there; nothing of `saved` does.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, double d_loss,
                                  const Tensor& ids, const Tensor& targets, ChunkSaved& saved);

    [[nodiscard]] const StageChunk& contents() const { return contents_; }

    /// Its number among the rank's chunks, for the places of CUDA graphs.
    void set_number(int number) { number_ = number; }
    /// Number of layers with a captured part.
    [[nodiscard]] std::int64_t captured_layers(const RankContext& context) const;

    /// Sets the listener to the chunk's weights; nullptr: none. It outlives the chunk's passes.
    void set_events(WeightEvents* events) { events_ = events; }
    [[nodiscard]] int units() const { return first_mtp_unit() + MtpDepth::kUnits * static_cast<int>(contents_.mtp) + 1; }
    /// The unit that is the first to read a parameter in a forward and the last to add to its gradient in a backward.
    [[nodiscard]] int unit_of(const std::string& parameter) const;

private:
    [[nodiscard]] int first_mtp_unit() const { return 1 + DecoderLayer::kUnits * static_cast<int>(contents_.decoders); }
    [[nodiscard]] UnitEvents events(const RankContext& context, int first) const { return {events_, first, context.deferred}; }
    [[nodiscard]] static int unit_of_layer(std::size_t i) { return 1 + DecoderLayer::kUnits * static_cast<int>(i); }
    [[nodiscard]] UnitEvents events_of_layer(const RankContext& context, std::size_t i) const { return events(context, unit_of_layer(i)); }
    /// Layers [begin, end) forward, keeping everything. `again`: for the backward of the last one, which follows.
    Tensor run_layers(const RankContext& context, const MicrobatchContext& microbatch, Tensor x, std::size_t begin, std::size_t end,
                      ChunkSaved& saved, bool again = false);
    /// Sections of weights (model/layers/chunk_sections.hpp), for the listener.
    [[nodiscard]] static int section_of_layer(std::size_t i) { return 1 + static_cast<int>(i); }
    [[nodiscard]] int section_of_head() const { return section_of_layer(layers_.size()); }
    void enter(int section, int next) const {
        if (events_ != nullptr) events_->before_section(section, next);
    }
    void leave(int section) const {
        if (events_ != nullptr) events_->after_section(section);
    }
    /// A forward's next section after layer i; -1: none.
    [[nodiscard]] int section_behind(std::size_t i) const;
    /// The section whose weights a backward reads next once it is done with layer i, or with the head where i is the number of
    /// layers: the layer below or the first of its recomputed block. The embedding's backward reads no weights. -1: none.
    [[nodiscard]] int section_below(std::size_t i, const ChunkSaved& saved) const;
    /// The section that a backward adds to after layer i or the head; -1: none.
    [[nodiscard]] int gradients_below(std::size_t i) const { return i > 0 || embedding_ ? static_cast<int>(i) : -1; }
    /// The first layer of the recomputed block that layer i ends, or begins.
    [[nodiscard]] static std::size_t block_begin(std::size_t i, const ChunkSaved& saved);
    [[nodiscard]] GraphPlace place_of(const MicrobatchContext& microbatch, std::size_t i) const;
    /// A copy of what a graph wrote, for another stage: messages outlive passes, and graphs write fixed addresses.
    [[nodiscard]] static Tensor message(const RankContext& context, const Tensor& x, std::string_view name);
    /// Number of layers in the recomputed block that begins at layer i; 0: that layer keeps everything.
    [[nodiscard]] std::size_t recomputed_block(std::size_t i) const;

    StageChunk contents_;
    RecomputeChoice recompute_;
    WeightEvents* events_ = nullptr;
    int number_ = 0;
    std::optional<VocabularyEmbedding> embedding_;
    std::vector<DecoderLayer> layers_;
    std::optional<Mtp> mtp_;
    std::optional<LossHead> head_;
    StreamEnds streams_;
};

}  // namespace mgplan::model
