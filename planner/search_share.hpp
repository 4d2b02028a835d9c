#pragma once
// Results of one thread of a search, or of one part of its space.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "planner/family_set.hpp"
#include "planner/kept_layouts.hpp"
#include "planner/scaling.hpp"
#include "planner/search.hpp"
#include "planner/unsplit_bounds.hpp"

namespace mgplan::planner {

/// One thread's share of the result.
struct SearchShare {
    BestList<BeforeByObjective> best;
    NearestMisses nearest;
    ContenderList contenders;
    ParetoSet pareto;
    FamilySet families;
    CandidateCounts counts;
    std::int64_t evaluated = 0, feasible = 0, before_compared = 0, bounded = 0;
    std::int64_t farthest_known = std::numeric_limits<std::int64_t>::max();  ///< peak of the last of the nearest misses of other shares
    double cut_at_least = std::numeric_limits<double>::infinity(), never_below = 0;
    std::array<TooLarge, kFillingTerms> too_large;
    TooLarge too_large_uneven;

    explicit SearchShare(const SearchOptions& options)
        : best(options.keep, BeforeByObjective{options.objective}),
          nearest(options.keep_nearest),
          contenders(options.keep_contenders),
          never_below(options.never_below) {}

    /// Adds the results of another share.
    void absorb(SearchShare&& other);

    /// True if layouts that take at least `at_least` seconds cannot enter a list whose last takes `slowest`; counts them as bounded.
    bool cut(std::int64_t layouts, double at_least, double slowest);

    /// Seconds that a layout must not exceed: those of `slowest` and of this share's list.
    [[nodiscard]] double to_beat(double slowest) const { return std::max(never_below, std::min(slowest, best.slowest())); }

    /// Bytes that a layout must not exceed to be of interest: the limit, or, if nothing fits, those of the nearest misses found.
    [[nodiscard]] std::int64_t bytes_of_interest(std::int64_t limit, bool nearest_alone) const {
        return nearest_alone ? std::min(farthest_known, nearest.largest_peak()) : limit;
    }

    /// True if layouts that differ from `first` only in recompute, graphs and switches may enter; otherwise counts them as bounded. `most`:
    /// bytes_of_interest().
    bool enter(const Layout& first, std::int64_t layouts, const LayoutCost& cost, UnsplitBounds& unsplit, const SearchSpace& space,
               std::int64_t most, double slowest);

    /// price() for a layout that is evaluated only if it is fast enough.
    void price_bounded(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, double slowest,
                       const RankedLayout* compared);

    /// If nothing fits: counts a layout that is among the nearest misses and offers it to them; other layouts count as bounded.
    void price_miss(const Layout& layout, const LayoutCost& cost, std::int64_t limit);

    /// Counts the layout if it ranks before `compared`. Compares one figure first, which decides most cases without a copy.
    void hold_against(const RankedLayout& compared, const Layout& layout, double seconds, std::int64_t peak, Objective objective);

    /// Optional inputs of price().
    struct Beside {
        const TimeEstimate* time = nullptr;  ///< time of the same layout, if known
        const RankedLayout* compared = nullptr;
    };

    /// Counts a layout as fitting in `limit` bytes or not, and offers it to the lists.
    void price(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, const Beside& beside);
};

}  // namespace mgplan::planner
