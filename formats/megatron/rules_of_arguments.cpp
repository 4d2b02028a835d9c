#include <array>

#include "formats/megatron/argument_rules.hpp"
#include "plan/text/text.hpp"

// megatron/training/arguments.py, validate_args, of Megatron-LM at d98e8a64.

namespace mgplan::formats {
namespace {

using C = const CommandFlags&;

constexpr auto kParser = RuleSource::arguments;

bool has_fsdp(C c) {
    return c.has_one_of("--use-megatron-fsdp --use-custom-fsdp --use-torch-fsdp2");
}

/// Either iterations or samples are given, and something is trained. Where both are, Megatron-LM stops at that, which published commands
/// leave to other releases (megatron_rules.cpp, read_length).
bool trains_by(C c, std::string_view length, std::string_view other) {
    return !c.has("--skip-train") && c.whole(length, 0).value_or(0) > 0 && !c.has(other);
}

bool trains_by_iterations(C c) {
    return trains_by(c, "--train-iters", "--train-samples");
}

bool trains_by_samples(C c) {
    return trains_by(c, "--train-samples", "--train-iters");
}

/// A number is given that is not 0.
bool sets(C c, std::string_view flag) {
    return c.whole(flag, 0).value_or(0) != 0;
}

/// Tensor parallelism that is known to be off.
bool is_on_one_tensor_rank(C c) {
    return c.whole("--tensor-model-parallel-size", 1) == 1;
}

/// bias_activation_fusion (argument_utils.py, core_transformer_config_from_args); validate_args turns GELU's off without biases.
bool fuses_bias_and_activation(C c) {
    if (c.has("--swiglu")) return !c.has("--no-bias-swiglu-fusion");
    return !c.has("--no-bias-gelu-fusion") && !c.has("--disable-bias-linear");
}

bool splits_context_otherwise(C c) {
    const auto cp = c.whole("--context-parallel-size", 1);
    std::int64_t product = 1;
    for (const std::string& word : c.words("--hierarchical-context-parallel-sizes")) {
        const auto size = parse_integer(word);
        if (!size || *size < 1 || *size > (std::int64_t{1} << 20) || product > (std::int64_t{1} << 40)) return false;
        product *= *size;
    }
    return cp && c.has("--hierarchical-context-parallel-sizes") && !c.words("--hierarchical-context-parallel-sizes").empty() &&
           product != *cp;
}

/// Several chunks of layers for the only rank of a pipeline; not where they are not known.
bool has_chunks_on_one_rank(C c) {
    if (c.has_pattern() || c.whole("--pipeline-model-parallel-size", 1) != 1) return false;
    if (c.whole("--num-virtual-stages-per-pipeline-rank", 1).value_or(1) > 1) return true;
    const auto of_chunk = c.whole("--num-layers-per-virtual-pipeline-stage", 0), layers = c.whole("--num-layers", 0);
    return of_chunk && layers && *of_chunk > 0 && *layers / *of_chunk > 1;
}

/// The environment sets a number of hardware queues other than the one that tensor and context parallelism need.
bool lacks_one_queue(C c) {
    const auto queues = c.variable("CUDA_DEVICE_MAX_CONNECTIONS");
    const auto above_one = [&](std::string_view size) { return c.whole(size, 1).value_or(1) > 1; };
    return queues && *queues != "1" && c.is_before_blackwell() && !has_fsdp(c) && !c.has("--overlap-moe-expert-parallel-comm") &&
           (above_one("--tensor-model-parallel-size") || above_one("--context-parallel-size"));
}

constexpr auto kArgumentRules = std::to_array<ArgumentRule>({
    {kParser, 582, "--hierarchical-context-parallel-sizes", splits_context_otherwise,
     "does not multiply to --context-parallel-size; give sizes whose product is that"},
    {kParser, 584, "--cp-comm-type",
     [](C c) { return c.lists("--cp-comm-type", "a2a+p2p") && !c.has("--hierarchical-context-parallel-sizes"); },
     "needs --hierarchical-context-parallel-sizes; add the sizes of both exchanges, such as 2 4 for --context-parallel-size 8"},
    {kParser, 613, "--cuda-graph-impl",
     [](C c) {
         return c.has_one_of("--enable-cuda-graph --external-cuda-graph") && c.has("--cuda-graph-impl") &&
                c.is_none_of("--cuda-graph-impl", "none");
     },
     "does not go with --enable-cuda-graph or --external-cuda-graph, its old names; keep --cuda-graph-impl"},
    {kParser, 616, "--enable-cuda-graph", [](C c) { return c.has("--enable-cuda-graph") && c.has("--external-cuda-graph"); },
     "does not go with --external-cuda-graph; give --cuda-graph-impl local or transformer_engine in their place"},
    {kParser, 634, "--cuda-graph-scope", [](C c) { return c.has("--cuda-graph-scope") && c.has("--cuda-graph-modules"); },
     "is the old name of --cuda-graph-modules, and both are given; keep --cuda-graph-modules"},
    // Line 1631 makes rope of --use-rotary-position-embeddings later; that such a command stops is not held against it.
    {kParser, 883, "--mtp-num-layers",
     [](C c) {
         return sets(c, "--mtp-num-layers") && !c.has("--use-rotary-position-embeddings") &&
                c.is_none_of("--position-embedding-type", "rope none", "learned_absolute");
     },
     "needs rotary positions or none; add --position-embedding-type rope (learned_absolute is the default)",
     {Exemption::checkpoint_model}},
    {kParser, 1002, "--pipeline-model-parallel-size", has_chunks_on_one_rank,
     "has no interleaved schedule; give 2 or more, or one chunk of layers (--num-virtual-stages-per-pipeline-rank 1)",
     {Exemption::checkpoint_sizes}},
    {kParser, 1048, "--use-torch-fsdp2",
     [](C c) { return c.has("--use-torch-fsdp2") && c.variable("CUDA_DEVICE_MAX_CONNECTIONS") == "1"; },
     "does not go with CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment; unset it"},
    {kParser, 1067, "--overlap-param-gather-with-optimizer-step",
     [](C c) {
         return c.has("--overlap-param-gather-with-optimizer-step") && !c.has("--use-distributed-optimizer") && !c.is_of_slime();
     },
     "needs --use-distributed-optimizer; add it"},
    {kParser, 1069, "--overlap-param-gather-with-optimizer-step",
     [](C c) { return c.has("--overlap-param-gather-with-optimizer-step") && !c.has("--overlap-param-gather"); },
     "needs --overlap-param-gather; add it"},
    {kParser, 1071, "--overlap-param-gather-with-optimizer-step",
     [](C c) { return c.has("--overlap-param-gather-with-optimizer-step") && !c.may_have_chunks(); },
     "needs the interleaved schedule; give --num-virtual-stages-per-pipeline-rank, or remove it"},
    // Without --ckpt-format it stops too, by the default; runs of Megatron-Bridge, which has other defaults, are written as commands so.
    {kParser, 1073, "--ckpt-format",
     [](C c) {
         return c.has("--overlap-param-gather-with-optimizer-step") && c.has("--ckpt-format") && c.is_none_of("--ckpt-format", "torch");
     },
     "does not go with --overlap-param-gather-with-optimizer-step; give --ckpt-format torch, or remove the overlap"},
    {kParser, 1096, "--fp8-param-gather",
     [](C c) {  // a command without training is let through
         return c.has("--fp8-param-gather") && !c.has("--use-distributed-optimizer") && !has_fsdp(c) && !c.is_of_slime() &&
                c.has_one_of("--train-iters --train-samples");
     },
     "needs --use-distributed-optimizer or FSDP; add the former, or remove it"},
    {kParser, 1104, "--fp4-param-gather", [](C c) { return c.has("--fp4-param-gather") && c.word("--fp4-format") == ""; },
     "needs --fp4-format; add --fp4-format e2m1, or remove it"},
    {kParser, 1166, "--use-megatron-fsdp",
     [](C c) {
         return c.has_one_of("--use-megatron-fsdp --use-custom-fsdp") && c.variable("CUDA_DEVICE_MAX_CONNECTIONS") == "1";
     },
     "does not go with CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment; unset it"},
    {kParser, 1236, "--cuda-graph-impl",
     [](C c) {
         // fp16 with a dynamic loss scale turns the checks off.
         // The scope of that name is the old way to say it; a command without training, as records of published runs are, is let through.
         const bool whole = c.is("--cuda-graph-impl", "full_iteration") ||
                            (c.is("--cuda-graph-impl", "local") && c.lists("--cuda-graph-scope", "full_iteration") &&
                             c.has_one_of("--train-iters --train-samples"));
         return whole && !c.has("--no-check-for-nan-in-loss-and-grad") &&
                !(c.has("--fp16") && c.real("--loss-scale", 0).value_or(0) == 0);
     },
     "does not go with checks for NaN, which are the default; add --no-check-for-nan-in-loss-and-grad"},
    {kParser, 1258, "--num-dataset-builder-threads", [](C c) { return c.whole("--num-dataset-builder-threads", 1).value_or(1) <= 0; },
     "is no number of threads; give at least 1"},
    {kParser, 1281, "--lr-decay-samples", [](C c) { return trains_by_iterations(c) && c.has("--lr-decay-samples"); },
     "does not go with --train-iters; give --lr-decay-iters in its place"},
    {kParser, 1283, "--lr-warmup-samples", [](C c) { return trains_by_iterations(c) && sets(c, "--lr-warmup-samples"); },
     "does not go with --train-iters; give --lr-warmup-iters in its place"},
    {kParser, 1286, "--lr-warmup-fraction",
     [](C c) { return trains_by_iterations(c) && c.has("--lr-warmup-fraction") && sets(c, "--lr-warmup-iters"); },
     "does not go with --lr-warmup-iters; keep one of them"},
    {kParser, 1295, "--lr-decay-iters", [](C c) { return trains_by_samples(c) && c.has("--lr-decay-iters"); },
     "does not go with --train-samples; give --lr-decay-samples in its place"},
    {kParser, 1297, "--lr-warmup-iters", [](C c) { return trains_by_samples(c) && sets(c, "--lr-warmup-iters"); },
     "does not go with --train-samples; give --lr-warmup-samples in its place"},
    {kParser, 1300, "--lr-warmup-fraction",
     [](C c) { return trains_by_samples(c) && c.has("--lr-warmup-fraction") && sets(c, "--lr-warmup-samples"); },
     "does not go with --lr-warmup-samples; keep one of them"},
    {kParser, 1332, "--num-attention-heads",
     [](C c) {
         const auto heads = c.whole("--num-attention-heads", 0), hidden = c.whole("--hidden-size", 0);
         return c.has("--multi-latent-attention") && !c.has("--kv-channels") && heads && hidden && *heads > 0 && *hidden % *heads != 0;
     },
     "does not divide --hidden-size, which is asked of latent attention too; add --kv-channels, which it does not read",
     {Exemption::checkpoint_model}},
    {kParser, 1360, "--min-lr",
     [](C c) {
         const auto lr = c.real("--lr", 0), least = c.real("--min-lr", 0);
         return c.has("--lr") && lr && least && *least > *lr;
     },
     "is more than --lr; give at most that"},
    {kParser, 1363, "--save-interval", [](C c) { return c.has("--save") && c.whole("--save-interval", 1).value_or(1) <= 0; },
     "is no number of steps; give at least 1"},
    {kParser, 1373, "--fp16-lm-cross-entropy", [](C c) { return c.has("--fp16-lm-cross-entropy") && !c.has("--fp16"); },
     "needs --fp16; remove it"},
    {kParser, 1375, "--fp32-residual-connection",
     [](C c) { return c.has("--fp32-residual-connection") && !c.has_one_of("--fp16 --bf16") && !c.is_of_slime(); },
     "needs --bf16 or --fp16; without them everything is fp32, so remove it"},
    {kParser, 1394, "--start-weight-decay",
     [](C c) { return c.has("--start-weight-decay") && c.is("--weight-decay-incr-style", "constant", "constant"); },
     "does not go with a constant weight decay, which is the default; add --weight-decay-incr-style linear, or remove it"},
    {kParser, 1395, "--end-weight-decay",
     [](C c) { return c.has("--end-weight-decay") && c.is("--weight-decay-incr-style", "constant", "constant"); },
     "does not go with a constant weight decay, which is the default; add --weight-decay-incr-style linear, or remove it"},
    {kParser, 1399, "--weight-decay-incr-style",
     [](C c) {
         return c.is_none_of("--weight-decay-incr-style", "constant", "constant") &&
                !(c.has("--start-weight-decay") && c.has("--end-weight-decay"));
     },
     "needs --start-weight-decay and --end-weight-decay; add them"},
    {kParser, 1411, "--distribute-saved-activations",
     [](C c) { return c.has("--distribute-saved-activations") && is_on_one_tensor_rank(c); },
     "needs tensor parallelism; give --tensor-model-parallel-size 2 or more, or remove it",
     {Exemption::checkpoint_sizes}},
    {kParser, 1414, "--distribute-saved-activations",
     [](C c) {
         return c.has("--distribute-saved-activations") &&
                (c.has("--recompute-activations") || c.is_none_of("--recompute-granularity", "full", "none"));
     },
     "needs --recompute-granularity full, without --recompute-activations; give that, or remove --distribute-saved-activations"},
    {kParser, 1426, "--recompute-method", [](C c) { return c.recomputes_selectively() && c.has("--recompute-method"); },
     "does not go with selective recompute; remove it, or give --recompute-granularity full"},
    // On one tensor rank it stops too; published commands have it there, where it has no effect.
    {kParser, 1442, "--tp-comm-overlap",
     [](C c) {
         return c.has("--tp-comm-overlap") && !c.has("--sequence-parallel") && c.whole("--tensor-model-parallel-size", 1).value_or(1) > 1;
     },
     "needs sequence parallelism; add --sequence-parallel, or remove it",
     {Exemption::checkpoint_sizes}},
    {kParser, 1477, "--tensor-model-parallel-size", lacks_one_queue,
     "(or --context-parallel-size) above 1 needs CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment before Blackwell; export it",
     {Exemption::checkpoint_sizes}},
    {kParser, 1541, "--tensor-parallel-num-weight-shards",
     [](C c) {
         const auto priority = c.variable("CUDA_GRAPHS_USE_NODE_PRIORITY");
         return c.has_one_of("--tensor-parallel-num-weight-shards --expert-tensor-parallel-num-weight-shards") && c.has("--cuda-graph-impl") &&
                c.is_none_of("--cuda-graph-impl", "none") && c.is_since_blackwell() && priority && *priority != "1";
     },
     "with CUDA graphs needs CUDA_GRAPHS_USE_NODE_PRIORITY=1 in the environment from Blackwell on; export it"},
    {kParser, 1615, "--qk-clip-alpha",
     [](C c) {
         const auto alpha = c.real("--qk-clip-alpha", 0.5);
         return c.has("--qk-clip") && alpha && !(*alpha > 0 && *alpha < 1);
     },
     "is no share between 0 and 1, which --qk-clip needs; give one such as 0.5"},
    {kParser, 1617, "--qk-clip-threshold",
     [](C c) { return c.has("--qk-clip") && c.real("--qk-clip-threshold", 100).value_or(1) <= 0; },
     "is no bound on the logits, which --qk-clip needs; give one above 0, such as 100"},
    {kParser, 1633, "--no-position-embedding",
     [](C c) {
         return c.has("--no-position-embedding") && !c.has("--use-rotary-position-embeddings") &&
                c.is_none_of("--position-embedding-type", "rope", "learned_absolute");
     },
     "goes with rotary positions alone; give --position-embedding-type none or rope in its place",
     {Exemption::checkpoint_model}},
    {kParser, 1644, "--position-embedding-type",
     [](C c) {
         return c.is("--position-embedding-type", "mrope") && !c.has("--use-rotary-position-embeddings") && !c.has("--mrope-section");
     },
     "needs --mrope-section; add it",
     {Exemption::checkpoint_model}},
    {kParser, 1668, "--ckpt-format", [](C c) { return c.is("--ckpt-format", "torch_dcp") && !c.has("--use-torch-fsdp2"); },
     "needs --use-torch-fsdp2; give --ckpt-format torch_dist in its place"},
    {kParser, 1669, "--ckpt-format",
     [](C c) { return c.is("--ckpt-format", "torch_dcp") && c.whole("--tensor-model-parallel-size", 1).value_or(1) > 1; },
     "does not go with tensor parallelism; give --ckpt-format torch_dist in its place",
     {Exemption::checkpoint_sizes}},
    {kParser, 1671, "--ckpt-format",
     [](C c) { return c.is("--ckpt-format", "torch_dcp") && c.whole("--pipeline-model-parallel-size", 1).value_or(1) > 1; },
     "does not go with a pipeline; give --ckpt-format torch_dist in its place",
     {Exemption::checkpoint_sizes}},
    {kParser, 1676, "--ckpt-format",
     [](C c) { return c.is("--ckpt-format", "fsdp_dtensor") && !c.has_one_of("--use-megatron-fsdp --use-custom-fsdp"); },
     "needs --use-megatron-fsdp; give --ckpt-format torch_dist in its place"},
    {kParser, 1741, "--ckpt-format",
     [](C c) {
         return c.is_none_of("--optimizer", "adam sgd", "adam") && c.is_none_of("--ckpt-format", "torch torch_dist", "torch_dist");
     },
     "does not go with optimizers other than adam and sgd; give --ckpt-format torch_dist"},
    {kParser, 1750, "--disable-gloo-process-groups",
     [](C c) {
         return c.has_one_of("--disable-gloo-process-groups --no-use-gloo-process-groups") && c.has("--use-distributed-optimizer") &&
                c.is_none_of("--optimizer", "muon dist_muon lion soap adaptive_muon", "adam") && c.is("--ckpt-format", "torch");
     },
     "does not go with --ckpt-format torch under the distributed optimizer; give --ckpt-format torch_dist"},
    {kParser, 1812, "--load-main-params-from-ckpt", [](C c) { return c.has("--load-main-params-from-ckpt") && !c.has("--no-load-optim"); },
     "needs --no-load-optim; add it"},
    {kParser, 1852, "--override-ckpt-iteration", [](C c) { return c.has("--override-ckpt-iteration") && c.has("--finetune"); },
     "does not go with --finetune; keep one of them"},
    {kParser, 1939, "--fine-grained-activation-offloading",
     [](C c) {
         const auto former = c.variable("NVTE_CPU_OFFLOAD_V1");
         return c.has("--fine-grained-activation-offloading") && former && *former != "1";
     },
     "needs NVTE_CPU_OFFLOAD_V1=1 in the environment; export it"},
    {kParser, 1982, "--moe-latent-size", [](C c) { return c.has("--moe-latent-size") && c.gives_no_experts(); },
     "is the width that experts compute in, and there are none; give --num-experts, or remove it",
     {Exemption::checkpoint_model}},
    {kParser, 1864, "--moe-use-upcycling", [](C c) { return c.has("--moe-use-upcycling") && !c.has("--save"); },
     "needs --save, where the converted model goes; add it"},
    // transformer_config.py, by what validate_args makes of the flags: the configuration by itself fuses nothing.
    {RuleSource::transformer, 2421, "--squared-relu", [](C c) { return c.has("--squared-relu") && !c.has("--swiglu") && fuses_bias_and_activation(c); },
     "has no kernel that adds a bias; add --disable-bias-linear or --no-bias-gelu-fusion"},
    {RuleSource::transformer, 2446, "--use-te-activation-func",
     [](C c) { return c.has("--use-te-activation-func") && fuses_bias_and_activation(c); },
     "does not go with fused biases; add --no-bias-swiglu-fusion with --swiglu, else --no-bias-gelu-fusion"},
});

}  // namespace

std::span<const ArgumentRule> rules_of_arguments() {
    return kArgumentRules;
}

}  // namespace mgplan::formats
