#include "formats/megatron/flag_rows.hpp"

// A command's training options in the order in which they are read, and rules between them.

namespace mgplan::formats {
namespace {

/// --delay-wgrad-compute. Rules at d98e8a64: transformer_config.py, __post_init__; arguments.py, validate_args; of tp overlap
/// transformer_engine/pytorch/module/linear.py.
void check_delayed_gradients(FlagReader& flags, const Job& job) {
    const TrainingSpec& training = *job.training;
    constexpr std::string_view kFlag = "--delay-wgrad-compute";
    if (!training.overlap_moe) flags.problem("{} needs --overlap-moe-expert-parallel-comm; add it, or remove the delay", kFlag);
    if (!training.megatron.transformer_engine) flags.problem("{} needs Transformer Engine; leave --transformer-impl local out", kFlag);
    // Megatron-LM lets it through, and published scripts have both.
    if (training.overlap_tp && job.layout->tp > 1)
        flags.not_computed(kFlag, "weight gradients put off with --tp-comm-overlap, at which Transformer Engine stops",
                           Decides::fit_and_legal);
    const bool graphed = job.layout->cuda_graphs.contains(CudaGraphScope::attn) && training.overlap_grad_reduce;
    if (!graphed) return;
    if (!training.megatron.gradient_accumulation_fusion)
        flags.problem("{} under a CUDA graph of attn with --no-gradient-accumulation-fusion; remove one of them", kFlag);
    if (flags.has("--add-qkv-bias") || !flags.has("--disable-bias-linear"))
        flags.problem("{} under a CUDA graph of attn with biases; leave attn out of the graphs, or keep one", kFlag);
}

/// --moe-use-legacy-grouped-gemm: experts by the grouped_gemm package, which Megatron-LM had until March 2026 (moe/experts.py, GroupedMLP).
/// It multiplies in 16 bits whatever the other layers do, and takes cuBLAS for one expert after the other on several streams, as
/// Transformer Engine's grouped layers do.
void read_legacy_experts(FlagReader& flags, const ModelSpec& model, const TrainingSpec& training) {
    constexpr std::string_view kFlag = "--moe-use-legacy-grouped-gemm";
    if (!flags.has(kFlag)) return;
    if (!model.moe || !flags.has("--moe-grouped-gemm")) {
        flags.idle(kFlag);
        return;
    }
    if (model.mlp_bias) flags.problem("{} has no biases; add --disable-bias-linear", kFlag);
    if (training.megatron.delay_wgrad) flags.problem("{} with --delay-wgrad-compute; keep one", kFlag);
    if (quantised(training.precision))
        flags.not_computed(kFlag, fmt::format("experts in 16 bits, predicted in {}", to_string(training.precision)), Decides::fit);
}

/// --cpu-offloading-num-layers. Rules: transformer_config.py, __post_init__.
void check_offloaded_layers(FlagReader& flags, const Job& job) {
    const std::int64_t offloaded = job.training->megatron.offloaded_layers, layers = job.model.layers;
    if (offloaded > 0 && offloaded >= layers)
        flags.problem("--cpu-offloading-num-layers = {}: at most {} of the {} layers can wait in the host's memory; use fewer", offloaded,
                      layers - 1, layers);
    if (offloaded > 0 && flags.has("--recompute-granularity"))
        flags.problem("--cpu-offloading-num-layers and --recompute-granularity exclude each other; keep one");
}

}  // namespace

void read_training(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    read_precision(flags, job);
    read_moments(flags, job);
    read_topic(flags, kKernelTopic, job);
    read_topic(flags, kAttentionKernelTopic, job);
    read_topic(flags, kSwitchTopic, job);
    MegatronSwitches& switches = training.megatron;
    switches.attention_softmax_in_fp32 = switches.attention_softmax_in_fp32 || switches.query_key_layer_scaling;
    check_offloaded_layers(flags, job);
    read_topic(flags, kOverlapTopic, job);
    if (training.megatron.delay_wgrad) check_delayed_gradients(flags, job);
    read_topic(flags, kOptimizerTopic, job);
    read_fully_sharded(flags, job);
    read_legacy_experts(flags, job.model, training);
    read_offloading(flags, job);
    read_topic(flags, kExpertBufferTopic, job);
    read_topic(flags, kWeightShardTopic, job);
    const bool muon = training.megatron.optimizer == OptimizerKind::muon, sharded = training.megatron.fully_sharded.active();
    if (training.overlap_param_gather && !training.distributed_optimizer && !sharded && !muon)
        flags.problem("--overlap-param-gather needs --use-distributed-optimizer; add it");
    if (training.overlap_param_gather && !training.overlap_grad_reduce)
        flags.problem("--overlap-param-gather needs --overlap-grad-reduce; add it");
    read_topic(flags, kStreamTopic, job);
}

}  // namespace mgplan::formats
