#pragma once
// A rank's memory over one iteration as a small drawing in text.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/stage_memory.hpp"

namespace mgplan::reports {

/// What is drawn: one stage's first rank. Refers to values of the caller.
struct MemoryCurve {
    const StageMemory& stage;
    const simulator::StageTimeline& timeline;
    std::int64_t limit_bytes = 0;
    /// Bytes that no tensor of the timeline is: context, CUDA graphs, fragmentation; the same all the time.
    [[nodiscard]] std::int64_t outside() const { return stage.memory.peak_bytes() - timeline.memory.use.peak; }
    /// The top of an axis from 0: the peak, and the limit where that leaves the curve at least half of the height.
    [[nodiscard]] std::int64_t top() const;
};

/// One place of a drawing: the fullest of some neighbouring ops.
struct CurveStep {
    const simulator::TimelineOp* op = nullptr;
    /// Its place in the step: 0 the begin, then the ops of the schedule, at last the end.
    std::int64_t place = 0;
    std::int64_t first = 0;  ///< place of the first of its neighbours
};

/// The steps of a drawing. Warm-up and cool-down of a long schedule are few ops of many, and all that changes: they get room of
/// their own, so the scale of ops is another one from each of the `cuts` on.
struct CurveSteps {
    std::vector<CurveStep> steps;
    std::vector<std::size_t> cuts;  ///< indices of steps
    bool every_op = true;           ///< else each step is the fullest of some neighbours
};

/// Begin, ops and end of the step in order, as at most `most` (>= 8) of them; the peak is always one.
[[nodiscard]] CurveSteps fullest_steps(const simulator::StageTimeline& timeline, std::size_t most);

/// The fullest of them, the first of equals.
[[nodiscard]] std::size_t fullest_of(const CurveSteps& steps);

/// "forward of chunk 0, microbatch 3", "begin of the step", "end of the step".
[[nodiscard]] std::string step_text(const simulator::StageTimeline& timeline, const CurveStep& step);

struct TextDrawing {
    std::size_t columns = 62;  ///< of the curve; the scale at its left takes 18 more
    std::size_t rows = 12;
    bool unicode = true;  ///< else ASCII alone
};

/// Title, the curve in two shades (what is held all the time below, what comes and goes above), the limit as a line, a mark
/// under the peak and its op. No colours, so that it is the same in a file.
[[nodiscard]] std::string memory_timeline_text(const MemoryCurve& curve, const TextDrawing& drawing);

}  // namespace mgplan::reports
