#pragma once
// What one thread of a search, or one part of its space, has found.

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
    double cut_at_least = std::numeric_limits<double>::infinity(), never_below = 0, near = 1;
    std::array<TooLarge, kFillingTerms> too_large;
    TooLarge too_large_uneven;

    explicit SearchShare(const SearchOptions& options)
        : best(options.keep, BeforeByObjective{options.objective}),
          nearest(options.keep_nearest),
          contenders(options.keep_contenders),
          never_below(options.never_below),
          near(1 + options.pareto_within) {}

    /// Adds what another share found.
    void absorb(SearchShare&& other);

    /// Whether layouts that take `at_least` seconds cannot come in, where `slowest` may: these are counted.
    bool cut(std::int64_t layouts, double at_least, double slowest);

    /// What a layout has to beat: `slowest`, and what this share has; or it may be nearly as fast and come into the Pareto set.
    [[nodiscard]] double to_beat(double slowest) const { return std::max(never_below, near * std::min(slowest, best.slowest())); }

    /// Bytes that a layout must not exceed to be of interest: those of the limit, or, where nothing fits, of the nearest misses found.
    [[nodiscard]] std::int64_t bytes_of_interest(std::int64_t limit, bool nearest_alone) const {
        return nearest_alone ? std::min(farthest_known, nearest.largest_peak()) : limit;
    }

    /// Whether layouts that differ from `first` in what comes last alone may come in; those that may not are counted.
    /// `most`: bytes_of_interest().
    bool enter(const Layout& first, std::int64_t layouts, const LayoutCost& cost, UnsplitBounds& unsplit, const SearchSpace& space,
               std::int64_t most, double slowest);

    /// Whether a layout takes so long, by the bound of all splits, that its time is of no interest. Times are cheap beside a search that
    /// runs again, and closer looks find some longer than bounds: what is far from the slowest alone is left out.
    bool takes_too_long(const Layout& layout, UnsplitBounds& unsplit);

    /// price() of a layout that is only looked at where it is fast enough.
    void price_bounded(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, double slowest);

    /// Where nothing fits: counts a layout that is among the nearest misses, and offers it to them; the others count as bounded.
    void price_miss(const Layout& layout, const LayoutCost& cost, std::int64_t limit);

    /// Most layouts are told apart by one figure, without a copy.
    void hold_against(const RankedLayout& compared, const Layout& layout, double seconds, std::int64_t peak, Objective objective);

    /// What helps to price layouts; each may be missing.
    struct Beside {
        const TimeEstimate* time = nullptr;  ///< the layout's own
        UnsplitBounds* unsplit = nullptr;
        const RankedLayout* compared = nullptr;
    };

    /// Counts a layout by whether it fits in `limit` bytes, and offers it to the lists.
    void price(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options, const Beside& beside);
};

}  // namespace mgplan::planner
