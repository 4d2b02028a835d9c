#pragma once
// Gathers the values of all ranks on rank 0.

#include <functional>
#include <string>
#include <vector>

#include "model/communicator/world.hpp"
#include "runtime/measurement/run_values.hpp"
#include "runtime/training_run/rank_run.hpp"

namespace mgplan::runtime {

/// Gathers every rank's text on rank 0, perhaps with blanks at the end; none elsewhere.
using GatherTexts = std::function<std::vector<std::string>(std::string mine)>;
/// Gathers over a new group of all ranks, so traffic counters must be read before. `world` must outlive it.
[[nodiscard]] GatherTexts gather_over(const model::World& world);

/// Called by every rank; the result is complete on rank 0 and empty elsewhere.
[[nodiscard]] std::vector<RankValues> gather_values(const GatherTexts& gather, const RankValues& mine);
[[nodiscard]] std::vector<Problem> gather_problems(const GatherTexts& gather, const Problem& mine);

}  // namespace mgplan::runtime
