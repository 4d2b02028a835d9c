#pragma once
// What a search found: plain values, so that reports can read them without knowing the search.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout.hpp"

namespace mgplan::planner {

/// Why candidates were turned away.
struct Rejections {
    std::int64_t count = 0;
    std::string example;  ///< the message of one of them
};

struct CandidateCounts {
    std::int64_t legal = 0;
    std::map<std::string, Rejections, std::less<>> rejected;  ///< by Rule::reason

    [[nodiscard]] std::int64_t candidates() const;
    void merge(const CandidateCounts& other);
};

struct RankedLayout {
    Layout layout;
    double iteration_seconds = 0;
    std::int64_t peak_bytes = 0;
};

struct SearchResult {
    std::vector<RankedLayout> best;     ///< fitting layouts, best first
    std::vector<RankedLayout> nearest;  ///< layouts that do not fit, smallest peak first; time 0
    CandidateCounts counts;
    std::int64_t evaluated = 0;  ///< layouts whose memory and time were computed
    std::int64_t feasible = 0;
    std::int64_t too_large = 0;  ///< legal layouts that do not fit
    double seconds = 0;
    double evaluate_seconds = 0;  ///< wall time of the parallel part
    int threads = 1;
};

/// The reason under which layouts that do not fit are counted beside the rules' reasons.
inline constexpr std::string_view kTooLarge = "does not fit in memory";

/// One change to a layout that would make it fit.
struct Remedy {
    std::string change;  ///< "recompute full", "pp 8 instead of 4", "128 GPUs instead of 64"
    std::int64_t peak_bytes = 0;
};

}  // namespace mgplan::planner
