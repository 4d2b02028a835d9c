#include "plan/layout/stage_ranks.hpp"

namespace mgplan {
namespace {

/// Distance in global ranks between neighbouring stages of one pipeline.
std::int64_t stage_stride(const ParallelSizes& sizes) {
    for (const GridAxis& axis : dense_grid(sizes)) {
        if (axis.axis == Axis::pp) return axis.stride;
    }
    return 1;
}

}  // namespace

std::int64_t first_rank_of_stage(const ParallelSizes& sizes, std::int64_t stage) {
    return stage * stage_stride(sizes);
}

std::int64_t stage_of_rank(const ParallelSizes& sizes, std::int64_t rank) {
    return rank / stage_stride(sizes) % sizes.pp;
}

}  // namespace mgplan
