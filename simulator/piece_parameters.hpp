#pragma once
// Parameters of the pieces of a model on one rank.

#include <cstdint>

#include "plan/model_spec.hpp"
#include "plan/parameters.hpp"

namespace mgplan::simulator {

/// Parameter counts of the pieces on one rank.
struct PieceParameters {
    ParameterCount dense, mixture, mtp, embedding, head, head_with_copy;
};

[[nodiscard]] PieceParameters piece_parameters(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp);

}  // namespace mgplan::simulator
