#include "simulator/price/layout_paths.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <vector>

namespace mgplan::simulator {
namespace {

/// The dp axis of a grid divided into `instances`: inside one instance, or across all.
std::vector<GridAxis> axes_of_instances(const std::vector<GridAxis>& grid, std::int64_t instances, bool across) {
    std::vector<GridAxis> cut;
    for (GridAxis axis : grid) {
        const bool data = axis.axis == Axis::dp, context = axis.axis == Axis::cp;
        if (data && axis.size % instances == 0)
            cut.push_back(across ? GridAxis{axis.axis, instances, axis.stride * (axis.size / instances)}
                                 : GridAxis{axis.axis, axis.size / instances, axis.stride});
        else if (data || (context && !across))
            cut.push_back(axis);
    }
    return cut;
}

/// The dp axis of a grid whose neighbours hold `parts` of a weight. `same`: the axis of ranks with the same part; else that of different
/// parts.
std::vector<GridAxis> axes_of_parts(const std::vector<GridAxis>& grid, std::int64_t parts, bool same) {
    std::vector<GridAxis> cut;
    for (GridAxis axis : grid) {
        if (axis.axis == Axis::dp)
            cut.push_back(axis_of_parts(axis, parts, same));
        else if (same && axis.axis == Axis::cp)
            cut.push_back(axis);
    }
    return cut;
}

GroupPath path_of(const std::vector<GridAxis>& grid, std::initializer_list<Axis> wanted, const ClusterSpec& cluster,
                  const Calibration& calibration, std::int64_t world) {
    std::array<GridAxis, 5> axes{};
    std::size_t count = 0;
    for (const auto& axis : grid) {
        if (std::find(wanted.begin(), wanted.end(), axis.axis) != wanted.end()) axes[count++] = axis;
    }
    return group_path(std::span(axes.data(), count), cluster, calibration, world);
}

}  // namespace

LayoutPaths paths_of(const ParallelSizes& sizes, const ClusterSpec& cluster, const Calibration& calibration) {
    const auto dense = dense_grid(sizes);
    const auto expert = expert_grid(sizes);
    LayoutPaths paths;
    paths.tp = path_of(dense, {Axis::tp}, cluster, calibration, sizes.world);
    paths.cp = path_of(dense, {Axis::cp}, cluster, calibration, sizes.world);
    paths.dp_cp = path_of(dense, {Axis::dp, Axis::cp}, cluster, calibration, sizes.world);
    paths.pp = path_of(dense, {Axis::pp}, cluster, calibration, sizes.world);
    paths.ep = path_of(expert, {Axis::ep}, cluster, calibration, sizes.world);
    paths.etp = path_of(expert, {Axis::tp}, cluster, calibration, sizes.world);
    paths.edp = path_of(expert, {Axis::dp}, cluster, calibration, sizes.world);
    return paths;
}

void add_instances(LayoutPaths& paths, const ParallelSizes& sizes, std::int64_t instances, const ClusterSpec& cluster,
                   const Calibration& calibration) {
    const auto dense = dense_grid(sizes), expert = expert_grid(sizes);
    paths.dp_inner = group_path(axes_of_instances(dense, instances, false), cluster, calibration, sizes.world);
    paths.edp_inner = group_path(axes_of_instances(expert, instances, false), cluster, calibration, sizes.world);
    if (instances == 1) return;
    paths.dp_outer = group_path(axes_of_instances(dense, instances, true), cluster, calibration, sizes.world);
    paths.edp_outer = group_path(axes_of_instances(expert, instances, true), cluster, calibration, sizes.world);
}

void add_weight_shards(LayoutPaths& paths, const ParallelSizes& sizes, const WeightShards& shards, const ClusterSpec& cluster,
                       const Calibration& calibration) {
    const auto dense = dense_grid(sizes), expert = expert_grid(sizes);
    paths.dp_inner = group_path(axes_of_parts(dense, shards.dense, false), cluster, calibration, sizes.world);
    paths.edp_inner = group_path(axes_of_parts(expert, shards.experts, false), cluster, calibration, sizes.world);
    paths.dp_outer = group_path(axes_of_parts(dense, shards.dense, true), cluster, calibration, sizes.world);
    paths.edp_outer = group_path(axes_of_parts(expert, shards.experts, true), cluster, calibration, sizes.world);
}

}  // namespace mgplan::simulator
