#pragma once
// A rank's memory over one iteration as a page of its own: stacked areas by category, and a table of all stages.

#include <optional>
#include <string>
#include <vector>

#include "reports/memory_timeline.hpp"

namespace mgplan::reports {

struct MemoryPage {
    std::string title;                 ///< one line: model, GPUs, batch
    std::vector<std::string> details;  ///< further lines: layout, what was assumed
    std::vector<StageMemory> stages;
    std::int64_t limit_bytes = 0;
    std::string why_no_curve;  ///< in place of the picture where there is none
};

/// HTML with inline style, SVG and script, nothing loaded from elsewhere; follows the reader's light or dark setting and is
/// complete without the script, which shows the op and its bytes under the pointer. Long schedules are drawn as the
/// fullest of neighbouring ops, so that the page stays below 2 MB.
[[nodiscard]] std::string memory_page(const MemoryPage& page, const std::optional<MemoryCurve>& curve);

}  // namespace mgplan::reports
