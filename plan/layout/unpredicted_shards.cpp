#include "plan/layout/unpredicted_shards.hpp"

namespace mgplan {

std::string_view unpredicted_beside_shards(const TrainingSpec& training, const BesideOffload& beside) {
    const bool mxfp8 = training.megatron.fp8_recipe == Fp8Recipe::mxfp8;
    if (training.precision == Precision::fp8 && !mxfp8) return "weight shards (GTP) of an fp8 recipe other than mxfp8";
    if (training.megatron.fully_sharded.active()) return "weight shards (GTP) beside FSDP";
    if (training.megatron.optimizer == OptimizerKind::muon) return "weight shards (GTP) with Muon";
    // Its fused MLP takes sizes from the part of a weight that a rank holds (core/extensions/transformer_engine.py, TEFusedMLP).
    if (training.megatron.op_fuser) return "weight shards (GTP) with Transformer Engine's fused operations";
    if (!beside.graphs.empty()) return "weight shards (GTP) under CUDA graphs";
    using enum RecomputeModule;
    for (const RecomputeModule module : {mlp, moe, shared_experts, mla_up_proj}) {
        if (beside.recomputed.contains(module)) return "weight shards (GTP) of recomputed modules";
    }
    return "";
}

}  // namespace mgplan
