#pragma once
// One iteration as a trace that Perfetto and chrome://tracing open: Chrome's JSON trace format.

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "simulator/cost_model.hpp"
#include "simulator/memory/timeline.hpp"

namespace mgplan::reports {

/// A trace holds no more: of longer iterations the first and last microbatches.
inline constexpr std::size_t kMostTraceEvents = std::size_t{1} << 18;

struct TimelineTrace {
    const simulator::LayoutTimeline& timeline;
    std::string title;
    /// By pipeline rank, with ops: exact memory of the same schedule; empty or nothing: no counter.
    const std::vector<std::optional<simulator::StageTimeline>>& memory;
    double transfer_seconds = 0;  ///< of one message between ranks
};

/// Process: pipeline rank; threads: compute, tp, cp, ep, dp, p2p. Times in microseconds. What tp, cp and ep show is the part of
/// their communication inside a pass that no computation hides, drawn at the pass's end.
void write_timeline_trace(std::ostream& out, const TimelineTrace& trace);

}  // namespace mgplan::reports
