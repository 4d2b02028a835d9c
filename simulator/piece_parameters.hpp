#pragma once
// Parameters of the pieces of a model on one rank.

#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::simulator {

/// Parameter counts of the pieces on one rank.
struct PieceParameters {
    std::vector<ParameterCount> layers;  ///< a decoder layer, by index of its kind
    ParameterCount mtp, embedding, head, head_with_copy;
    std::vector<bool> layers_in_bf16{};  ///< by index of their kind: whether products stay in 16 bits; empty: none does
};

[[nodiscard]] PieceParameters piece_parameters(const ModelSpec& model, const LayerKinds& kinds, const ParallelSizes& sizes);

}  // namespace mgplan::simulator
