#include "plan/layout/beside_streams.hpp"

#include "plan/model/layers_of_model.hpp"

namespace mgplan {

std::string_view unpredicted_beside_streams(const ModelSpec& model, const TrainingSpec& training, EnumSet<CudaGraphScope> graphs) {
    if (!model.kinds.empty() && !has_mixer_with(model, &MixerTraits::between_streams)) return "residual streams (mHC) of hybrids";
    if (model.mtp_layers > 0) return "residual streams (mHC) with multi-token prediction";
    // A graph of the whole iteration holds what an eager one runs; graphs of layers have inputs and outputs of their own.
    if (!graphs.empty() && !graphs.contains(CudaGraphScope::full_iteration)) return "residual streams (mHC) under CUDA graphs of layers";
    if (training.overlap_moe) return "residual streams (mHC) beside hidden exchanges of experts";
    const MegatronSwitches& switches = training.megatron;
    if (!training.offload.modules.empty() || switches.offloaded_layers > 0) return "residual streams (mHC) beside activations on the host";
    if (switches.fully_sharded.active()) return "residual streams (mHC) beside FSDP";
    if (switches.weight_shards.active()) return "residual streams (mHC) beside weight shards (GTP)";
    if (switches.optimizer == OptimizerKind::muon) return "residual streams (mHC) with Muon";
    return "";
}

}  // namespace mgplan
