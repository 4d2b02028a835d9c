#pragma once
// The search: prices every legal layout with a cost model it is given and keeps the best.

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/layout.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"

namespace mgplan::planner {

/// Prices layouts of one workload on one thread. Memory is asked first; time only where the layout fits.
struct LayoutCost {
    std::function<std::int64_t(const Layout&)> peak_bytes;
    std::function<double(const Layout&)> iteration_seconds;
};
/// Makes one pricer per thread for a workload, which outlives it.
using CostModelFactory = std::function<LayoutCost(const Workload&)>;

enum class Objective : std::uint8_t { throughput, memory };

struct SearchOptions {
    std::size_t keep = 10;  ///< best layouts to return
    std::size_t keep_nearest = 3;
    Objective objective = Objective::throughput;
    int threads = 0;  ///< 0: all cores
    /// false: the time of layouts that do not fit is computed too (the brute force that tests and benchmarks compare with)
    bool prune = true;
    /// Called about once a second from the calling thread with the finished and total parts.
    std::function<void(std::size_t done, std::size_t total)> progress;
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

/// Whether a comes before b: the objective first; ties by less memory (or time), then the simpler layout, then a fixed order.
[[nodiscard]] bool ranks_before(const RankedLayout& a, const RankedLayout& b, Objective objective);

[[nodiscard]] SearchResult search(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model,
                                  const SearchOptions& options);

/// One change to a layout that would make it fit.
struct Remedy {
    std::string change;  ///< "recompute full", "pp 8 instead of 4", "128 GPUs instead of 64"
    std::int64_t peak_bytes = 0;
};

/// Single changes that would make `layout` fit, each tried and priced: more recompute, a smaller micro-batch, more pp, more GPUs.
[[nodiscard]] std::vector<Remedy> remedies(const Workload& workload, const Layout& layout, const CostModelFactory& cost_model);

}  // namespace mgplan::planner
