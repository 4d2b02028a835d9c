#pragma once
// Text about the gain of balancing the stages of a layout.

#include <string>

#include "planner/balanced_layout.hpp"

namespace mgplan::cli {

/// One line with the gain, or the reason why there is none.
[[nodiscard]] std::string balanced_text(const planner::BalancedLayout& balanced);

}  // namespace mgplan::cli
