#include "cli/balanced_text.hpp"

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::cli {

std::string balanced_text(const planner::BalancedLayout& balanced) {
    if (!balanced.why_not.empty()) return fmt::format("\nbalanced stages: the split stays, {}\n", balanced.why_not);
    return fmt::format("\nbalanced stages: --pipeline-layout '{}', {} instead of {}, {:+.2f} %{}\n",
                       *balanced.layout.split->request().pipeline_layout, human_seconds(balanced.seconds),
                       human_seconds(balanced.seconds_before), -100 * (1 - balanced.seconds / balanced.seconds_before),
                       balanced.fitted_before ? "" : "; the split before does not fit in memory");
}

}  // namespace mgplan::cli
