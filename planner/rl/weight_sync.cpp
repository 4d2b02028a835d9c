#include "planner/rl/weight_sync.hpp"

#include <algorithm>
#include <span>
#include <vector>

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

/// Seconds in which the host names and loads one tensor. Two systems that send buckets and are not among the scored rows, both with the
/// 18,867 tensors of Qwen3-30B-A3B: verl's checkpoint engine, 4.38 s (docs/advance/fully_async.md), and slime's last stage, 7 s
/// (weight-sync blog of 2025-08); this lies between their 0.23 and 0.37 ms.
constexpr double kTensorSeconds = 0.3e-3;

double host_seconds(const SyncedWeights& weights) {
    return kTensorSeconds * static_cast<double>(weights.tensors);
}

}  // namespace

std::int64_t published_tensors(const Model& model) {
    const auto parts = [](const LayerTensor& tensor) -> std::int64_t {
        if (tensor.name == "self_attention.linear_qkv.weight" || tensor.name == "self_attention.linear_qkv.bias") return 3;
        return std::max<std::int64_t>(tensor.equal_blocks, static_cast<std::int64_t>(tensor.blocks.size()));
    };
    const auto named = [&](const std::vector<LayerTensor>& some) {
        std::int64_t count = 0;
        for (const LayerTensor& tensor : some) count += tensor.copies * parts(tensor);
        return count;
    };
    std::vector<std::int64_t> of_kind;
    of_kind.reserve(model.kinds.size());
    for (const Layer& layer : model.kinds) of_kind.push_back(named(tensors(layer, model.hidden)));
    std::int64_t count = 0;
    for (const std::uint16_t kind : model.kind_of_layer) count += of_kind[kind];
    for (const ModelPart part : {ModelPart::embedding, ModelPart::final_norm, ModelPart::output}) {
        if (part != ModelPart::output || !model.head.tied) count += named(tensors(model, part, model.embedding.vocab));
    }
    return count;
}

double shared_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                           const simulator::Calibration& calibration) {
    const double copied = 2 * weights.engine_bytes / (cluster.memory_bandwidth * calibration.memory_efficiency);  // read and written
    return std::max(gather_seconds(weights, trainer, cluster, calibration) + copied, host_seconds(weights));
}

double separate_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                             const simulator::Calibration& calibration) {
    const std::int64_t world = weights.trainer_gpus + weights.rollout_gpus;
    const simulator::GroupPath path = path_of(world, cluster, calibration);
    const double sent = weights.model_bytes / path.ring_bandwidth(weights.model_bytes);
    return std::max({gather_seconds(weights, trainer, cluster, calibration), sent, host_seconds(weights)});
}

}  // namespace mgplan::planner
