#pragma once
// Begin and end of a model's residual streams, as a chunk of layers uses them. Implemented for shapes alone.
//
// Those of Gemma 3n (transformers 5.23.0, modeling_gemma3n.py, Gemma3nTextModel.forward): all but the first come from the embeddings by a
// matrix each and are made as long as these; after the layers each goes through another matrix, is made as long as the first, and the mean
// of all goes on. Matrices are whole on every tp rank. Those that maps mix (ModelSpec::hyper_connections) begin as copies of the
// embeddings, and a StreamHead brings them together.

#include <optional>
#include <string>
#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/residual_streams.hpp"
#include "model/layers/tensor_parallel.hpp"

namespace mgplan::model {

/// Tensors one of the ends saves.
struct StreamEndSaved {
    Tensor x;                       ///< (rows, h) of the embeddings, or (rows, n·h)
    std::vector<Tensor> projected;  ///< before their lengths are set, of each stream but the first
};

class StreamEntry {
public:
    StreamEntry(std::int64_t streams, const WeightTable& weights);
    /// (rows, h) -> (rows, n·h)
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, StreamEndSaved& saved) const;
    /// The gradient of x. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, StreamEndSaved& saved) const;

private:
    std::int64_t streams_;
    std::vector<DuplicatedLinear> maps_;
};

class StreamExit {
public:
    StreamExit(std::int64_t streams, const WeightTable& weights);
    /// (rows, n·h) -> (rows, h)
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, StreamEndSaved& saved) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, StreamEndSaved& saved) const;

private:
    std::int64_t streams_;
    std::vector<DuplicatedLinear> maps_;
};

struct StreamEndsSaved {
    StreamEndSaved entry, exit;
    StreamHeadSaved head;
};

/// Both ends, of those that a chunk has; of a model with one stream nothing.
class StreamEnds {
public:
    /// `begin`: the chunk embeds words; `end`: it has the last norm. The model outlives it.
    StreamEnds(const ModelSpec& model, const WeightTable& weights, bool begin, bool end);

    /// (rows, h) of the embeddings -> (rows, n·h)
    [[nodiscard]] Tensor split(const RankContext& context, const Tensor& x, StreamEndsSaved& saved) const;
    /// The gradient of the embeddings. Consumes what was saved.
    [[nodiscard]] Tensor split_backward(const RankContext& context, const Tensor& dy, StreamEndsSaved& saved) const;

    /// (rows, n·h) -> (rows, h) of the last norm
    [[nodiscard]] Tensor join(const RankContext& context, const Tensor& x, StreamEndsSaved& saved) const;
    [[nodiscard]] Tensor join_backward(const RankContext& context, const Tensor& dy, StreamEndsSaved& saved) const;

private:
    std::int64_t streams_;
    std::optional<StreamEntry> entry_;
    std::optional<StreamExit> exit_;
    std::optional<StreamHead> head_;
};

}  // namespace mgplan::model
