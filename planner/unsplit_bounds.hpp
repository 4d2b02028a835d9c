#pragma once
// Cached lower bounds of the time over all stage splits and numbers of chunks, for many branches of a search.

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

/// Lower bounds of seconds over all layouts with equal sizes, micro-batch, sequence parallelism and cp_comm_type, each computed once,
/// although a search requests it for each split.
class UnsplitBounds {
public:
    /// Both arguments must outlive it.
    UnsplitBounds(const LayoutCost& cost, const SearchSpace& space) : cost_(cost), space_(space) {}

    /// Lower bound of seconds over all layouts like `layout`, or any bound that exceeds `enough`, which must not grow.
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
    ParallelSizes sizes_;       ///< sizes of the previous layout
    std::vector<Known> known_;  ///< with these sizes
};

}  // namespace mgplan::planner
