#include <array>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"
#include "plan/layout/unpredicted_shards.hpp"

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

/// Megatron-LM evaluates with the global batch by default. Where none is given it takes a microbatch for each rank that has no part of
/// another's weights, which is no multiple of all data-parallel ranks (arguments.py, validate_args, eval_global_batch_size).
void check_batch(FlagReader& flags, std::int64_t parts) {
    for (const std::string_view batch : {"--global-batch-size", "--eval-global-batch-size", "--eval-micro-batch-size"}) {
        if (flags.has(batch)) return;
    }
    if (parts == 1) return;
    flags.problem("{} needs --global-batch-size: without it Megatron-LM takes a microbatch for one data-parallel rank out of {}, and stops",
                  kDense, parts);
}

/// Reports combinations with weight shards that Megatron-LM stops at: for a model without experts also shards of experts.
void check_rules(FlagReader& flags, const TrainingSpec& training, std::string_view flag) {
    if (training.precision == Precision::nvfp4 && !training.fp8_parameters)
        flags.problem("{} with --fp4-format needs --fp4-param-gather; add it", flag);
    // Checked with and without an --fp8-format.
    constexpr std::string_view kReuse = "--reuse-grad-buf-for-mxfp8-param-ag";
    const bool mxfp8 = training.megatron.fp8_recipe == Fp8Recipe::mxfp8;
    if (mxfp8 && training.precision != Precision::fp8 && !(flags.has("--fp8-param-gather") && flags.has(kReuse)))
        flags.problem("{} with --fp8-recipe mxfp8 needs --fp8-param-gather and {}; without --fp8-format leave that recipe out", flag,
                      kReuse);
    if (mxfp8 && training.precision == Precision::fp8 && !(training.fp8_parameters && training.megatron.reuse_grad_buffer))
        flags.problem("{} with --fp8-recipe mxfp8 needs --fp8-param-gather and --reuse-grad-buf-for-mxfp8-param-ag; add them", flag);
    if (flags.has("--ddp-average-in-collective")) flags.problem("{} does not go with --ddp-average-in-collective; remove the latter", flag);
    if (training.distributed_optimizer_instances > 1)
        flags.problem("{} needs --num-distributed-optimizer-instances 1, not {}", flag, training.distributed_optimizer_instances);
    constexpr std::string_view kReshardable = "--dist-ckpt-optim-fully-reshardable",
                               kFrugal = "--distrib-optim-fully-reshardable-mem-efficient";
    if (flags.has(kReshardable) && flags.has(kFrugal))
        flags.problem("{} does not go with {} and {}; remove one of them", flag, kReshardable, kFrugal);
    const std::string format = flags.text("--ckpt-format").value_or("torch_dist");
    if (format != "torch" && format != "torch_dist")
        flags.problem("{} needs --ckpt-format torch or torch_dist, not {}", flag, FlagReader::shown(format));
}

/// Names the feature of the job that is not predicted with weight shards; "" where all are.
std::string_view not_predicted_beside(const Job& job, const TrainingSpec& training) {
    BesideOffload beside;
    if (job.layout->recompute == Recompute::selective) beside.recomputed = job.layout->recompute_modules;
    beside.graphs = job.layout->cuda_graphs;
    return unpredicted_beside_shards(training, beside);
}

void read_weight_shards(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    WeightShards shards;
    const std::int64_t tp = job.layout->tp, etp = job.layout->etp.value_or(tp);
    shards.dense = read_parts(flags, kDense, tp, "--tensor-model-parallel-size");
    const std::int64_t experts = read_parts(flags, kExperts, etp, "--expert-tensor-parallel-size");
    if (job.model.moe)
        shards.experts = experts;
    else
        job.layout->idle_expert_shards = experts;
    for (const auto& module : flags.texts(kModules)) {
        if (module != "moe_latent_proj") flags.problem("{} = '{}' is not known; use moe_latent_proj", kModules, FlagReader::shown(module));
        shards.latent_projections = true;
    }
    if (shards.dense == 1) flags.idle(kDense);
    if (experts == 1) flags.idle(kExperts);
    const bool latent = job.model.moe && job.model.moe->latent > 0 && shards.dense > 1;
    if (!latent) flags.idle(kModules);
    shards.latent_projections = shards.latent_projections && latent;
    if (shards.dense > 1 || experts > 1) check_rules(flags, training, shards.dense > 1 ? kDense : kExperts);
    if (!shards.active()) return;
    check_batch(flags, shards.dense);
    const std::string_view open = not_predicted_beside(job, training);
    if (!open.empty()) {
        for (const std::string_view flag : {kDense, kExperts, kModules}) flags.not_computed(flag, std::string(open), Decides::fit);
        return;
    }
    // Their own ranks lie inside those of cp, whose links become longer by that (parallel_state.py, _inject_gtp_remat_axis).
    if (job.layout->cp > 1)
        flags.not_computed(kDense, "where the ranks of context parallelism lie with weight shards (GTP)", Decides::nothing);
    training.megatron.weight_shards = shards;
}

void write_weight_shards(FlagWriter& out, const Job& job) {
    const WeightShards& shards = job.training->megatron.weight_shards;
    const LayoutRequest& layout = *job.layout;
    if (shards.dense > 1) out.integer("tensor-parallel-num-weight-shards", shards.dense * layout.tp);
    if (shards.experts > 1 && job.model.moe)
        out.integer("expert-tensor-parallel-num-weight-shards", shards.experts * layout.etp.value_or(layout.tp));
    if (shards.latent_projections) out.flag("gtp-remat-opt-in-modules", {"moe_latent_proj"});
}

constexpr std::array kWeightShardFlags{
    FlagRow{"tensor-parallel-num-weight-shards= expert-tensor-parallel-num-weight-shards= gtp-remat-opt-in-modules=+",
            Both{read_weight_shards, write_weight_shards}},
};

}  // namespace

constinit const FlagTopic kWeightShardTopic{kWeightShardFlags};

}  // namespace mgplan::formats
