#pragma once
// Bytes of parameters, gradients and optimizer state if mgplan's own engine shards more than the optimizer's state, unit by unit
// (model/optimizer/unit_traffic.hpp).

#include <cstdint>
#include <span>

#include "model/optimizer/buffer_layout.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/memory/model_state.hpp"

namespace mgplan::simulator {

struct UnitState {
    ModelStateBytes held;  ///< all the time: shards, and unsharded state of the rank
    /// Peak bytes of parameters and of gradients that a pass adds to these: the largest unit, or with overlap the largest two adjacent
    /// units; gradients include the result of a reduction.
    std::int64_t gathered = 0, reduced = 0;
};

/// State of one chunk. `parameters`: with their units, in module order; `options`: of a rank, without a bucket size.
[[nodiscard]] UnitState unit_state_bytes(std::span<const model::BufferParameter> parameters, const model::BufferOptions& options,
                                         const TrainingSpec& training);

}  // namespace mgplan::simulator
