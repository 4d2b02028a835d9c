#pragma once
// A pass of a piece played on its streams: one that computes, and one for each kind of rank group.

#include <array>
#include <functional>

#include "simulator/compute/layer_costs.hpp"
#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// Seconds of one pass.
struct PassSeconds {
    double total = 0;                                 ///< from the first step to the end of the last
    std::array<double, kStepPasses> compute{};        ///< of ops, were nothing beside them
    std::array<GroupSeconds, kStepPasses> exposed{};  ///< the rest of `total`: by what computation waited for or was slowed by
};

/// Prices of a step: of an op its seconds, of a start the collective's.
using StepPrice = std::function<double(const PieceStep&)>;

/// Ops run in order, each behind the one before. A collective starts where it is started or behind the one before it in its kind of group,
/// and runs beside the ops; a wait ends with it (that of a number without a start is free). While collectives run, ops advance by 1 - t of
/// their speed, t in [0, 1] being the largest of their overlap costs: `overlap_cost` of a start. A wait for a `share` of a collective ends
/// when so much of its time has passed.
[[nodiscard]] PassSeconds replay(const PieceSteps& steps, const StepPrice& price, const StepPrice& overlap_cost);

}  // namespace mgplan::simulator
