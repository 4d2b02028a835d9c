#include "formats/megatron/flag_reader.hpp"
#include "plan/layout/megatron_offload.hpp"

namespace mgplan::formats {
namespace {

void read_precision(FlagReader& flags, TrainingSpec& training) {
    const bool bf16 = flags.has("--bf16"), fp16 = flags.has("--fp16");
    if (bf16 && fp16) flags.problem("--bf16 and --fp16 exclude each other; keep one");
    training.precision = bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : Precision::fp32;
    const Choices<Dtype> dtypes{{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}, {"fp8", Dtype::fp8}};
    const Dtype main_grads = flags.choice<Dtype>("--main-grads-dtype", Dtype::fp32, {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}});
    training.main_param_dtype = flags.choice<Dtype>("--main-params-dtype", Dtype::fp32, {{"fp32", Dtype::fp32}, {"fp16", Dtype::fp16}});
    training.exp_avg_dtype = flags.choice<Dtype>("--exp-avg-dtype", Dtype::fp32, dtypes);
    training.exp_avg_sq_dtype = flags.choice<Dtype>("--exp-avg-sq-dtype", Dtype::fp32, dtypes);
    if (bf16 && flags.has("--accumulate-allreduce-grads-in-fp32") && main_grads != Dtype::fp32)
        flags.problem("--main-grads-dtype bf16 does not go with --accumulate-allreduce-grads-in-fp32; leave one of them out");
    // bf16 accumulates gradients in fp32 unless told otherwise; fp16 only when told to.
    bool in_fp32 = flags.has("--accumulate-allreduce-grads-in-fp32") || training.precision == Precision::fp32;
    if (bf16) in_fp32 = flags.has("--grad-reduce-in-bf16") ? false : in_fp32 || main_grads == Dtype::fp32;
    training.grad_dtype = in_fp32 ? Dtype::fp32 : training.compute_dtype();
    if (const auto format = flags.text("--fp8-format"); format && *format != "none") {
        if (!bf16) flags.not_computed("--fp8-format", "fp8 over weights that are not bf16, predicted over bf16", Decides::fit);
        training.precision = Precision::fp8;
        training.megatron.fp8_gradients_in_e4m3 = *format == "e4m3";
    }
    if (const auto format = flags.text("--fp4-format"); format && *format != "none") {
        if (training.precision == Precision::fp8) flags.problem("--fp4-format and --fp8-format exclude each other; keep one");
        if (!bf16) flags.not_computed("--fp4-format", "fp4 over weights that are not bf16, predicted over bf16", Decides::fit);
        if (flags.text("--fp4-recipe").value_or("nvfp4") != "nvfp4")
            flags.not_computed("--fp4-recipe", "quantization of one's own, predicted as nvfp4", Decides::fit);
        training.precision = Precision::nvfp4;
    }
    training.fp8_parameters = (training.precision == Precision::fp8 && flags.has("--fp8-param-gather")) ||
                              (training.precision == Precision::nvfp4 && flags.has("--fp4-param-gather"));
    training.megatron.precision_aware_optimizer = flags.has("--use-precision-aware-optimizer");
    // core/optimizer/optimizer_config.py, __post_init__
    const std::pair<std::string_view, Dtype> states[]{{"--main-grads-dtype", main_grads},
                                                      {"--main-params-dtype", training.main_param_dtype},
                                                      {"--exp-avg-dtype", training.exp_avg_dtype},
                                                      {"--exp-avg-sq-dtype", training.exp_avg_sq_dtype}};
    for (const auto& [flag, dtype] : states) {
        if (dtype != Dtype::fp32 && !training.megatron.precision_aware_optimizer)
            flags.problem("{} {} needs --use-precision-aware-optimizer; add it, or leave {} out", flag, to_string(dtype), flag);
    }
    training.megatron.fp8_recipe = flags.choice<Fp8Recipe>("--fp8-recipe", Fp8Recipe::delayed,
                                                           {{"delayed", Fp8Recipe::delayed},
                                                            {"tensorwise", Fp8Recipe::tensorwise},
                                                            {"blockwise", Fp8Recipe::blockwise},
                                                            {"mxfp8", Fp8Recipe::mxfp8},
                                                            {"custom", Fp8Recipe::tensorwise}});
    if (flags.raw("--fp8-recipe") == "custom")
        flags.not_computed("--fp8-recipe", "quantization of one's own, predicted as tensorwise", Decides::fit);
}

/// --first-last-layers-bf16 and how many layers they are. Rules: transformer_config.py, __post_init__, at d98e8a64.
void read_layers_in_bf16(FlagReader& flags, const Job& job, TrainingSpec& training) {
    constexpr std::string_view kSwitch = "--first-last-layers-bf16", kStart = "--num-layers-at-start-in-bf16",
                               kEnd = "--num-layers-at-end-in-bf16";
    const std::int64_t start = flags.integer_or(kStart, 1, 0, ModelLimits::layers), end = flags.integer_or(kEnd, 1, 0, ModelLimits::layers);
    if (!flags.has(kSwitch) || !quantised(training.precision)) {
        // All layers are in bf16 then, those that are asked for among them.
        for (const std::string_view flag : {kStart, kEnd}) flags.idle(flag);
        return;
    }
    if (training.precision == Precision::fp8) {
        if (training.megatron.fp8_recipe == Fp8Recipe::delayed)
            flags.problem("{} does not go with --fp8-recipe delayed, which is the default; name another recipe, or remove it", kSwitch);
        const std::int64_t stages = job.layout ? job.layout->pp : 1, most = job.model.layers / stages;
        for (const auto& [flag, layers] : {std::pair(kStart, start), std::pair(kEnd, end)}) {
            if (layers > most)
                flags.problem("{} = {} is more than the {} layers of a pipeline stage; use at most that", flag, layers, most);
        }
    }
    const bool graphs = job.layout && !job.layout->cuda_graphs.empty() && !job.layout->cuda_graphs.contains(CudaGraphScope::full_iteration);
    if (graphs) {
        for (const std::string_view flag : {kSwitch, kStart, kEnd})
            flags.not_computed(flag, "first and last layers in bf16 under CUDA graphs of layers", Decides::fit);
        return;
    }
    training.megatron.bf16_layers_at_start = std::min(start, job.model.layers);
    training.megatron.bf16_layers_at_end = std::min(end, job.model.layers);
}

void read_attention(FlagReader& flags, TrainingSpec& training) {
    training.megatron.transformer_engine =
        flags.choice<bool>("--transformer-impl", true, {{"transformer_engine", true}, {"local", false}, {"inference_optimized", true}});
    // auto: Transformer Engine takes a fused kernel for 16-bit types; the local implementation has none of its own.
    const bool fused = training.megatron.transformer_engine ? training.precision != Precision::fp32 : flags.has("--use-flash-attn");
    training.attention = fused ? AttentionBackend::flash : AttentionBackend::unfused;
    if (flags.has("--use-flash-attn") && training.precision != Precision::fp32) training.attention = AttentionBackend::flash;
    training.attention = flags.choice<AttentionBackend>("--attention-backend", training.attention,
                                                        {{"flash", AttentionBackend::flash},
                                                         {"fused", AttentionBackend::flash},
                                                         {"auto", training.attention},
                                                         {"unfused", AttentionBackend::unfused},
                                                         {"local", AttentionBackend::unfused}});
    training.megatron.fused_attention = flags.choice<FusedAttention>("--attention-backend", FusedAttention::automatic,
                                                                     {{"flash", FusedAttention::flash_attention},
                                                                      {"fused", FusedAttention::cudnn},
                                                                      {"auto", FusedAttention::automatic},
                                                                      {"unfused", FusedAttention::automatic},
                                                                      {"local", FusedAttention::automatic}});
}

void read_switches(FlagReader& flags, const ModelSpec& model, MegatronSwitches& switches) {
    switches.gradient_accumulation_fusion = !flags.has("--no-gradient-accumulation-fusion");
    const bool swiglu = model.gated_mlp && model.activation == Activation::silu;
    switches.bias_activation_fusion = !flags.has(swiglu ? "--no-bias-swiglu-fusion" : "--no-bias-gelu-fusion");
    switches.bias_dropout_fusion = !flags.has("--no-bias-dropout-fusion");
    switches.masked_softmax_fusion = !flags.has("--no-masked-softmax-fusion");
    switches.rope_fusion = !flags.has("--no-rope-fusion");
    switches.async_tp_reduce = !flags.has("--no-async-tensor-model-parallel-allreduce");
    switches.te_cross_entropy = flags.choice<bool>("--cross-entropy-fusion-impl", false, {{"native", false}, {"te", true}});
    switches.attention_mask_in_dataloader = !flags.has("--no-create-attention-mask-in-dataloader");
    switches.query_key_layer_scaling = flags.has("--apply-query-key-layer-scaling");
    switches.attention_softmax_in_fp32 = flags.has("--attention-softmax-in-fp32") || switches.query_key_layer_scaling;
    switches.fp32_residual_connection = flags.has("--fp32-residual-connection");
    switches.deterministic = flags.has("--deterministic-mode");
    switches.gradient_checks = !flags.has("--no-check-for-nan-in-loss-and-grad");
    switches.log_params_norm = flags.has("--log-params-norm");
    switches.log_num_zeros_in_grad = flags.has("--log-num-zeros-in-grad");
    switches.defer_embedding_wgrad = flags.has("--defer-embedding-wgrad-compute");
    switches.wgrad_deferral_limit = flags.integer_or("--wgrad-deferral-limit", 0, 0, kSizeLimit);
    switches.gather_with_optimizer_step = flags.has("--overlap-param-gather-with-optimizer-step");
    switches.delay_wgrad = flags.has("--delay-wgrad-compute");
    switches.bucket_size = flags.integer_or("--ddp-bucket-size", 0, 0, std::int64_t{1} << 50);
    switches.num_buckets = flags.integer_or("--ddp-num-buckets", 0, 0, kSizeLimit);
    switches.fp8_output_projection = flags.has("--fp8-output-proj");
    switches.fp8_attention = flags.has("--fp8-dot-product-attention");
    switches.op_fuser = flags.has("--use-transformer-engine-op-fuser");
    switches.permute_in_hybrid_ep = flags.has("--moe-permute-fusion-into-hybridep");
    switches.activation_clamp = flags.real_or("--activation-func-clamp-value", 0, 0, 1e6);
    for (const char* flag : {"--moe-deepep-num-sms", "--moe-hybridep-num-sms", "--moe-flex-dispatcher-num-sms", "--turbo-deepep-num-cu"})
        switches.dispatcher_sms = flags.integer_or(flag, switches.dispatcher_sms, 0, 1024);
    switches.pad_buckets = flags.has("--ddp-pad-buckets-for-high-nccl-busbw");
    switches.reuse_grad_buffer = flags.has("--reuse-grad-buf-for-mxfp8-param-ag");
    // transformer_config.py, __post_init__.
    switches.offloaded_layers = flags.integer_or("--cpu-offloading-num-layers", 0, 0, ModelLimits::layers);
    if (switches.offloaded_layers > 0 && switches.offloaded_layers >= model.layers)
        flags.problem("--cpu-offloading-num-layers = {}: at most {} of the {} layers can wait in the host's memory; use fewer",
                      switches.offloaded_layers, model.layers - 1, model.layers);
    if (switches.offloaded_layers > 0 && flags.has("--recompute-granularity"))
        flags.problem("--cpu-offloading-num-layers and --recompute-granularity exclude each other; keep one");
}

/// --delay-wgrad-compute. Rules at d98e8a64: transformer_config.py, __post_init__; arguments.py, validate_args; of tp overlap
/// transformer_engine/pytorch/module/linear.py.
void check_delayed_gradients(FlagReader& flags, const Job& job, const TrainingSpec& training) {
    constexpr std::string_view kFlag = "--delay-wgrad-compute";
    if (!training.overlap_moe) flags.problem("{} needs --overlap-moe-expert-parallel-comm; add it, or remove the delay", kFlag);
    if (!training.megatron.transformer_engine) flags.problem("{} needs Transformer Engine; leave --transformer-impl local out", kFlag);
    // Megatron-LM lets it through, and published scripts have both.
    if (training.overlap_tp && job.layout && job.layout->tp > 1)
        flags.not_computed(kFlag, "weight gradients put off beside --tp-comm-overlap, at which Transformer Engine stops",
                           Decides::fit_and_legal);
    const bool graphed = job.layout && job.layout->cuda_graphs.contains(CudaGraphScope::attn) && training.overlap_grad_reduce;
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

/// --optimizer. dist_muon is the older name of Muon with the distributed optimizer.
void read_optimizer(FlagReader& flags, TrainingSpec& training) {
    const std::string name = flags.text("--optimizer").value_or("adam");
    OptimizerKind& kind = training.megatron.optimizer;
    if (name == "adam" || name == "adamw") return;
    for (const OptimizerKind known : {OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::muon, OptimizerKind::ademamix}) {
        if (name == to_string(known)) kind = known;
    }
    if (name == "dist_muon") {
        kind = OptimizerKind::muon;
        training.distributed_optimizer = true;
    }
    // core/optimizer/optimizer_config.py, __post_init__; of AdEMAMix's own fork nothing is known
    if ((kind == OptimizerKind::sgd || kind == OptimizerKind::lion || kind == OptimizerKind::muon) &&
        training.megatron.precision_aware_optimizer)
        flags.problem("--use-precision-aware-optimizer is Adam's, and here it is {}; leave one of them out", name);
    if (kind == OptimizerKind::adam)
        flags.not_computed("--optimizer", fmt::format("optimizer {}, predicted as Adam", FlagReader::shown(name)), Decides::fit);
}

/// FSDP of either kind. Rules: arguments.py, validate_args, at d98e8a64.
void read_fully_sharded(FlagReader& flags, const ModelSpec& model, TrainingSpec& training) {
    FullyShardedSpec& spec = training.megatron.fully_sharded;
    const bool torch = flags.has("--use-torch-fsdp2"), megatron = flags.has("--use-megatron-fsdp") || flags.has("--use-custom-fsdp");
    spec.strategy = flags.choice<ShardingStrategy>("--data-parallel-sharding-strategy", ShardingStrategy::no_shard,
                                                   {{"no_shard", ShardingStrategy::no_shard},
                                                    {"optim", ShardingStrategy::optim},
                                                    {"optim_grads", ShardingStrategy::optim_grads},
                                                    {"optim_grads_params", ShardingStrategy::optim_grads_params}});
    spec.outer_optimizer = flags.choice<bool>("--outer-dp-sharding-strategy", false, {{"no_shard", false}, {"optim", true}});
    spec.double_buffer = flags.has("--fsdp-double-buffer") || flags.has("--use-nccl-ub") || flags.has("--nccl-ub") ||
                         flags.has("--megatron-fsdp-max-pool-double-buffer");
    spec.reshard_after_forward = !flags.has("--torch-fsdp2-no-reshard-after-forward");
    spec.keep_fp8_transposes = flags.has("--keep-fp8-transpose-cache");
    spec.communication_unit = flags.integer_or("--suggested-communication-unit-size", 0, 1, std::int64_t{1} << 50);
    using Type = std::optional<Dtype>;
    const Choices<Type> types{{"auto", Type()}, {"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}};
    spec.main_params = flags.choice<Type>("--megatron-fsdp-main-params-dtype", Dtype::fp32, types);
    spec.main_grads = flags.choice<Type>("--megatron-fsdp-main-grads-dtype", Type(), types);
    spec.communicated_grads = flags.choice<Type>("--megatron-fsdp-grad-comm-dtype", Type(), types);
    if (flags.integer_or("--megatron-fsdp-version", 1, 1, 2) == 2)
        flags.not_computed("--megatron-fsdp-version", "the second version of Megatron FSDP, predicted as the first", Decides::fit);
    if (!torch && !megatron) {
        spec = {};
        return;
    }
    const bool emerging = training.megatron.optimizer != OptimizerKind::adam && training.megatron.optimizer != OptimizerKind::sgd;
    if (torch && megatron) flags.problem("--use-torch-fsdp2 and --use-megatron-fsdp exclude each other; keep one");
    if (emerging)
        flags.problem("--optimizer {} cannot be sharded by {}; use adam or sgd, or leave FSDP out", to_string(training.megatron.optimizer),
                      torch ? "PyTorch FSDP2" : "Megatron FSDP");
    const std::string format = flags.text("--ckpt-format").value_or(megatron ? "fsdp_dtensor" : "torch_dist");
    if (torch) {
        const bool reshards = spec.reshard_after_forward;
        spec = {};
        spec.kind = FullyShardedKind::torch_fsdp2;
        spec.strategy = ShardingStrategy::optim_grads_params;
        spec.reshard_after_forward = reshards;
        if (training.distributed_optimizer)
            flags.problem("--use-torch-fsdp2 shards the optimizer's state itself; drop --use-distributed-optimizer");
        if (training.megatron.gradient_accumulation_fusion)
            flags.problem("--use-torch-fsdp2 needs --no-gradient-accumulation-fusion; add it");
        if (model.tied_embeddings) flags.problem("--use-torch-fsdp2 needs --untie-embeddings-and-output-weights; add it");
        if (training.precision == Precision::fp16) flags.problem("--use-torch-fsdp2 does not train in fp16; use --bf16");
        if (format != "torch_dist" && format != "torch_dcp")
            flags.problem("--use-torch-fsdp2 needs --ckpt-format torch_dist or torch_dcp, not {}", FlagReader::shown(format));
        // Megatron-LM turns it off with a warning: Transformer Engine 2.0 gathers 16 bits.
        training.fp8_parameters = false;
    } else {
        spec.kind = FullyShardedKind::megatron_fsdp;
        if (format != "fsdp_dtensor")
            flags.problem("--use-megatron-fsdp needs --ckpt-format fsdp_dtensor, not {}", FlagReader::shown(format));
        if (spec.outer_optimizer && training.distributed_optimizer_instances > 1 && !spec.shards_parameters())
            flags.problem("--outer-dp-sharding-strategy optim needs --data-parallel-sharding-strategy optim_grads_params, not {}",
                          to_string(spec.strategy));
        // Set by validate_args whatever the command says.
        training.distributed_optimizer = true;
    }
    if (spec.shards_gradients()) training.overlap_grad_reduce = true;
    if (spec.shards_parameters()) training.overlap_param_gather = true;
}

/// --optimizer-cpu-offload and its settings.
void read_host_optimizer(FlagReader& flags, TrainingSpec& training) {
    constexpr std::string_view kSwitch = "--optimizer-cpu-offload", kShare = "--optimizer-offload-fraction",
                               kOverlap = "--overlap-cpu-optimizer-d2h-h2d";
    const double share = flags.real_or(kShare, 1, 0, 1);
    if (!flags.has(kSwitch)) {
        for (const std::string_view flag : {kShare, kOverlap}) flags.idle(flag);
        return;
    }
    training.offload.optimizer = share;
    training.megatron.overlap_host_update = flags.has(kOverlap);
    if (!training.megatron.precision_aware_optimizer) flags.problem("{} needs --use-precision-aware-optimizer; add it", kSwitch);
}

/// --chunked-optimizer-state-offload and its settings, of Megatron-LM's branch dev (at d48bd6be), and the name that it had before, which
/// takes Adam alone (optimizer_config.py, __post_init__).
void read_waiting_states(FlagReader& flags, TrainingSpec& training) {
    constexpr std::string_view kShare = "--optimizer-state-offload-fraction", kChunk = "--optimizer-state-offload-chunk-size-mb";
    const bool former = flags.has("--offload-optimizer-states");
    const bool chunked = flags.has("--chunked-optimizer-state-offload");
    const double share = flags.real_or(kShare, 1, 0, 1);
    const std::int64_t chunk = flags.integer_or(kChunk, 0, 0, kMostOffloadChunk);
    if (!former && !chunked) {
        for (const std::string_view flag : {kShare, kChunk}) flags.idle(flag);
    }
    if ((!former && !chunked) || share == 0) {
        for (const std::string_view flag : {"--async-save", "--no-save-optim", "--no-load-optim"}) flags.idle(flag);
        return;
    }
    training.offload.states = share;
    training.megatron.offload_chunk_mib = chunk;
    if (former && training.megatron.optimizer == OptimizerKind::muon)
        flags.problem("--offload-optimizer-states is for Adam; use --chunked-optimizer-state-offload");
    const std::string_view asked = former ? "--offload-optimizer-states" : "--chunked-optimizer-state-offload";
    const std::string format = flags.text("--ckpt-format").value_or("torch_dist");
    const bool saves = !flags.has("--no-save-optim"), loads = !flags.has("--no-load-optim");
    if (format != "torch_dist" && (saves || loads))
        flags.problem(
            "{} needs --ckpt-format torch_dist where optimizer state is saved or loaded, not {}; or add --no-save-optim and "
            "--no-load-optim",
            asked, FlagReader::shown(format));
    if (saves && flags.has("--async-save")) flags.problem("{} does not go with --async-save; leave one out, or add --no-save-optim", asked);
}

/// --fine-grained-activation-offloading and its settings.
void read_offloaded_modules(FlagReader& flags, TrainingSpec& training) {
    constexpr std::string_view kSwitch = "--fine-grained-activation-offloading", kModules = "--offload-modules",
                               kFraction = "--activation-offload-fraction", kDelta = "--delta-offload-bytes-across-pp-ranks",
                               kLeast = "--min-offloaded-tensor-size";
    const std::int64_t bytes = std::int64_t{1} << 50;
    training.megatron.least_offloaded = flags.integer_or(kLeast, kLeastOffloaded, 0, bytes);
    const double fraction = flags.real_or(kFraction, 1, 0, 1);
    const std::int64_t delta = flags.integer_or(kDelta, 0, 0, bytes);
    const std::vector<std::string> words = flags.texts(kModules);
    if (!flags.has(kSwitch)) {
        training.megatron.least_offloaded = kLeastOffloaded;
        for (const std::string_view flag : {kModules, kFraction, kDelta, kLeast}) flags.idle(flag);
        return;
    }
    if (words.empty()) flags.problem("{} needs --offload-modules; name some, such as core_attn", kSwitch);
    std::vector<std::string> names;
    for (const OffloadModule module : kOffloadModules) names.emplace_back(to_string(module));
    for (const std::string& word : words) {
        if (const auto module = parse_offload_module(word))
            training.offload.modules.add(*module);
        else if (word == "fused_group_mlp" || word == "gdp_qkv")
            flags.not_computed(kModules, fmt::format("offloading {} to the host", word), Decides::fit);
        else
            flags.problem("{} = '{}' is no module that is offloaded; use {}", kModules, FlagReader::shown(word), any_of_text(names));
    }
    if (fraction < 1) flags.not_computed(kFraction, "a part of the offloaded groups stays on the device", Decides::fit);
    if (delta > 0) flags.not_computed(kDelta, "later stages offload less", Decides::fit);
}

/// What waits in the host's memory. Rules: plan/layout/megatron_offload.hpp.
void read_offloading(FlagReader& flags, const Job& job, TrainingSpec& training) {
    read_host_optimizer(flags, training);
    read_waiting_states(flags, training);
    read_offloaded_modules(flags, training);
    if (flags.has("--cpu-offloading")) {
        if (flags.has("--recompute-granularity"))
            flags.problem("--cpu-offloading and --recompute-granularity exclude each other; keep one");
        if (job.layout && job.layout->pp > 1) flags.problem("--cpu-offloading works without a pipeline only; use a pipeline size of 1");
    }
    BesideOffload beside;
    if (job.layout) {
        beside.full_recompute = job.layout->recompute == Recompute::full;
        if (job.layout->recompute == Recompute::selective) beside.recomputed = job.layout->recompute_modules;
        beside.graphs = job.layout->cuda_graphs;
    }
    for (const std::string& obstacle : megatron_offload_obstacles(training, beside)) flags.problem("{}", obstacle);
    const UnpredictedOffload missing = unpredicted_megatron_offload(job.model, training, beside);
    if (!missing.optimizer.empty()) {
        flags.not_computed("--optimizer-cpu-offload", missing.optimizer.front(), Decides::fit);
        training.offload.optimizer = 0;
    }
    if (!missing.modules.empty()) {
        flags.not_computed("--fine-grained-activation-offloading", missing.modules.front(), Decides::fit);
        training.offload.modules = {};
    }
}

}  // namespace

void read_training(FlagReader& flags, Job& job, MegatronSwitches switches) {
    TrainingSpec training;
    training.megatron = switches;
    read_precision(flags, training);
    read_attention(flags, training);
    read_switches(flags, job.model, training.megatron);
    read_layers_in_bf16(flags, job, training);
    training.distributed_optimizer = flags.has("--use-distributed-optimizer");
    training.distributed_optimizer_instances =
        static_cast<int>(flags.integer_or("--num-distributed-optimizer-instances", 1, 1, kSizeLimit));
    training.overlap_grad_reduce = flags.has("--overlap-grad-reduce");
    training.overlap_param_gather = flags.has("--overlap-param-gather");
    training.overlap_p2p = !flags.has("--no-overlap-p2p-communication");
    training.overlap_tp = flags.has("--tp-comm-overlap");
    training.overlap_moe = flags.has("--overlap-moe-expert-parallel-comm");
    if (training.megatron.delay_wgrad) check_delayed_gradients(flags, job, training);
    training.fused_cross_entropy = flags.has("--cross-entropy-loss-fusion");
    read_optimizer(flags, training);
    read_fully_sharded(flags, job.model, training);
    read_legacy_experts(flags, job.model, training);
    read_offloading(flags, job, training);
    read_expert_buffers(flags, job, training);
    read_weight_shards(flags, job, training);
    training.megatron.forced_routing = flags.has("--moe-router-force-load-balancing");
    const bool muon = training.megatron.optimizer == OptimizerKind::muon, sharded = training.megatron.fully_sharded.active();
    if (training.overlap_param_gather && !training.distributed_optimizer && !sharded && !muon)
        flags.problem("--overlap-param-gather needs --use-distributed-optimizer; add it");
    if (training.overlap_param_gather && !training.overlap_grad_reduce)
        flags.problem("--overlap-param-gather needs --overlap-grad-reduce; add it");
    read_hyper_connections(flags, job, training);
    job.training = training;
}

}  // namespace mgplan::formats
