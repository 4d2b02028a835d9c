#pragma once
// Results of a search: plain values, which reports can read without the search.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/training/offload.hpp"

namespace mgplan::planner {

/// Candidates rejected by one rule.
struct Rejections {
    std::int64_t count = 0;
    std::string example;   ///< the message for the first of them in the order of enumeration
    std::size_t part = 0;  ///< part of the space with that candidate
};

struct CandidateCounts {
    std::int64_t legal = 0;
    std::map<std::string, Rejections, std::less<>> rejected;  ///< by Rule::name

    [[nodiscard]] std::int64_t candidates() const;
    std::size_t part = 0;  ///< part of the space being enumerated

    /// Counts one rejection; calls `message` once per rule, and again for earlier parts.
    template <class Message>
    void reject(std::string_view rule, Message message) {
        reject(rule, 1, message);
    }
    /// Counts `count` rejections, with the message of the first.
    template <class Message>
    void reject(std::string_view rule, std::int64_t count, Message message) {
        auto entry = rejected.find(rule);
        if (entry == rejected.end()) entry = rejected.emplace(std::string(rule), Rejections{0, message(), part}).first;
        if (part < entry->second.part) {
            entry->second.example = message();
            entry->second.part = part;
        }
        entry->second.count += count;
    }
    /// Adds to a rule that already has its example.
    void add(std::string_view rule, std::int64_t count) { rejected.find(rule)->second.count += count; }
    /// Adds another thread's counts.
    void merge(const CandidateCounts& other);
};

struct RankedLayout {
    Layout layout;
    double iteration_seconds = 0;
    std::int64_t peak_bytes = 0;  ///< the bytes that must fit (MemoryNeed::bytes)
};

/// A family of fitting layouts (plan_families.hpp).
struct FamilyPoint {
    RankedLayout fastest;      ///< its fastest member
    std::int64_t members = 0;  ///< number found to fit; at most all that fit if bounds kept some from being evaluated
};

/// A cost model's fast estimate of a layout's time.
struct TimeEstimate {
    double seconds = 0;   ///< seconds of one iteration
    double at_least = 0;  ///< lower bound of the exact evaluation
    // Estimate without an exact evaluation: the bound is the estimate itself.
    TimeEstimate(double all = 0) : seconds(all), at_least(all) {}
    TimeEstimate(double estimated, double least) : seconds(estimated), at_least(least) {}
};

/// A layout that may be the fastest by exact evaluation.
struct Contender {
    Layout layout;
    double at_least = 0;  ///< TimeEstimate::at_least
    double iteration_seconds = 0;
    std::int64_t peak_bytes = 0;
};

/// Term of a rank's memory that a layout can change.
enum class FillingTerm : std::uint8_t { parameters, gradients, optimizer, activations, other, host };
inline constexpr std::size_t kFillingTerms = 6;
[[nodiscard]] std::string_view to_string(FillingTerm term);

/// Memory that a layout needs on its fullest rank.
struct MemoryNeed {
    std::int64_t bytes = 0;  ///< the bytes that must fit: of MoE models at p99 of the routing skew
    std::int64_t even = 0;   ///< with tokens spread evenly over experts: never more
    FillingTerm largest = FillingTerm::other;
    std::int64_t host_missing = 0;  ///< bytes by which a node's offloaded data exceeds its host memory
    // For a cost model with only a sum.
    MemoryNeed(std::int64_t sum = 0) : bytes(sum), even(sum) {}
};

/// Layouts that do not fit and have the same largest term on their fullest rank. If parameters, gradients and optimizer state alone exceed
/// the limit, it is the largest of these three: other terms were not computed.
struct TooLarge {
    std::int64_t count = 0;
    /// The one that exceeds the limit by the fewest bytes; time 0. If host memory is exceeded, its peak is the limit plus the missing host
    /// bytes.
    std::optional<RankedLayout> nearest;
};

struct SearchResult {
    std::vector<RankedLayout> best;  ///< fitting layouts, best first
    /// By time: seconds of the last of the requested number of layouts, as the search estimates them; infinite if there are fewer.
    double slowest_kept = std::numeric_limits<double>::infinity();
    /// The fitting layouts with the smallest lower bounds of their time, sorted by them; empty unless requested.
    std::vector<Contender> contenders;
    double others_at_least = 0;  ///< lower bound of the seconds of all fitting layouts not among the contenders; infinite if there are none
    std::size_t replayed = 0;    ///< number of leading elements of best with times from event simulation
    /// True if no fitting layout is faster than the first by exact evaluation: each of the others was simulated or has a bound that shows
    /// it. Set by rank_exactly() (exact_ranking.hpp); nothing if the ranking is not by time.
    std::optional<bool> fastest_is_proven;
    /// Seconds of the fastest layout that fits, also with its allocator replayed: the first of best. Nothing if nothing fits, or if the
    /// ranking is not by time.
    std::optional<double> fastest_seconds;
    /// Fitting layouts each of which is the fastest with its memory (scaling.hpp ParetoSet); empty unless requested.
    std::vector<RankedLayout> pareto;
    std::vector<FamilyPoint> families;  ///< families of the fitting layouts, fastest first by the search's estimate; empty unless requested
    std::int64_t before_compared = 0;   ///< number of fitting layouts that rank before SearchOptions::compared by the search's estimate
    std::vector<RankedLayout> nearest;  ///< the smallest layout of each family of nearest misses; time 0
    CandidateCounts counts;
    std::int64_t evaluated = 0;  ///< layouts with computed memory and time, or with a bound of the time that keeps them out of `best`
    std::int64_t feasible = 0;
    std::int64_t bounded = 0;  ///< number of legal layouts not evaluated, because a bound shows that they cannot enter `best`
    double cut_at_least = std::numeric_limits<double>::infinity();  ///< lower bound of the seconds of layouts that were only bounded
    std::int64_t too_large = 0;                                     ///< number of legal layouts that do not fit
    std::array<TooLarge, kFillingTerms> too_large_by_term;          ///< layouts that do not fit even with even routing, by FillingTerm
    TooLarge too_large_uneven;                                      ///< the others: they fit with even routing
    /// Layouts found to fit by the estimate, but not by a replay among the best; in none of the counts above.
    TooLarge too_large_replayed;
    std::int64_t limit_bytes = 0;  ///< the limit used: the workload's, minus a headroom
    /// True if nothing leaves the requested headroom (RankingOptions::headroom_bytes); the result then contains layouts that fit without
    /// it.
    bool headroom_missed = false;
    double seconds = 0;           ///< wall time; in the answer of `plan` that of the whole command up to the report
    double evaluate_seconds = 0;  ///< wall time of the parallel part
    int threads = 1;
};

/// Used in counts like a rule's name: a pinned pipeline layout has no stages for the candidate.
inline constexpr std::string_view kLayoutSuits = "pipeline_layout_suits";

/// Used in counts like a rule's name: layouts that do not fit, and those that would with even routing; counted in SearchResult::too_large.
inline constexpr std::string_view kFits = "fits_in_memory";
inline constexpr std::string_view kFitsAtP99 = "fits_in_memory_at_p99";
inline constexpr std::string_view kFitsInHost = "fits_in_host_memory";
/// Used in counts like a rule's name: SearchResult::too_large_replayed.
inline constexpr std::string_view kFitsReplayed = "fits_in_memory_when_replayed";

/// A rule's short reason, "tp does not divide the attention heads", by its name; also for the names above.
[[nodiscard]] std::string_view reason_of(std::string_view rule);

/// A change to a layout that makes it fit.
struct Remedy {
    std::string change;  ///< "full recompute", "pp 8 instead of 4", "128 GPUs instead of 64, pp 8 instead of 4"
    std::int64_t peak_bytes = 0;
    Layout layout;  ///< the changed layout, with the world after the change
    std::int64_t global_batch = 0;
    OffloadSpec offload = {};  ///< offloading of the changed training
};

}  // namespace mgplan::planner
