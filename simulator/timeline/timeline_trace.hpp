#pragma once
// One iteration as slices of time on the streams of its pipeline ranks, for whoever draws it: plain values.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mgplan::simulator {

/// What a pipeline rank does side by side. tp, cp and ep hold the part of their communication inside a pass that no computation
/// hides.
enum class Stream : std::uint8_t { compute, tp, cp, ep, dp, p2p };

struct TraceSlice {
    std::uint16_t rank = 0;  ///< of the pipeline
    Stream stream = Stream::compute;
    double begin = 0, end = 0;  ///< seconds from the iteration's begin; end > begin
    std::string name;           ///< letters, digits, blanks and hyphens: "F3 chunk 1"
};

/// Bytes live on a rank at an instant.
struct TraceMemory {
    std::uint16_t rank = 0;
    double at = 0;
    std::int64_t bytes = 0;
};

struct TimelineTrace {
    int ranks = 1;
    std::vector<TraceSlice> slices;
    std::vector<TraceMemory> memory;
    /// Microbatches in the middle that are left out, [begin, end); equal: none.
    std::int64_t left_out_begin = 0, left_out_end = 0;
};

}  // namespace mgplan::simulator
