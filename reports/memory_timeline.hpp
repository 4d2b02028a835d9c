#pragma once
// A rank's memory over one iteration as a small text drawing.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/stage_memory.hpp"

namespace mgplan::reports {

/// Data to draw: one stage's first rank. Refers to values of the caller.
struct MemoryCurve {
    const StageMemory& stage;
    const simulator::StageTimeline& timeline;
    std::int64_t limit_bytes = 0;
    /// Bytes outside all tensors of the timeline: context, CUDA graphs, fragmentation; constant over time.
    [[nodiscard]] std::int64_t outside() const { return stage.memory.peak_bytes() - timeline.memory.use.peak; }
    /// The upper end of an axis from 0: the peak, or the limit if the curve then still fills half of the height.
    [[nodiscard]] std::int64_t top() const;
};

/// One position of a drawing: the fullest of some adjacent ops.
struct CurveStep {
    const simulator::TimelineOp* op = nullptr;
    /// Position in the step: 0 the begin, then the ops of the schedule, finally the end.
    std::int64_t place = 0;
    std::int64_t first = 0;  ///< position of the first of these ops
};

/// The steps of a drawing. Warm-up and cool-down of a long schedule are a small part of its ops but contain all changes: they are drawn at
/// a larger scale, so the scale of ops changes at each of the `cuts`.
struct CurveSteps {
    std::vector<CurveStep> steps;
    std::vector<std::size_t> cuts;  ///< indices of steps
    bool every_op = true;           ///< false: each step is the fullest of adjacent ops
};

/// Begin, ops and end of the step in order, in at most `most` (>= 8) positions; the peak is always one of them.
[[nodiscard]] CurveSteps fullest_steps(const simulator::StageTimeline& timeline, std::size_t most);

/// The fullest of the steps, the first of equal ones.
[[nodiscard]] std::size_t fullest_of(const CurveSteps& steps);

/// "forward of chunk 0, microbatch 3", "begin of the step", "end of the step".
[[nodiscard]] std::string step_text(const simulator::StageTimeline& timeline, const CurveStep& step);

struct TextDrawing {
    std::size_t columns = 62;  ///< width of the curve; the scale at its left takes 18 more
    std::size_t rows = 12;
    bool unicode = true;  ///< false: only ASCII
};

/// Title, the curve in two shades (constant memory below, varying memory above), the limit as a line, a mark under the peak and its op. No
/// colours, so that it is the same in a file.
[[nodiscard]] std::string memory_timeline_text(const MemoryCurve& curve, const TextDrawing& drawing);

}  // namespace mgplan::reports
