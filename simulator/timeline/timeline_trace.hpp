#pragma once
// Data to draw one iteration: time slices on the streams of its pipeline ranks. Plain values.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mgplan::simulator {

/// Concurrent activities of a pipeline rank. tp, cp and ep hold only the exposed part of their communication inside a pass.
enum class Stream : std::uint8_t { compute, tp, cp, ep, dp, p2p };

struct TraceSlice {
    std::uint16_t rank = 0;  ///< pipeline rank
    Stream stream = Stream::compute;
    double begin = 0, end = 0;  ///< seconds from the iteration's begin; end > begin
    std::string name;           ///< letters, digits, blanks and hyphens: "F3 chunk 1"
};

/// Bytes live on a rank at a point in time.
struct TraceMemory {
    std::uint16_t rank = 0;
    double at = 0;
    std::int64_t bytes = 0;
};

struct TimelineTrace {
    int ranks = 1;
    std::vector<TraceSlice> slices;
    std::vector<TraceMemory> memory;
    /// Microbatches in the middle that are not drawn, [begin, end); equal: none.
    std::int64_t left_out_begin = 0, left_out_end = 0;
};

}  // namespace mgplan::simulator
