#pragma once
// What a search found: plain values, so that reports can read them without knowing the search.

#include <cstddef>
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
    std::string example;   ///< the message of the first of them in the order of enumeration
    std::size_t part = 0;  ///< of the space in which that one lies
};

struct CandidateCounts {
    std::int64_t legal = 0;
    std::map<std::string, Rejections, std::less<>> rejected;  ///< by Rule::reason

    [[nodiscard]] std::int64_t candidates() const;
    std::size_t part = 0;  ///< of the space, being enumerated; never shrinks

    /// Counts one more; `message` is asked for once per reason.
    template <class Message>
    void reject(std::string_view reason, Message message) {
        auto entry = rejected.find(reason);
        if (entry == rejected.end()) entry = rejected.emplace(std::string(reason), Rejections{0, message(), part}).first;
        ++entry->second.count;
    }
    /// Adds another thread's counts.
    void merge(const CandidateCounts& other);
};

struct RankedLayout {
    Layout layout;
    double iteration_seconds = 0;
    std::int64_t peak_bytes = 0;       ///< what has to fit (LayoutCost::peak_bytes)
    std::int64_t even_peak_bytes = 0;  ///< of the nearest misses: with even routing; 0 where that makes no difference
};

struct SearchResult {
    std::vector<RankedLayout> best;     ///< fitting layouts, best first
    std::vector<RankedLayout> nearest;  ///< layouts that do not fit, smallest peak first; time 0
    CandidateCounts counts;
    std::int64_t evaluated = 0;  ///< layouts whose memory and time were computed
    std::int64_t feasible = 0;
    std::int64_t too_large = 0;         ///< legal layouts that do not fit
    std::int64_t too_large_uneven = 0;  ///< of these, layouts that would fit if routing were even
    double seconds = 0;
    double evaluate_seconds = 0;  ///< wall time of the parallel part
    int threads = 1;
};

/// The reason of candidates for which a pinned pipeline layout holds no stages.
inline constexpr std::string_view kLayoutDoesNotSuit = "the pipeline layout does not suit";

/// The reason under which layouts that do not fit are counted beside the rules' reasons.
inline constexpr std::string_view kTooLarge = "does not fit in memory";
/// The same for those that would fit with even routing.
inline constexpr std::string_view kTooLargeUneven = "fits with even routing, not at p99 of the routing skew";

/// A change to a layout that makes it fit.
struct Remedy {
    std::string change;  ///< "full recompute", "pp 8 instead of 4", "128 GPUs instead of 64, pp 8 instead of 4"
    std::int64_t peak_bytes = 0;
    Layout layout;  ///< changed; its world is that of the remedy
    std::int64_t global_batch = 0;
};

}  // namespace mgplan::planner
