#pragma once
// Seconds in which new weights reach the rollout engine.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/layout/layout.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::planner {

struct SyncedWeights {
    double model_bytes = 0;   ///< of the whole model, in the type that is sent
    double engine_bytes = 0;  ///< on one GPU of the engine
    std::int64_t trainer_gpus = 0, rollout_gpus = 0;
};

/// On shared GPUs: ranks of one model replica gather all weights bucket by bucket, and each engine copies its part (CUDA IPC; NeMo-RL
/// nemo_rl/models/policy, verl docs/workers/sglang_worker.rst). On separate GPUs the gathered weights are broadcast from one rank while the
/// next bucket is gathered (NeMo-RL packed_tensor.py, two buffers). Links alone: what the frameworks' loops over tensors take is not in it,
/// so that the seconds are a lower bound.
[[nodiscard]] double shared_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                                         const simulator::Calibration& calibration);
[[nodiscard]] double separate_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                                           const simulator::Calibration& calibration);

}  // namespace mgplan::planner
