#include "simulator/layers/shard.hpp"

#include <algorithm>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/reduce_scatter.hpp"

namespace mgplan::simulator {

PieceCost& PieceCost::operator+=(const PieceCost& other) {
    forward += other.forward;
    backward += other.backward;
    weight_gradient += other.weight_gradient;
    recompute += other.recompute;
    exposed_forward += other.exposed_forward;
    exposed_backward += other.exposed_backward;
    exposed_recompute += other.exposed_recompute;
    kernels_forward += other.kernels_forward;
    kernels_backward += other.kernels_backward;
    forward_flops += other.forward_flops;
    recompute_flops += other.recompute_flops;
    return *this;
}

double tp_gather_seconds(const Shard& shard, std::int64_t width) {
    if (shard.tp == 1 || !shard.sequence_parallel) return 0;
    return all_gather_seconds(static_cast<double>(shard.tokens * width * shard.element), shard.paths->tp, *shard.calibration);
}

double tp_reduce_seconds(const Shard& shard, std::int64_t width) {
    if (shard.tp == 1) return 0;
    const double bytes = static_cast<double>(shard.tokens * width * shard.element);
    // Reduce-scatter with sequence parallelism, all-reduce without (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
    return shard.sequence_parallel ? reduce_scatter_seconds(bytes, shard.paths->tp, *shard.calibration)
                                   : all_reduce_seconds(bytes, shard.paths->tp, *shard.calibration);
}

double beside(const Shard& shard, double communication, double kernel) {
    return std::max(shard.calibration->overlap_cost * communication, communication - kernel);
}

double tp_reduce_exposed(const Shard& shard, double reduction, double product) {
    const MegatronSwitches* switches = shard.megatron();
    // Both products of a plain linear layer run before the copy in front of it reduces (NVIDIA/Megatron-LM@aed2f75e20 and
    // microsoft/Megatron-DeepSpeed@1619965d33, megatron/mpu/layers.py, ColumnParallelLinear.forward). The asynchronous form of the
    // former's 02bb1f5c86 starts the all-reduce between the two; a reduce-scatter is asynchronous always.
    if (switches != nullptr && !switches->async_tp_reduce && !shard.sequence_parallel) return reduction;
    return beside(shard, reduction, product);
}

double tp_exposed(const Shard& shard, double communication, double product) {
    if (!shard.workload->training.overlap_tp) return communication;
    // Chunked overlap (Transformer Engine userbuffers): tp chunks, the first one is always exposed.
    return std::max(communication / static_cast<double>(shard.tp), beside(shard, communication, product));
}

}  // namespace mgplan::simulator
