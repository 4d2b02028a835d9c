#pragma once
// Brings what all ranks know to rank 0.

#include <vector>

#include "model/communicator/world.hpp"
#include "runtime/measurement/run_values.hpp"
#include "runtime/training_run/rank_run.hpp"

namespace mgplan::runtime {

/// Called by every rank; the result is complete on rank 0 and empty elsewhere. Its own messages are sent over a group that
/// is made for it, so counters are to be read before.
[[nodiscard]] std::vector<RankValues> gather_values(const model::World& world, const RankValues& mine);
[[nodiscard]] std::vector<Problem> gather_problems(const model::World& world, const Problem& mine);

}  // namespace mgplan::runtime
