#pragma once
// The rules of what a layout switches on beside its sizes: dispatchers, overlaps, types of gradients and moments.

#include <span>

#include "planner/constraints.hpp"

namespace mgplan::planner {

/// Those of Level::switches; first_broken() and rules() know them too.
[[nodiscard]] std::span<const Rule> switch_rules();

}  // namespace mgplan::planner
