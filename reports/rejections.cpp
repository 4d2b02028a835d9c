#include "reports/rejections.hpp"

#include <fmt/core.h>

#include "reports/layout_report.hpp"

namespace mgplan::reports {
namespace {

std::string too_large_example(const PlanReport& report, std::string_view rule) {
    const TooLargeLayouts* nearest = nullptr;
    for (const auto& kind : report.too_large) {
        if (kind.rule() != rule) continue;
        if (nearest == nullptr || kind.memory.deciding_bytes() < nearest->memory.deciding_bytes()) nearest = &kind;
    }
    return nearest == nullptr ? "" : fmt::format("{}: {}", summary(nearest->nearest), missing_text(nearest->memory));
}

}  // namespace

std::vector<RejectedCandidates> rejected_candidates(const PlanReport& report) {
    std::vector<RejectedCandidates> found;
    for (const auto& [rule, count] : report.too_large_rules())
        found.push_back({rule, planner::reason_of(rule), count, too_large_example(report, rule)});
    for (const auto& [rule, rejected] : report.search.counts.rejected)
        found.push_back({rule, planner::reason_of(rule), rejected.count, rejected.example});
    return found;
}

std::string_view most_of(const TooLargeLayouts& kind) {
    return kind.replayed ? "fragmentation" : kind.term ? planner::to_string(*kind.term) : "routing skew";
}

}  // namespace mgplan::reports
