#pragma once
// One iteration as a trace for Perfetto and chrome://tracing: Chrome's JSON trace format.

#include <cstddef>
#include <ostream>
#include <string>

#include "simulator/timeline/timeline_trace.hpp"

namespace mgplan::reports {

/// Maximum number of events of a trace: of longer iterations the first and last microbatches.
inline constexpr std::size_t kMostTraceEvents = std::size_t{1} << 18;

/// Process: pipeline rank; threads: compute, tp, cp, ep, dp, p2p. Times in microseconds.
void write_timeline_trace(std::ostream& out, const simulator::TimelineTrace& trace, const std::string& title);

}  // namespace mgplan::reports
