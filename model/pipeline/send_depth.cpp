#include "model/pipeline/send_depth.hpp"

#include <algorithm>

namespace mgplan::model {

SendDepth send_depth(int pp, int vpp, std::int64_t group_size, int pp_rank) {
    SendDepth depth;
    if (vpp == 1) return depth;
    const std::int64_t around = std::max<std::int64_t>(1, group_size - pp + 1);
    if (pp_rank == pp - 1) depth.forward = around;
    if (pp_rank == 0) depth.backward = around;
    return depth;
}

}  // namespace mgplan::model
