#pragma once
// Which candidates of a search were turned away, and by which rule.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reports/plan_report.hpp"

namespace mgplan::reports {

/// Candidates that break the same rule.
struct RejectedCandidates {
    std::string_view rule;    ///< its name
    std::string_view reason;  ///< in words
    std::int64_t count = 0;
    std::string example;  ///< what one of them is told; of layouts that do not fit, the one that misses by the fewest bytes
};

/// The rules of memory first, then the others by their names. Refers to the report.
[[nodiscard]] std::vector<RejectedCandidates> rejected_candidates(const PlanReport& report);

/// What fills most of the layouts of one kind that do not fit: "gradients", "fragmentation", "routing skew".
[[nodiscard]] std::string_view most_of(const TooLargeLayouts& kind);

}  // namespace mgplan::reports
