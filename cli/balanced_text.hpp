#pragma once
// Text about the gain of balancing the stages of a layout.

#include <string>

#include "planner/balanced_layout.hpp"

namespace mgplan::cli {

/// One line: what it gained, or why there is nothing to gain.
[[nodiscard]] std::string balanced_text(const planner::BalancedLayout& balanced);

}  // namespace mgplan::cli
