#include "planner/rl/weight_sync.hpp"

#include <algorithm>
#include <span>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/network/group_path.hpp"

namespace mgplan::planner {
namespace {

simulator::GroupPath path_of(std::int64_t ranks, const ClusterSpec& cluster, const simulator::Calibration& calibration) {
    const GridAxis axis{Axis::tp, ranks, 1};
    return simulator::group_path(std::span(&axis, 1), cluster, calibration);
}

/// Seconds in which the ranks of one replica gather all weights.
double gather_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                      const simulator::Calibration& calibration) {
    const ParallelSizes& sizes = trainer.sizes;
    const std::int64_t replica = std::min(sizes.world, std::max(sizes.tp * sizes.pp, sizes.etp * sizes.ep * sizes.pp));
    return all_gather_seconds(weights.model_bytes, path_of(replica, cluster, calibration), calibration);
}

}  // namespace

double shared_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                           const simulator::Calibration& calibration) {
    const double copied = 2 * weights.engine_bytes / (cluster.memory_bandwidth * calibration.memory_efficiency);  // read and written
    return gather_seconds(weights, trainer, cluster, calibration) + copied;
}

double separate_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                             const simulator::Calibration& calibration) {
    const std::int64_t world = weights.trainer_gpus + weights.rollout_gpus;
    const simulator::GroupPath path = path_of(world, cluster, calibration);
    const double rate = path.crosses_network() ? path.network : path.inside;
    return std::max(gather_seconds(weights, trainer, cluster, calibration), weights.model_bytes / rate);
}

}  // namespace mgplan::planner
