#pragma once
// Simulation of a piece's pass on its streams: one for compute, and one for each kind of rank group.

#include <array>
#include <functional>

#include "simulator/compute/layer_costs.hpp"
#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// Seconds of one pass.
struct PassSeconds {
    double total = 0;                                 ///< from the first step to the end of the last
    std::array<double, kStepPasses> compute{};        ///< seconds of ops, without slowdown by collectives
    std::array<GroupSeconds, kStepPasses> exposed{};  ///< the rest of `total`: waits for a group's collectives, and slowdown by them
};

/// Seconds of a step: of an op, or of the collective that a start begins. Also used for overlap costs.
using StepPrice = std::function<double(const PieceStep&)>;

/// Ops run in order. A collective begins at its start step, or after the previous one of the same kind of group, and runs concurrently with
/// the ops; a wait step lasts until it ends (without a matching start, no time). While collectives run, ops have 1 - t of their speed, t in
/// [0, 1] being the largest of their overlap costs: `overlap_cost` of a start. A wait for a `share` of a collective ends when that share of
/// its time has passed.
[[nodiscard]] PassSeconds replay(const PieceSteps& steps, const StepPrice& price, const StepPrice& overlap_cost);

}  // namespace mgplan::simulator
