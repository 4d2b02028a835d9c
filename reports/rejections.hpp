#pragma once
// Candidates of a search that were rejected, by rule.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reports/plan_report.hpp"

namespace mgplan::reports {

/// Candidates that break the same rule.
struct RejectedCandidates {
    std::string_view rule;    ///< the rule's name
    std::string_view reason;  ///< as text
    std::int64_t count = 0;
    std::string example;  ///< the message for one of them; if layouts do not fit, that of the one nearest to the limit
};

/// The rules of memory first, then the others by their names. Refers to the report.
[[nodiscard]] std::vector<RejectedCandidates> rejected_candidates(const PlanReport& report);

/// The largest memory term of most layouts of one kind that do not fit: "gradients", "fragmentation", "routing skew".
[[nodiscard]] std::string_view most_of(const TooLargeLayouts& kind);

}  // namespace mgplan::reports
