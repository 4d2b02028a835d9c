#pragma once
// The search: prices every legal layout with a cost model it is given and keeps the best.

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Prices layouts of one workload on one thread. Memory is asked first; time only where the layout fits.
struct LayoutCost {
    /// Exact where the even peak is at most `most`. Else both may be a lower bound that exceeds `most`, and `largest` be
    /// found without the terms that were not looked at.
    std::function<MemoryNeed(const Layout&, std::int64_t most)> memory;
    std::function<TimeEstimate(const Layout&)> iteration_seconds;
    /// What no layout of the space beats that differs from this one in recompute, CUDA graphs and switches alone: seconds, by either figure
    /// of iteration_seconds, or some that exceed `enough`; and bytes. A pricer without them is asked for every layout. Always asked with
    /// the same space.
    std::function<double(const Layout&, const SearchSpace& space, double enough)> least_seconds = {};
    std::function<std::int64_t(const Layout&, const SearchSpace& space)> least_bytes = {};
    /// The same seconds for layouts that differ in stage split and vpp too, or some that exceed `enough`.
    std::function<double(const Layout&, const SearchSpace& space, double enough)> least_seconds_unsplit = {};
    /// The same bytes for layouts that differ in overlaps and types alone: of the first stage with even routing; or, for more work
    /// (`everywhere`), those that decide, of the fullest and of layouts that differ in overlaps alone, or some that exceed `enough`.
    /// Layouts are priced without it.
    std::function<std::int64_t(const Layout&, const SearchSpace& space, bool everywhere, std::int64_t enough)> least_bytes_of_tail = {};
    /// Bytes that no layout needs less of which agrees with this one in switches too, found without a look at activations. Layouts are
    /// priced without it.
    std::function<std::int64_t(const Layout&)> least_bytes_switched = {};
    /// The same seconds for layouts that agree in switches too.
    std::function<double(const Layout&, const SearchSpace& space, double enough)> least_seconds_switched = {};
    /// Seconds that no layout beats which differs from this one in selective recompute, CUDA graphs and switches alone: what full recompute
    /// repeats counts. Layouts are priced without it.
    std::function<double(const Layout&, const SearchSpace& space)> least_seconds_repeated = {};
    /// MemoryNeed::bytes as a closer look at the layout finds them, with its allocator replayed, or nothing where they exceed `limit`. Of
    /// single layouts: it takes up to a tenth of a second. A cost model may have no closer look.
    std::function<std::optional<std::int64_t>(const Layout&, std::int64_t limit)> replayed_bytes = {};
    /// A pricer of the same workload for another thread, which shares with this one what both find out; none shares nothing.
    std::function<LayoutCost()> another = {};
};
/// Makes one pricer per thread for a workload, which outlives it.
using CostModelFactory = std::function<LayoutCost(const Workload&)>;

enum class Objective : std::uint8_t { throughput, memory };

struct SearchOptions {
    std::size_t keep = 10;            ///< best layouts to return
    std::size_t keep_nearest = 3;     ///< families of SearchResult::nearest
    std::size_t keep_contenders = 0;  ///< SearchResult::contenders
    Objective objective = Objective::throughput;
    int threads = 0;  ///< 0: all cores
    /// false: the time of layouts that do not fit is computed too (the brute force that tests and benchmarks compare with)
    bool prune = true;
    /// Layouts that a lower bound keeps out of `best` are not priced and count as SearchResult::bounded: with the objective of throughput,
    /// unless the fitting layouts are collected or counted (pareto, families, compared). What is cut off does not depend on threads.
    bool bounded = false;
    /// Without `bounded`: layouts that fit and whose time a lower bound keeps out of `best` are not asked for it, on the same conditions.
    /// They count as any other.
    bool times_bounded = false;
    /// With `bounded`, where nothing fits: layouts that a lower bound of bytes keeps out of SearchResult::nearest are not priced either.
    bool nearest_alone = false;
    double never_below = 0;  ///< of both: layouts that may take less are priced in any case, seconds
    /// For bounded: what may be of interest by a closer look, from the best of a small part of the space, as SearchResult::cut_at_least is
    /// to be told, seconds. Layouts that take less, or the same multiple of the fastest found later on, are priced in any case.
    std::function<double(const std::vector<RankedLayout>& best)> of_interest = {};
    /// For bounded: SearchResult::slowest_kept of an earlier search of the same space that kept as many.
    double slowest_known = std::numeric_limits<double>::infinity();
    bool pareto = false;                  ///< also collect SearchResult::pareto
    double pareto_within = 0;             ///< the same, for the layouts alone that are slower than the fastest by at most this share
    bool families = false;                ///< also collect SearchResult::families
    std::optional<Layout> compared = {};  ///< also count SearchResult::before_compared
    /// Called about once a second from the calling thread with the finished and total parts. What it throws ends the search.
    std::function<void(std::size_t done, std::size_t total)> progress;
};

/// Whether a comes before b: the objective first; ties by less memory (or time), then the simpler layout, then a fixed order.
[[nodiscard]] bool ranks_before(const RankedLayout& a, const RankedLayout& b, Objective objective);

[[nodiscard]] SearchResult search(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model,
                                  const SearchOptions& options);

/// Single changes that make `layout` fit, each tried and priced, its allocator replayed where the cost model does that, at most one of
/// each kind and that the smallest, in this order: gradients in bf16 (engine megatron), recompute of modules, of some layers, of all, a
/// smaller micro-batch, more pp, bf16 for what is quantised, optimizer on the host, more GPUs (with whatever they are used for).
[[nodiscard]] std::vector<Remedy> remedies(const Workload& workload, const Layout& layout, const CostModelFactory& cost_model);

}  // namespace mgplan::planner
