#pragma once
// Brings the values of all ranks to rank 0.

#include <vector>

#include "model/communicator/world.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::runtime {

/// Called by every rank; the result is complete on rank 0 and empty elsewhere. Its own messages are sent over a group that
/// is made for it, so counters are to be read before.
[[nodiscard]] std::vector<RankValues> gather_values(const model::World& world, const RankValues& mine);

}  // namespace mgplan::runtime
