#pragma once
// A pass on its streams in SimGrid (simgrid.org): an oracle that advances time by itself and knows nothing of simulator/price.

#include <vector>

#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// A pass whose steps hold their seconds (written_steps.hpp).
struct WrittenPass {
    PieceSteps steps;
    double overlap_cost = 0;  ///< ops beside a collective advance by the rest of their speed; below 1
};

/// Seconds of each pass. A stream is an actor: the computing one executes ops on a host of its own and waits for collectives; those of each
/// group take theirs in turn, and lower the host's speed while any of them is busy. Throws std::runtime_error where SimGrid fails.
[[nodiscard]] std::vector<double> simulated_seconds(const std::vector<WrittenPass>& passes);

}  // namespace mgplan::simulator
