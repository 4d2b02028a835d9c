#pragma once
// Reasons why a table shows a plan besides its time.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/workload.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// simplest: the fewest parallel axes and features among plans at most 3 % slower than the fastest. experts_in_nvlink_domain: expert
/// groups of several ranks that stay inside an NVLink domain.
enum class PlanReason : std::uint8_t { fastest, most_free_memory, simplest, no_pipeline, experts_in_nvlink_domain };

/// "fastest", "most-free-memory", "simplest", "no-pipeline", "experts-in-nvlink-domain".
[[nodiscard]] std::string_view to_string(PlanReason reason);

/// The reasons of each plan of a list, by index. `plans`: fastest first. Each reason belongs to the first plan for which it is true; a
/// reason that is true for none belongs to none.
[[nodiscard]] std::vector<std::vector<PlanReason>> reasons_of(std::span<const RankedLayout> plans, const Workload& workload);

/// Indices of the plans that a table shows: those with a reason, and those that need less memory than every faster one.
[[nodiscard]] std::vector<std::size_t> shown_plans(std::span<const RankedLayout> plans, const Workload& workload);

}  // namespace mgplan::planner
