#pragma once
// Seconds in which new weights reach the rollout engine.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/layers/layer.hpp"
#include "plan/layout/layout.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::planner {

struct SyncedWeights {
    double model_bytes = 0;   ///< of the whole model, in the type that is sent
    double engine_bytes = 0;  ///< on one GPU of the engine
    std::int64_t trainer_gpus = 0, rollout_gpus = 0;
    std::int64_t tensors = 0;  ///< that the engine is given by name
};

/// Tensors of a model as Hugging Face names them: queries, keys and values apart, gate and up apart, each expert by itself.
[[nodiscard]] std::int64_t published_tensors(const Model& model);

/// On shared GPUs: ranks of one model replica gather all weights bucket by bucket, and each engine copies its part (CUDA IPC; NeMo-RL
/// nemo_rl/models/policy, verl docs/workers/sglang_worker.rst). On separate GPUs the gathered weights are broadcast while the next bucket
/// is gathered (NeMo-RL packed_tensor.py, two buffers); its ring uses the adapters of all GPUs of a node, as any other of NCCL. Meanwhile
/// the host names, cuts and loads one tensor after the other on every rank, which takes longer than the links where there are many experts.
/// Sleep, wake-up and waiting for the last answer are not in it.
[[nodiscard]] double shared_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                                         const simulator::Calibration& calibration);
[[nodiscard]] double separate_sync_seconds(const SyncedWeights& weights, const Layout& trainer, const ClusterSpec& cluster,
                                           const simulator::Calibration& calibration);

}  // namespace mgplan::planner
