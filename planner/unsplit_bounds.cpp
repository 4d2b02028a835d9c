#include "planner/unsplit_bounds.hpp"

#include <algorithm>

namespace mgplan::planner {

double UnsplitBounds::of(const Layout& layout, double enough) {
    if (!(layout.sizes == sizes_)) {
        sizes_ = layout.sizes;
        known_.clear();
    }
    const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
        return one.micro_batch == layout.micro_batch && one.sequence_parallel == layout.sequence_parallel &&
               one.cp_comm_type == layout.cp_comm_type;
    });
    if (found != known_.end()) return found->seconds;
    const double seconds = cost_.least_seconds_unsplit(layout, space_, enough);
    known_.push_back({layout.micro_batch, layout.sequence_parallel, layout.cp_comm_type, seconds});
    return seconds;
}

}  // namespace mgplan::planner
