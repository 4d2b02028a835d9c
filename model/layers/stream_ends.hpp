#pragma once
// Where the residual streams of Gemma 3n begin and end (transformers 5.23.0, modeling_gemma3n.py, Gemma3nTextModel.forward): all but the
// first come from the embeddings by a matrix each and are made as long as these; behind the layers each goes through another matrix, is
// made as long as the first, and the mean of all goes on. Matrices are whole on every tp rank. Known of shapes alone.

#include <string>
#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"

namespace mgplan::model {

/// What one of the ends keeps.
struct StreamEndSaved {
    Tensor x;                       ///< (rows, h) of the embeddings, or (rows, n·h)
    std::vector<Tensor> projected;  ///< in front of their lengths, of each stream but the first
};

class StreamEntry {
public:
    StreamEntry(std::int64_t streams, const WeightTable& weights);
    /// (rows, h) -> (rows, n·h)
    [[nodiscard]] Tensor forward(const Tensor& x, StreamEndSaved& saved) const;
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
    [[nodiscard]] Tensor forward(const Tensor& x, StreamEndSaved& saved) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, StreamEndSaved& saved) const;

private:
    std::int64_t streams_;
    std::vector<DuplicatedLinear> maps_;
};

}  // namespace mgplan::model
