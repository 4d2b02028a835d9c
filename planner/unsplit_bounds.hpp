#pragma once
// A bound on the seconds of all stage splits and numbers of chunks at once, found out once for many branches of a search.

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

/// Lower bounds of seconds that hold for all layouts with equal sizes, micro-batch, sequence parallelism and exchange: found once, while a
/// search asks again for each split and its chunks.
class UnsplitBounds {
public:
    /// Both must outlive it.
    UnsplitBounds(const LayoutCost& cost, const SearchSpace& space) : cost_(cost), space_(space) {}

    /// Seconds that none of those like `layout` beats, or some that exceed `enough`, which must not grow.
    [[nodiscard]] double of(const Layout& layout, double enough);

private:
    struct Known {
        std::int64_t micro_batch;
        bool sequence_parallel;
        CpCommType cp_comm_type;
        double seconds;
    };

    const LayoutCost& cost_;
    const SearchSpace& space_;
    ParallelSizes sizes_;       ///< of the layout before
    std::vector<Known> known_;  ///< with these sizes
};

}  // namespace mgplan::planner
