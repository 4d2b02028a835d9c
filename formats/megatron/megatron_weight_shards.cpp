#include <string_view>

#include "formats/megatron/flag_reader.hpp"

// Rules: resolve_tensor_parallel_weight_shards of megatron/core/model_parallel_config.py, validate_args of megatron/training/arguments.py,
// initialize_model_parallel of megatron/core/parallel_state.py and __post_init__ of transformer_config.py, Megatron-LM at d98e8a64.

namespace mgplan::formats {
namespace {

constexpr std::string_view kDense = "--tensor-parallel-num-weight-shards", kExperts = "--expert-tensor-parallel-num-weight-shards",
                           kModules = "--gtp-remat-opt-in-modules";

/// Parts of a weight that `over` ranks of tensor parallelism have divided already.
std::int64_t read_parts(FlagReader& flags, std::string_view flag, std::int64_t over, std::string_view size) {
    const std::int64_t shards = flags.integer_or(flag, over, 1, kSizeLimit);
    if (shards % over == 0) return shards / over;  // those below it are not
    flags.problem("{} = {} is no multiple of {} = {}; use one", flag, shards, size, over);
    return 1;
}

/// What Megatron-LM stops at beside weight shards.
void check_rules(FlagReader& flags, const TrainingSpec& training, std::string_view flag) {
    if (training.precision == Precision::nvfp4 && !training.fp8_parameters)
        flags.problem("{} with --fp4-format needs --fp4-param-gather; add it", flag);
    const bool mxfp8 = training.precision == Precision::fp8 && training.megatron.fp8_recipe == Fp8Recipe::mxfp8;
    if (mxfp8 && !(training.fp8_parameters && training.megatron.reuse_grad_buffer))
        flags.problem("{} with --fp8-recipe mxfp8 needs --fp8-param-gather and --reuse-grad-buf-for-mxfp8-param-ag; add them", flag);
    if (flags.has("--ddp-average-in-collective")) flags.problem("{} does not go with --ddp-average-in-collective; remove the latter", flag);
    if (training.distributed_optimizer_instances > 1)
        flags.problem("{} needs --num-distributed-optimizer-instances 1, not {}", flag, training.distributed_optimizer_instances);
    const std::string format = flags.text("--ckpt-format").value_or("torch_dist");
    if (format != "torch" && format != "torch_dist")
        flags.problem("{} needs --ckpt-format torch or torch_dist, not {}", flag, FlagReader::shown(format));
}

/// What of the job beside weight shards is not predicted; "" where all is.
std::string_view not_predicted_beside(const Job& job, const TrainingSpec& training) {
    const bool mxfp8 = training.megatron.fp8_recipe == Fp8Recipe::mxfp8;
    if (training.precision == Precision::fp8 && !mxfp8) return "weight shards (GTP) of an fp8 recipe other than mxfp8";
    if (training.megatron.fully_sharded.active()) return "weight shards (GTP) beside FSDP";
    if (training.megatron.optimizer == OptimizerKind::muon) return "weight shards (GTP) with Muon";
    if (!job.layout) return "";
    if (!job.layout->cuda_graphs.empty()) return "weight shards (GTP) under CUDA graphs";
    using enum RecomputeModule;
    for (const RecomputeModule module : {mlp, moe, shared_experts, mla_up_proj}) {
        if (job.layout->recompute == Recompute::selective && job.layout->recompute_modules.contains(module))
            return "weight shards (GTP) of recomputed modules";
    }
    return "";
}

}  // namespace

void read_weight_shards(FlagReader& flags, const Job& job, TrainingSpec& training) {
    WeightShards shards;
    const std::int64_t tp = job.layout ? job.layout->tp : 1, etp = job.layout ? job.layout->etp.value_or(tp) : 1;
    shards.dense = read_parts(flags, kDense, tp, "--tensor-model-parallel-size");
    const std::int64_t experts = read_parts(flags, kExperts, etp, "--expert-tensor-parallel-size");
    if (job.model.moe) shards.experts = experts;
    for (const auto& module : flags.texts(kModules)) {
        if (module != "moe_latent_proj") flags.problem("{} = '{}' is not known; use moe_latent_proj", kModules, FlagReader::shown(module));
        shards.latent_projections = true;
    }
    if (shards.dense == 1) flags.idle(kDense);
    if (shards.experts == 1) flags.idle(kExperts);
    const bool latent = job.model.moe && job.model.moe->latent > 0 && shards.dense > 1;
    if (!latent) flags.idle(kModules);
    shards.latent_projections = shards.latent_projections && latent;
    if (!shards.active()) return;
    check_rules(flags, training, shards.dense > 1 ? kDense : kExperts);
    const std::string_view open = not_predicted_beside(job, training);
    if (!open.empty()) {
        for (const std::string_view flag : {kDense, kExperts, kModules}) flags.not_computed(flag, std::string(open), Decides::fit);
        return;
    }
    // Their own ranks lie inside those of cp, whose links become longer by that (parallel_state.py, _inject_gtp_remat_axis).
    if (job.layout && job.layout->cp > 1)
        flags.not_computed(kDense, "where the ranks of context parallelism lie beside weight shards (GTP)", Decides::nothing);
    training.megatron.weight_shards = shards;
}

}  // namespace mgplan::formats
