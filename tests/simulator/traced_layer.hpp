#pragma once
// Recordings of the layers of a model whose fields describe it, for tests of one piece.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "plan/parameters/layer_kinds.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Puts the pieces of another trace behind those of `trace`.
inline void append(PieceTrace& trace, PieceTrace next) {
    std::int64_t shift = 1;
    for (const PieceRange& range : trace.pieces) shift = std::max(shift, range.end + 1);
    for (const auto& tensor : trace.tensors) shift = std::max({shift, tensor.taken + 1, tensor.returned + 1});
    for (auto& tensor : next.tensors) {
        tensor.taken += shift;
        if (tensor.returned >= 0) tensor.returned += shift;
        trace.tensors.push_back(tensor);
    }
    for (PieceRange& range : next.pieces) {
        range.begin += shift;
        range.end += shift;
        trace.pieces.push_back(std::move(range));
    }
}

/// The half with experts, which no layer needs to have.
inline LayerHalf traced_mixture(ModelSpec model) {
    if (model.kinds.empty()) model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
    const LayerKinds kinds = layer_kinds(model);
    return kinds.feed_forwards[static_cast<std::size_t>(kinds.mixture())];
}

/// The layer of the first mixer, and of the first feed-forward or that of experts.
inline Layer traced_layer(const ModelSpec& model, bool mixture = false) {
    const LayerKinds kinds = layer_kinds(model);
    Layer layer = kinds.first_half().layer;
    if (mixture)
        layer.feed_forward = traced_mixture(model).layer.feed_forward;
    else if (!kinds.feed_forwards.empty() && !kinds.feed_forwards.front().mixture)
        layer.feed_forward = kinds.feed_forwards.front().layer.feed_forward;
    return layer;
}

/// Embedding, norm and loss, a mixer, and a feed-forward without experts of the same index, if there are such ones.
inline PieceTrace trace_dense_pieces(const ModelSpec& model, const PieceSizes& sizes, std::size_t half = 0) {
    const LayerKinds kinds = layer_kinds(model);
    PieceTrace trace = trace_ends(model, sizes);
    if (half < kinds.mixers.size()) append(trace, trace_half(model, kinds.mixers[half], sizes));
    if (half < kinds.feed_forwards.size() && !kinds.feed_forwards[half].mixture)
        append(trace, trace_half(model, kinds.feed_forwards[half], sizes));
    return trace;
}

inline PieceTrace trace_mixture(const ModelSpec& model, const PieceSizes& sizes, double received = 1) {
    return trace_half(model, traced_mixture(model), sizes, received);
}

}  // namespace mgplan::simulator
