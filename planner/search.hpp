#pragma once
// The search: evaluates every legal layout with a given cost model and keeps the best.

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

/// Cost functions for layouts of one workload on one thread. A search calls `memory` first, and time functions only if the layout fits.
struct LayoutCost {
    /// Exact if the even peak is at most `most`. Otherwise both peaks may be a lower bound that exceeds `most`, and `largest` may ignore
    /// terms that were not computed.
    std::function<MemoryNeed(const Layout&, std::int64_t most)> memory;
    std::function<TimeEstimate(const Layout&)> iteration_seconds;
    /// Lower bounds over all layouts of the space that differ from this one only in recompute, CUDA graphs and switches: of seconds, by
    /// either figure of iteration_seconds, or any bound that exceeds `enough`; and of bytes. If they are not set, every layout is
    /// evaluated. All calls pass the same space.
    std::function<double(const Layout&, const SearchSpace& space, double enough)> least_seconds = {};
    std::function<std::int64_t(const Layout&, const SearchSpace& space)> least_bytes = {};
    /// Lower bound like least_seconds, for layouts that also differ in stage split and vpp, or any bound that exceeds `enough`.
    std::function<double(const Layout&, const SearchSpace& space, double enough)> least_seconds_unsplit = {};
    /// Lower bound of bytes over layouts that differ only in overlaps and dtypes: of the first stage with even routing. `everywhere`
    /// (slower): of the deciding bytes of the fullest stage, for layouts that differ only in overlaps, or any bound that exceeds `enough`.
    /// Optional.
    std::function<std::int64_t(const Layout&, const SearchSpace& space, bool everywhere, std::int64_t enough)> least_bytes_of_tail = {};
    /// Lower bound of bytes over layouts that also agree in switches, computed without activations. Optional.
    std::function<std::int64_t(const Layout&)> least_bytes_switched = {};
    /// Lower bound like least_seconds, for layouts that also agree in switches.
    std::function<double(const Layout&, const SearchSpace& space, double enough)> least_seconds_switched = {};
    /// Lower bound of seconds over layouts that differ only in selective recompute, CUDA graphs and switches; includes the time of full
    /// recompute. Optional.
    std::function<double(const Layout&, const SearchSpace& space)> least_seconds_repeated = {};
    /// MemoryNeed::bytes with the layout's allocator replayed, or nothing if they exceed `limit`. For single layouts: takes up to a tenth
    /// of a second. Optional.
    std::function<std::optional<std::int64_t>(const Layout&, std::int64_t limit)> replayed_bytes = {};
    /// Cost functions of the same workload for another thread, which share cached results with these; optional.
    std::function<LayoutCost()> another = {};
    /// The same for a workload that differs only in the sharding of its state; optional.
    std::function<LayoutCost(const Workload&)> resharded = {};
};
/// Creates the cost functions of one thread for a workload, which must outlive them.
using CostModelFactory = std::function<LayoutCost(const Workload&)>;

enum class Objective : std::uint8_t { throughput, memory };

struct SearchOptions {
    std::size_t keep = 10;            ///< number of best layouts to return
    std::size_t keep_nearest = 3;     ///< number of families in SearchResult::nearest
    std::size_t keep_contenders = 0;  ///< size of SearchResult::contenders
    Objective objective = Objective::throughput;
    int threads = 0;  ///< 0: allowed_processors()
    /// false: also computes the time of layouts that do not fit (the brute-force reference of tests and benchmarks)
    bool prune = true;
    /// Layouts that a lower bound keeps out of `best` are not evaluated and count as SearchResult::bounded: only with the objective of
    /// throughput. `pareto`, `families` and `compared` then see the evaluated layouts only. The result does not depend on threads.
    bool bounded = false;
    /// With `bounded`, if nothing fits: layouts that a lower bound of bytes keeps out of SearchResult::nearest are not evaluated either.
    bool nearest_alone = false;
    double never_below = 0;  ///< seconds; for `bounded`: layouts that may take less are always evaluated
    /// For bounded: returns seconds, comparable to SearchResult::cut_at_least, below which layouts may matter in the exact ranking, given
    /// the best of a small part of the space. Layouts that take less, or the same multiple of the fastest found later, are always
    /// evaluated.
    std::function<double(const std::vector<RankedLayout>& best)> of_interest = {};
    /// For bounded: SearchResult::slowest_kept of an earlier search of the same space that kept the same number.
    double slowest_known = std::numeric_limits<double>::infinity();
    bool pareto = false;                  ///< also collects SearchResult::pareto
    bool families = false;                ///< also collects SearchResult::families
    std::optional<Layout> compared = {};  ///< also counts SearchResult::before_compared
    /// Called about once a second from the calling thread with the finished and total parts. An exception from it ends the search.
    std::function<void(std::size_t done, std::size_t total)> progress;
};

/// True if a comes before b: by the objective; ties by less memory (or time), then the simpler layout, then a fixed order.
[[nodiscard]] bool ranks_before(const RankedLayout& a, const RankedLayout& b, Objective objective);

[[nodiscard]] SearchResult search(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model,
                                  const SearchOptions& options);

/// Single changes that make `layout` fit, each evaluated, with the allocator replayed if the cost model supports it; of each kind at most
/// the smallest, in this order: gradients in bf16 (engine megatron), recompute of modules, of some layers, of all, a smaller micro-batch,
/// more pp, bf16 instead of quantisation, optimizer on the host, more GPUs (with any parallel axis).
[[nodiscard]] std::vector<Remedy> remedies(const Workload& workload, const Layout& layout, const CostModelFactory& cost_model);

}  // namespace mgplan::planner
