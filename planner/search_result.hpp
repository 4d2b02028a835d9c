#pragma once
// What a search found: plain values, so that reports can read them without knowing the search.

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

/// Why candidates were turned away.
struct Rejections {
    std::int64_t count = 0;
    std::string example;   ///< the message of the first of them in the order of enumeration
    std::size_t part = 0;  ///< of the space in which that one lies
};

struct CandidateCounts {
    std::int64_t legal = 0;
    std::map<std::string, Rejections, std::less<>> rejected;  ///< by Rule::name

    [[nodiscard]] std::int64_t candidates() const;
    std::size_t part = 0;  ///< of the space, being enumerated

    /// Counts one more; `message` is asked for once per rule, and again in parts that come before.
    template <class Message>
    void reject(std::string_view rule, Message message) {
        reject(rule, 1, message);
    }
    /// The same of `count`, with the message of the first.
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
    /// More of a rule that has its example.
    void add(std::string_view rule, std::int64_t count) { rejected.find(rule)->second.count += count; }
    /// Adds another thread's counts.
    void merge(const CandidateCounts& other);
};

struct RankedLayout {
    Layout layout;
    double iteration_seconds = 0;
    std::int64_t peak_bytes = 0;  ///< what has to fit (MemoryNeed::bytes)
};

/// A family of fitting layouts (plan_families.hpp).
struct FamilyPoint {
    RankedLayout fastest;      ///< its fastest member
    std::int64_t members = 0;  ///< that fit
};

/// What a cost model knows at once of a layout's time.
struct TimeEstimate {
    double seconds = 0;   ///< of one iteration
    double at_least = 0;  ///< a closer look at the layout never finds less
    // A cost model may have no closer look.
    TimeEstimate(double all = 0) : seconds(all), at_least(all) {}
    TimeEstimate(double estimated, double least) : seconds(estimated), at_least(least) {}
};

/// A layout that a closer look may find fastest.
struct Contender {
    Layout layout;
    double at_least = 0;  ///< TimeEstimate::at_least
    double iteration_seconds = 0;
    std::int64_t peak_bytes = 0;
};

/// What fills a rank, as far as a layout can change it.
enum class FillingTerm : std::uint8_t { parameters, gradients, optimizer, activations, other, host };
inline constexpr std::size_t kFillingTerms = 6;
[[nodiscard]] std::string_view to_string(FillingTerm term);

/// What a layout asks of its fullest rank.
struct MemoryNeed {
    std::int64_t bytes = 0;  ///< what has to fit: of mixtures of experts at p99 of the routing skew
    std::int64_t even = 0;   ///< where tokens are spread evenly over experts: never more
    FillingTerm largest = FillingTerm::other;
    std::int64_t host_missing = 0;  ///< bytes that a node's memory lacks for what waits there
    // A cost model may know no more than a sum.
    MemoryNeed(std::int64_t sum = 0) : bytes(sum), even(sum) {}
};

/// Layouts that do not fit and have the same largest term on their fullest rank. Where parameters, gradients and optimizer
/// state alone exceed the limit, that is the largest of these three: nothing else was looked at.
struct TooLarge {
    std::int64_t count = 0;
    /// The one that misses by the fewest bytes; time 0. Where it is the host's memory that it misses, its peak is the limit and those
    /// bytes.
    std::optional<RankedLayout> nearest;
};

struct SearchResult {
    std::vector<RankedLayout> best;  ///< fitting layouts, best first
    /// By time: of as many of them as were asked for the last one's seconds, as the search has them; infinite where there are fewer.
    double slowest_kept = std::numeric_limits<double>::infinity();
    /// The fitting layouts of which the least is known of how long they take at least, by that; empty unless asked for.
    std::vector<Contender> contenders;
    double others_at_least = 0;  ///< no fitting layout that is not among the contenders takes less; infinite where there is none
    std::size_t replayed = 0;    ///< of best, the first: their times are of a closer look
    /// No fitting layout is faster than the first by a closer look: each of the others had one or has a bound that says so. Set by
    /// rank_exactly() (exact_ranking.hpp); nothing where the ranking is not by time.
    std::optional<bool> fastest_is_proven;
    /// Seconds of the fastest that fits, its allocator replayed too: the first of best may be slower by up to kNearlyAsFast
    /// (free_memory_first.hpp). Nothing where nothing fits, and where the ranking is not by time.
    std::optional<double> fastest_seconds;
    /// The fastest of the fitting layouts in the memory that each needs (scaling.hpp ParetoSet); empty unless asked for.
    std::vector<RankedLayout> pareto;
    std::vector<FamilyPoint> families;  ///< of the fitting layouts, fastest first, as the search prices them; empty unless asked for
    std::int64_t before_compared = 0;   ///< fitting layouts that rank before SearchOptions::compared, as the search prices both
    std::vector<RankedLayout> nearest;  ///< the smallest layout of each family that misses by least; time 0
    CandidateCounts counts;
    std::int64_t evaluated = 0;  ///< layouts whose memory and time were computed, or a bound of the time that keeps them out of `best`
    std::int64_t feasible = 0;
    std::int64_t bounded = 0;  ///< legal layouts that a bound cut off: not looked at, since they cannot come into `best`
    double cut_at_least = std::numeric_limits<double>::infinity();  ///< no layout whose time was only bounded takes less
    std::int64_t too_large = 0;                                     ///< legal layouts that do not fit
    std::array<TooLarge, kFillingTerms> too_large_by_term;  ///< of these, by FillingTerm, those that do not with even routing either
    TooLarge too_large_uneven;                              ///< the others: they would fit if routing were even
    /// Found to fit, but not by a closer look that was taken at the best of them; in none of the counts above.
    TooLarge too_large_replayed;
    std::int64_t limit_bytes = 0;  ///< what had to fit: the workload's limit, less a headroom
    /// Nothing leaves the headroom that was asked for (RankingOptions::headroom_bytes), but something fits without it: that is here.
    bool headroom_missed = false;
    double seconds = 0;
    double evaluate_seconds = 0;  ///< wall time of the parallel part
    int threads = 1;
};

/// Stands for a rule in counts: a pinned pipeline layout that holds no stages for the candidate.
inline constexpr std::string_view kLayoutSuits = "pipeline_layout_suits";

/// The same for layouts that do not fit, and for those that would with even routing; counted in SearchResult::too_large.
inline constexpr std::string_view kFits = "fits_in_memory";
inline constexpr std::string_view kFitsAtP99 = "fits_in_memory_at_p99";
inline constexpr std::string_view kFitsInHost = "fits_in_host_memory";
/// The same for SearchResult::too_large_replayed.
inline constexpr std::string_view kFitsReplayed = "fits_in_memory_when_replayed";

/// A rule's short reason, "tp does not divide the attention heads", by its name; of the four above too.
[[nodiscard]] std::string_view reason_of(std::string_view rule);

/// A change to a layout that makes it fit.
struct Remedy {
    std::string change;  ///< "full recompute", "pp 8 instead of 4", "128 GPUs instead of 64, pp 8 instead of 4"
    std::int64_t peak_bytes = 0;
    Layout layout;  ///< changed; its world is that of the remedy
    std::int64_t global_batch = 0;
    OffloadSpec offload = {};  ///< of its training
};

}  // namespace mgplan::planner
