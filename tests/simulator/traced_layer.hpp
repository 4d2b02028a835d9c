#pragma once
// Recordings of the layers of a model whose fields describe it, for tests of one piece.

#include "plan/parameters/layer_kinds.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// The layer in which the mixer and the dense feed-forward are recorded, or the experts.
inline Layer traced_layer(const ModelSpec& model, bool mixture = false) {
    const LayerKinds kinds = layer_kinds(model);
    return mixture ? kinds.mixture_layers.front() : kinds.plain_layers.front();
}

inline PieceTrace trace_dense_pieces(const ModelSpec& model, const PieceSizes& sizes) {
    return trace_dense_pieces(model, traced_layer(model), sizes);
}

inline PieceTrace trace_mixture(const ModelSpec& model, const PieceSizes& sizes, double received = 1) {
    return trace_mixture(model, traced_layer(model, true), sizes, received);
}

}  // namespace mgplan::simulator
