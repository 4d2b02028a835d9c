#pragma once
// A rank's memory over one iteration as part of a page: stacked areas by category, and a table of all stages.

#include <optional>
#include <string>
#include <vector>

#include "reports/memory_timeline.hpp"

namespace mgplan::reports {

struct MemoryPage {
    std::vector<StageMemory> stages;
    std::int64_t limit_bytes = 0;
    std::string why_no_curve;  ///< shown instead of the picture if there is none
};

/// Inline SVG and script; complete without the script, which shows the op and its bytes under the pointer. Long schedules are drawn as the
/// fullest of adjacent ops, so that the result stays below 2 MB.
[[nodiscard]] std::string memory_section(const MemoryPage& page, const std::optional<MemoryCurve>& curve);

}  // namespace mgplan::reports
