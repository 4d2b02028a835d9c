#pragma once
// Parameter counts of a model's pieces on one rank.

#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::simulator {

/// Parameter counts of the pieces on one rank.
struct PieceParameters {
    std::vector<ParameterCount> layers;  ///< one decoder layer, by index of its kind
    ParameterCount mtp, embedding, head, head_with_copy;
    std::vector<bool> layers_in_bf16{};  ///< by index of the layer kind: true if its GEMMs stay in 16 bits; empty if none do
};

[[nodiscard]] PieceParameters piece_parameters(const ModelSpec& model, const LayerKinds& kinds, const ParallelSizes& sizes);

}  // namespace mgplan::simulator
