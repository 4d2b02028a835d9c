// The assertions of Megatron-LM's own argument check: a command that breaks each, and its neighbour that does not.

#include <algorithm>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/argument_rules.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "tests/formats/megatron/read_flags.hpp"

namespace mgplan::formats::argument_rules_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using tests::megatron::kSmall, tests::megatron::read, tests::megatron::refusal;

/// A command breaks the rule of that source and line, for which the message says all of `says`; `legal` does not.
struct Case {
    RuleSource source;
    int line;
    std::string_view broken, says, legal;
    std::string_view variable = "";  ///< of the environment
    std::string_view value = "";     ///< that it is broken with
    int compute_capability = 90;
};

JobSurroundings surroundings_of(const Case& one) {
    JobSurroundings around{.compute_capability = one.compute_capability};
    if (!one.variable.empty()) around.environment.emplace(one.variable, one.value);
    return around;
}

/// Why flags are refused in a script that exports the case's variable with that value.
std::string refusal_in(const Case& one, std::string_view flags, std::string_view value) {
    std::string script = kSmall + std::string(flags);
    if (!one.variable.empty()) script = fmt::format("export {}={}\ntorchrun pretrain_gpt.py {}\n", one.variable, value, script);
    try {
        (void)read_megatron_text(script, "run.sh", {.compute_capability = one.compute_capability});
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

constexpr auto kArguments = RuleSource::arguments, kLayers = RuleSource::transformer;

const std::vector<Case>& cases() {
    static const std::vector<Case> all{
        {kArguments, 582, "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4",
         "--hierarchical-context-parallel-sizes = 2 does not multiply to --context-parallel-size",
         "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
        {kArguments, 584, "--context-parallel-size 4 --cp-comm-type a2a+p2p", "needs --hierarchical-context-parallel-sizes",
         "--context-parallel-size 4 --cp-comm-type a2a"},
        {kArguments, 613, "--enable-cuda-graph --cuda-graph-impl local", "--cuda-graph-impl = local does not go with --enable-cuda-graph",
         "--enable-cuda-graph --cuda-graph-impl none"},
        {kArguments, 616, "--enable-cuda-graph --external-cuda-graph", "does not go with --external-cuda-graph", "--external-cuda-graph"},
        {kArguments, 634, "--cuda-graph-impl local --cuda-graph-scope attn --cuda-graph-modules attn", "keep --cuda-graph-modules",
         "--cuda-graph-impl local --cuda-graph-modules attn"},
        {kArguments, 883, "--mtp-num-layers 1", "--mtp-num-layers = 1 needs rotary positions or none",
         "--mtp-num-layers 1 --position-embedding-type rope"},
        {kArguments, 1002, "--num-layers-per-virtual-pipeline-stage 2", "--pipeline-model-parallel-size has no interleaved schedule",
         "--num-layers-per-virtual-pipeline-stage 4"},
        {kArguments, 1048, "--bf16 --use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights",
         "--use-torch-fsdp2 does not go with CUDA_DEVICE_MAX_CONNECTIONS=1",
         "--bf16 --use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights", "CUDA_DEVICE_MAX_CONNECTIONS",
         "1"},
        {kArguments, 1067, "--overlap-param-gather-with-optimizer-step", "needs --use-distributed-optimizer", ""},
        {kArguments, 1069, "--overlap-param-gather-with-optimizer-step --use-distributed-optimizer", "needs --overlap-param-gather", ""},
        {kArguments, 1071, "--overlap-param-gather-with-optimizer-step", "needs the interleaved schedule", ""},
        {kArguments, 1073, "--overlap-param-gather-with-optimizer-step --ckpt-format torch_dist",
         "--ckpt-format = torch_dist does not go with --overlap-param-gather-with-optimizer-step",
         "--overlap-param-gather-with-optimizer-step --use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce "
         "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --ckpt-format torch"},
        {kArguments, 1096, "--bf16 --fp8-format hybrid --fp8-param-gather --train-iters 10", "needs --use-distributed-optimizer or FSDP",
         "--bf16 --fp8-format hybrid --fp8-param-gather --use-distributed-optimizer"},
        {kArguments, 1104, "--bf16 --fp4-param-gather", "needs --fp4-format", "--bf16 --fp4-format e2m1 --fp4-param-gather"},
        {kArguments, 1166, "--bf16 --use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer",
         "--use-megatron-fsdp does not go with CUDA_DEVICE_MAX_CONNECTIONS=1",
         "--bf16 --use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer", "CUDA_DEVICE_MAX_CONNECTIONS", "1"},
        {kArguments, 1236, "--cuda-graph-impl full_iteration", "add --no-check-for-nan-in-loss-and-grad",
         "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad"},
        {kArguments, 1236, "--train-iters 9 --cuda-graph-impl local --cuda-graph-scope full_iteration",
         "add --no-check-for-nan-in-loss-and-grad", ""},
        {kArguments, 1258, "--num-dataset-builder-threads 0", "= 0 is no number of threads", "--num-dataset-builder-threads 2"},
        {kArguments, 1281, "--train-iters 100 --lr-decay-samples 50", "--lr-decay-samples = 50 does not go with --train-iters",
         "--train-iters 100 --lr-decay-iters 50"},
        {kArguments, 1283, "--train-iters 100 --lr-warmup-samples 5", "--lr-warmup-samples = 5 does not go with --train-iters",
         "--train-iters 100 --lr-warmup-samples 0"},
        {kArguments, 1286, "--train-iters 100 --lr-warmup-fraction 0.1 --lr-warmup-iters 5", "does not go with --lr-warmup-iters",
         "--train-iters 100 --lr-warmup-fraction 0.1 --lr-warmup-iters 0"},
        {kArguments, 1295, "--train-samples 100 --lr-decay-iters 50", "--lr-decay-iters = 50 does not go with --train-samples",
         "--train-samples 100 --lr-decay-samples 50"},
        {kArguments, 1297, "--train-samples 100 --lr-warmup-iters 5", "--lr-warmup-iters = 5 does not go with --train-samples",
         "--train-samples 100 --lr-warmup-iters 5 --skip-train"},
        {kArguments, 1300, "--train-samples 100 --lr-warmup-fraction 0.1 --lr-warmup-samples 5", "does not go with --lr-warmup-samples",
         "--train-samples 100 --lr-warmup-samples 5"},
        {kArguments, 1332, "--hidden-size 500 --multi-latent-attention", "--num-attention-heads = 8 does not divide --hidden-size",
         "--hidden-size 500 --multi-latent-attention --kv-channels 64"},
        {kArguments, 1360, "--lr 1e-4 --min-lr 1e-3", "--min-lr = 1e-3 is more than --lr", "--lr 1e-3 --min-lr 1e-3"},
        {kArguments, 1363, "--save checkpoints --save-interval 0", "--save-interval = 0 is no number of steps", "--save-interval 0"},
        {kArguments, 1373, "--bf16 --fp16-lm-cross-entropy", "--fp16-lm-cross-entropy needs --fp16", "--fp16 --fp16-lm-cross-entropy"},
        {kArguments, 1375, "--fp32-residual-connection", "needs --bf16 or --fp16", "--bf16 --fp32-residual-connection"},
        {kArguments, 1394, "--start-weight-decay 0.1", "--start-weight-decay = 0.1 does not go with a constant weight decay",
         "--start-weight-decay 0.1 --end-weight-decay 0.2 --weight-decay-incr-style linear"},
        {kArguments, 1395, "--end-weight-decay 0.1", "--end-weight-decay = 0.1 does not go with a constant weight decay",
         "--start-weight-decay 0.1 --end-weight-decay 0.2 --weight-decay-incr-style cosine"},
        {kArguments, 1399, "--weight-decay-incr-style linear", "needs --start-weight-decay and --end-weight-decay",
         "--weight-decay-incr-style constant"},
        {kArguments, 1411, "--distribute-saved-activations", "needs tensor parallelism", ""},
        {kArguments, 1414, "--tensor-model-parallel-size 2 --distribute-saved-activations", "needs --recompute-granularity full",
         "--tensor-model-parallel-size 2 --distribute-saved-activations --recompute-granularity full --recompute-method uniform "
         "--recompute-num-layers 1"},
        {kArguments, 1426, "--recompute-granularity selective --recompute-method uniform",
         "--recompute-method = uniform does not go with selective recompute", "--recompute-granularity selective"},
        {kArguments, 1442, "--tensor-model-parallel-size 2 --tp-comm-overlap", "--tp-comm-overlap needs sequence parallelism",
         "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap"},
        {kArguments, 1477, "--tensor-model-parallel-size 2", "needs CUDA_DEVICE_MAX_CONNECTIONS=1", "--tensor-model-parallel-size 2",
         "CUDA_DEVICE_MAX_CONNECTIONS", "32"},
        {kArguments, 1541,
         "--bf16 --use-distributed-optimizer --global-batch-size 8 --tensor-parallel-num-weight-shards 2 --cuda-graph-impl local",
         "needs CUDA_GRAPHS_USE_NODE_PRIORITY=1",
         "--bf16 --use-distributed-optimizer --global-batch-size 8 --tensor-parallel-num-weight-shards 2 --cuda-graph-impl local",
         "CUDA_GRAPHS_USE_NODE_PRIORITY", "0", 100},
        {kArguments, 1615, "--qk-clip --qk-clip-alpha 1", "--qk-clip-alpha = 1 is no share between 0 and 1", "--qk-clip-alpha 1"},
        {kArguments, 1617, "--qk-clip --qk-clip-threshold 0", "--qk-clip-threshold = 0 is no bound", "--qk-clip --qk-clip-threshold 50"},
        {kArguments, 1633, "--position-embedding-type none --no-position-embedding", "goes with rotary positions alone",
         "--position-embedding-type rope --no-position-embedding"},
        {kArguments, 1644, "--position-embedding-type mrope", "--position-embedding-type = mrope needs --mrope-section",
         "--position-embedding-type mrope --mrope-section 16 24 24"},
        {kArguments, 1668, "--ckpt-format torch_dcp", "--ckpt-format = torch_dcp needs --use-torch-fsdp2", "--ckpt-format torch_dist"},
        {kArguments, 1669,
         "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights --ckpt-format torch_dcp "
         "--tensor-model-parallel-size 2",
         "--ckpt-format = torch_dcp does not go with tensor parallelism",
         "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights --ckpt-format torch_dcp"},
        {kArguments, 1671,
         "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights --ckpt-format torch_dcp "
         "--pipeline-model-parallel-size 2",
         "--ckpt-format = torch_dcp does not go with a pipeline",
         "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights --ckpt-format torch_dcp"},
        {kArguments, 1676, "--ckpt-format fsdp_dtensor", "--ckpt-format = fsdp_dtensor needs --use-megatron-fsdp",
         "--bf16 --use-distributed-optimizer --use-megatron-fsdp --ckpt-format fsdp_dtensor"},
        {kArguments, 1741, "--optimizer muon --ckpt-format fsdp_dtensor", "does not go with optimizers other than adam and sgd",
         "--optimizer muon --ckpt-format torch"},
        {kArguments, 1750, "--use-distributed-optimizer --disable-gloo-process-groups --ckpt-format torch",
         "does not go with --ckpt-format torch", "--use-distributed-optimizer --disable-gloo-process-groups"},
        {kArguments, 1812, "--load-main-params-from-ckpt", "needs --no-load-optim", "--load-main-params-from-ckpt --no-load-optim"},
        {kArguments, 1852, "--override-ckpt-iteration 3 --finetune", "does not go with --finetune", "--override-ckpt-iteration 3"},
        {kArguments, 1939, "--bf16 --fine-grained-activation-offloading --offload-modules core_attn",
         "--fine-grained-activation-offloading needs NVTE_CPU_OFFLOAD_V1=1",
         "--bf16 --fine-grained-activation-offloading --offload-modules core_attn", "NVTE_CPU_OFFLOAD_V1", "0"},
        {kArguments, 1982, "--moe-latent-size 64", "--moe-latent-size = 64 is the width that experts compute in",
         "--num-experts 8 --moe-latent-size 64 --disable-bias-linear"},
        {kArguments, 1864, "--moe-use-upcycling", "needs --save", "--moe-use-upcycling --save checkpoints --save-interval 500"},
    };
    return all;
}

const std::vector<Case>& cases_of_configurations() {
    static const std::vector<Case> all{
        {kLayers, 1560, "--bf16 --fp8-format hybrid --fp8-recipe custom", "--fp8-recipe = custom needs --fp8-quantizer-factory",
         "--bf16 --fp8-format hybrid --fp8-recipe custom --fp8-quantizer-factory package.factory"},
        {kLayers, 1566, "--bf16 --use-distributed-optimizer --fp8-param-gather", "--fp8-param-gather needs --fp8-format",
         "--bf16 --use-distributed-optimizer --fp8-format e4m3 --fp8-param-gather"},
        {kLayers, 1570, "--bf16 --fp8-output-proj", "--fp8-output-proj needs --fp8-format", ""},
        {kLayers, 1572, "--bf16 --fp8-format hybrid --fp8-output-proj", "needs --fp8-recipe mxfp8",
         "--bf16 --fp8-format hybrid --fp8-recipe mxfp8 --fp8-output-proj"},
        {kLayers, 1586, "--bf16 --fp4-format e2m1 --fp4-recipe custom", "--fp4-recipe = custom needs --fp4-quantizer-factory",
         "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4"},
        {kLayers, 1689, "--moe-ffn-hidden-size 128", "--moe-ffn-hidden-size = 128 is the width of experts, and there are none",
         "--moe-ffn-hidden-size 128 --moe-layer-freq 2"},
        {kLayers, 1708, "--num-experts 8 --moe-single-grouped-weight", "--moe-single-grouped-weight needs --moe-grouped-gemm", ""},
        {kLayers, 1736, "--num-experts 8 --moe-grouped-gemm --moe-single-grouped-weight", "needs --moe-use-grouped-tensor",
         "--num-experts 8 --moe-grouped-gemm --disable-bias-linear --moe-single-grouped-weight --moe-use-grouped-tensor"},
        {kLayers, 1709, "--num-experts 8 --moe-single-grouped-bias", "--moe-single-grouped-bias needs --moe-grouped-gemm", ""},
        {kLayers, 1738, "--num-experts 8 --moe-single-grouped-bias --disable-bias-linear", "needs biases", ""},
        {kLayers, 1740, "--num-experts 8 --moe-grouped-gemm --moe-single-grouped-bias", "needs --moe-use-grouped-tensor",
         "--num-experts 8 --moe-grouped-gemm --no-bias-dropout-fusion --moe-single-grouped-bias --moe-use-grouped-tensor"},
        {RuleSource::experts, 205, "--num-experts 8 --moe-grouped-gemm", "add --no-bias-dropout-fusion",
         "--num-experts 8 --moe-grouped-gemm --no-bias-dropout-fusion"},
        {kLayers, 1744, "--num-experts 8 --moe-token-dispatcher-type alltoall --moe-enable-deepep",
         "--moe-enable-deepep needs --moe-token-dispatcher-type flex",
         "--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep"},
        {kLayers, 1746, "--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep --moe-flex-dispatcher-backend hybridep",
         "does not go with --moe-flex-dispatcher-backend hybridep",
         "--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep --moe-flex-dispatcher-backend deepep"},
        {kLayers, 1764, "--num-experts 8 --moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend ncclep",
         "--moe-flex-dispatcher-backend = ncclep needs --moe-token-dispatcher-type flex",
         "--num-experts 8 --moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep"},
        {kLayers, 1814, "--num-experts 8 --moe-shared-expert-intermediate-size 0", "= 0 is no width",
         "--num-experts 8 --moe-shared-expert-intermediate-size 256"},
        {kLayers, 1820, "--num-experts 8 --moe-shared-expert-intermediate-size 256 --moe-shared-expert-overlap",
         "needs --moe-token-dispatcher-type alltoall or flex",
         "--num-experts 8 --moe-shared-expert-intermediate-size 256 --moe-shared-expert-overlap --moe-token-dispatcher-type flex"},
        {kLayers, 1828, "--num-experts 8 --moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 0.1",
         "--moe-aux-loss-coeff = 0.1 does not give each kind",
         "--num-experts 8 --moe-router-load-balancing-type aux_loss seq_aux_loss --moe-aux-loss-coeff 0.1 0.2"},
        {kLayers, 1863, "--moe-pad-expert-input-to-capacity", "needs --moe-expert-capacity-factor",
         "--num-experts 8 --moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity"},
        {kLayers, 1843, "--num-experts 8 --moe-expert-capacity-factor 1 --moe-router-load-balancing-type sinkhorn",
         "--moe-expert-capacity-factor = 1 needs --moe-router-load-balancing-type aux_loss",
         "--num-experts 8 --moe-expert-capacity-factor 1"},
        {kLayers, 2617, "--num-experts 8 --moe-router-enable-expert-bias", "needs --moe-router-score-function sigmoid or sqrtsoftplus",
         "--num-experts 8 --moe-router-enable-expert-bias --moe-router-score-function sigmoid"},
        {kLayers, 2650, "--num-experts 8 --bf16 --moe-router-padding-for-fp8", "needs --fp8-format or --fp4-format",
         "--num-experts 8 --bf16 --fp8-format hybrid --moe-router-padding-for-fp8"},
        {kLayers, 2655,
         "--num-experts 8 --bf16 --fp8-format hybrid --moe-router-padding-for-quantization --moe-token-dispatcher-type allgather",
         "--moe-token-dispatcher-type = allgather does not go with",
         "--num-experts 8 --bf16 --fp8-format hybrid --moe-router-padding-for-quantization --moe-token-dispatcher-type alltoall"},
        {kLayers, 2661, "--num-experts 8 --moe-router-topk 1", "--moe-router-topk = 1 with softmax scores needs --moe-router-pre-softmax",
         "--num-experts 8 --moe-router-topk 1 --moe-router-pre-softmax"},
        {kLayers, 2672, "--num-experts 8 --moe-router-group-topk 2 --moe-router-num-groups 4 --moe-router-topk-limited-devices 2",
         "does not go with --moe-router-topk-limited-devices", "--num-experts 8 --moe-router-topk-limited-devices 2"},
        {kLayers, 2677, "--num-experts 8 --moe-router-group-topk 2", "--moe-router-group-topk = 2 needs --moe-router-num-groups",
         "--num-experts 8 --moe-router-group-topk 2 --moe-router-num-groups 4"},
        {kLayers, 2682, "--moe-router-group-topk 2 --moe-router-num-groups 2",
         "--moe-router-group-topk = 2 divides experts into groups, and there are none", "--moe-router-num-groups 2"},
        {kLayers, 1913, "--recompute-granularity full --recompute-num-layers 1", "needs --recompute-method", ""},
        {kLayers, 1919, "--recompute-granularity full --recompute-method block", "needs --recompute-num-layers",
         "--recompute-granularity full --recompute-method block --recompute-num-layers 0"},
        {kLayers, 1926, "--recompute-activations --recompute-num-layers 2",
         "--recompute-num-layers = 2 does not go with selective recompute", "--recompute-num-layers 2"},
        {kLayers, 1934,
         "--distribute-saved-activations --tensor-model-parallel-size 2 --sequence-parallel --recompute-granularity full "
         "--recompute-method uniform --recompute-num-layers 1",
         "does not go with --sequence-parallel",
         "--distribute-saved-activations --tensor-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
         "--recompute-num-layers 1"},
        {kLayers, 1964, "--num-experts 8 --recompute-granularity selective --recompute-modules moe_act", "needs --moe-grouped-gemm",
         "--num-experts 8 --moe-grouped-gemm --disable-bias-linear --recompute-granularity selective --recompute-modules moe_act"},
        {kLayers, 1969, "--recompute-granularity selective --recompute-modules mla_up_proj", "needs --multi-latent-attention",
         "--recompute-modules mla_up_proj"},
        {kLayers, 1991,
         "--num-experts 8 --moe-shared-expert-intermediate-size 256 --moe-shared-expert-overlap --moe-token-dispatcher-type alltoall "
         "--recompute-granularity selective --recompute-modules shared_experts",
         "names shared_experts, which does not go with --moe-shared-expert-overlap",
         "--num-experts 8 --moe-shared-expert-intermediate-size 256 --moe-token-dispatcher-type alltoall "
         "--recompute-granularity selective --recompute-modules shared_experts"},
        {kLayers, 2001, "--bf16 --fp8-format hybrid --recompute-granularity selective --recompute-modules core_attn layernorm",
         "do not go with --fp8-recipe delayed",
         "--bf16 --fp8-format hybrid --fp8-recipe blockwise --recompute-granularity selective --recompute-modules core_attn layernorm"},
        {kLayers, 3024, "--num-experts 8 --overlap-moe-expert-parallel-comm --recompute-method uniform",
         "--recompute-method = uniform does not go with --overlap-moe-expert-parallel-comm", ""},
        {kLayers, 3027, "--num-experts 8 --overlap-moe-expert-parallel-comm --recompute-num-layers 1",
         "--recompute-num-layers = 1 does not go with --overlap-moe-expert-parallel-comm",
         "--num-experts 8 --expert-model-parallel-size 2 --overlap-moe-expert-parallel-comm --recompute-granularity selective"},
        {kLayers, 2421, "--squared-relu", "--squared-relu has no kernel that adds a bias", "--squared-relu --disable-bias-linear"},
        {kLayers, 2446, "--swiglu --use-te-activation-func", "does not go with fused biases",
         "--swiglu --use-te-activation-func --no-bias-swiglu-fusion"},
        {kLayers, 2453, "--fused-residual-rmsnorm", "needs --normalization RMSNorm", "--fused-residual-rmsnorm --normalization RMSNorm"},
        {kLayers, 2526, "--multi-latent-attention --rotary-interleaved", "does not go with --multi-latent-attention",
         "--rotary-interleaved"},
        {kLayers, 3141, "--no-rope-freq 3", "--no-rope-freq = 3 does not divide the number of layers", "--no-rope-freq 2"},
        {kLayers, 3141, "--hybrid-layer-pattern M-|M*/MM --no-rope-freq 3", "--no-rope-freq = 3 does not divide the number of layers",
         "--hybrid-layer-pattern M-|M*/MM --no-rope-freq 4"},
        {kLayers, 3345, "--multi-latent-attention --position-embedding-type rope --rope-type rope", "add --no-rope-fusion",
         "--multi-latent-attention --position-embedding-type rope --rope-type rope --no-rope-fusion"},
        {RuleSource::variants, 498, "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --transformer-impl local",
         "--experimental-attention-variant = gated_delta_net needs Transformer Engine",
         "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --normalization RMSNorm"},
        {RuleSource::mamba, 254, "--hybrid-layer-pattern M-M* --mamba-num-heads 8 --bf16 --fp8-format e4m3 --fp8-recipe tensorwise",
         "gives Mamba-2 a projection that fp8 does not take",
         "--hybrid-layer-pattern M-M* --mamba-num-heads 16 --bf16 --fp8-format e4m3 --fp8-recipe tensorwise"},
        {RuleSource::delta_nets, 207,
         "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --normalization RMSNorm --linear-key-head-dim 32 "
         "--linear-value-head-dim 32 --linear-num-key-heads 8 --linear-num-value-heads 8 --bf16 --fp8-format e4m3 --fp8-recipe mxfp8",
         "gives gated delta nets a projection that fp8 does not take",
         "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --normalization RMSNorm --linear-key-head-dim 32 "
         "--linear-value-head-dim 32 --linear-num-key-heads 8 --linear-num-value-heads 8 --bf16 --fp8-format e4m3 --fp8-recipe tensorwise"},
        {RuleSource::layers, 572,
         "--experimental-attention-variant gated_delta_net --linear-attention-freq 2 --mtp-num-layers 1 --position-embedding-type rope",
         "--mtp-num-layers = 1 does not go with --experimental-attention-variant", ""},
        {kLayers, 3163, "--multi-latent-attention --q-lora-rank 64 --experimental-attention-variant dsa", "add --no-rope-fusion", ""},
        {kLayers, 3170,
         "--multi-latent-attention --q-lora-rank 64 --experimental-attention-variant dsa --no-rope-fusion --context-parallel-size 2",
         "give --cp-comm-type all_gather",
         "--multi-latent-attention --q-lora-rank 64 --experimental-attention-variant dsa --no-rope-fusion --context-parallel-size 2 "
         "--cp-comm-type allgather --dsa-indexer-n-heads 8 --dsa-indexer-head-dim 64 --dsa-indexer-topk 32"},
        {RuleSource::engine, 2080, "--fp16 --apply-query-key-layer-scaling",
         "--apply-query-key-layer-scaling and NVTE_APPLY_QK_LAYER_SCALING=1 in the environment need each other",
         "--fp16 --apply-query-key-layer-scaling", "NVTE_APPLY_QK_LAYER_SCALING", "0"},
        {kLayers, 2794, "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad --cuda-graph-modules attn",
         "goes without --cuda-graph-modules", "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad"},
        {RuleSource::graphs, 108, "--cuda-graph-impl transformer_engine --cuda-graph-scope full_iteration",
         "--cuda-graph-scope = full_iteration captures the whole step",
         "--cuda-graph-impl full_iteration --cuda-graph-scope full_iteration --no-check-for-nan-in-loss-and-grad"},
        {RuleSource::layer, 594, "--cuda-graph-impl local --cuda-graph-modules mlp", "captures mlp of layers without experts",
         "--cuda-graph-impl local --cuda-graph-modules attn mlp"},
        {kLayers, 2826, "--hybrid-layer-pattern M-M* --cuda-graph-impl local --cuda-graph-modules attn moe_router",
         "captures experts, and there are none", "--hybrid-layer-pattern M-M* --cuda-graph-impl local --cuda-graph-modules attn"},
        {kLayers, 3014, "--overlap-moe-expert-parallel-comm", "hides exchanges of experts, and there are none",
         "--num-experts 8 --expert-model-parallel-size 2 --overlap-moe-expert-parallel-comm"},
        {kLayers, 3084, "--num-experts 8 --overlap-dispatch-backward-with-experts-wgrad --overlap-moe-expert-parallel-comm",
         "does not go with --overlap-moe-expert-parallel-comm", "--num-experts 8 --overlap-dispatch-backward-with-experts-wgrad"},
        {kLayers, 3092,
         "--num-experts 8 --overlap-dispatch-backward-with-experts-wgrad --overlap-moe-expert-parallel-comm --delay-wgrad-compute",
         "does not go with --delay-wgrad-compute",
         "--num-experts 8 --expert-model-parallel-size 2 --overlap-moe-expert-parallel-comm --delay-wgrad-compute"},
        {kLayers, 3097, "--num-experts 8 --ep-overlap-early-attn-memory-release", "needs --overlap-moe-expert-parallel-comm",
         "--num-experts 8 --expert-model-parallel-size 2 --ep-overlap-early-attn-memory-release --overlap-moe-expert-parallel-comm"},
        {kLayers, 3216, "--batch-invariant-mode", "needs --attention-backend flash", ""},
        {kLayers, 3223, "--batch-invariant-mode", "needs --flash-attention-version 3 or 4",
         "--batch-invariant-mode --attention-backend flash --flash-attention-version 3"},
        {kLayers, 3230, "--batch-invariant-mode --context-parallel-size 2", "does not go with context parallelism", ""},
        {RuleSource::parallel, 545, "--defer-embedding-wgrad-compute", "--defer-embedding-wgrad-compute needs a pipeline",
         "--defer-embedding-wgrad-compute --pipeline-model-parallel-size 2"},
        {RuleSource::parallel, 550, "--defer-embedding-wgrad-compute --pipeline-model-parallel-size 2 --no-gradient-accumulation-fusion",
         "needs fused gradients", ""},
        {RuleSource::parallel, 570, "--overlap-p2p-communication-warmup-flush", "needs messages overlapped by the interleaved schedule",
         "--overlap-p2p-communication-warmup-flush --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"},
        {RuleSource::gradients, 260, "--bf16 --reuse-grad-buf-for-mxfp8-param-ag", "needs --fp8-param-gather",
         "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer "
         "--reuse-grad-buf-for-mxfp8-param-ag"},
        {RuleSource::gradients, 276, "--ddp-num-buckets 4 --ddp-bucket-size 1000000",
         "--ddp-num-buckets = 4 does not go with --ddp-bucket-size", "--ddp-num-buckets 4"},
        {RuleSource::optimizer, 1057, "--bf16 --use-precision-aware-optimizer", "needs --use-distributed-optimizer",
         "--bf16 --use-precision-aware-optimizer --use-distributed-optimizer"},
    };
    return all;
}

std::vector<Case> all_cases() {
    std::vector<Case> all = cases();
    all.insert(all.end(), cases_of_configurations().begin(), cases_of_configurations().end());
    return all;
}

const ArgumentRule& rule_of(const Case& one) {
    for (const auto rules : {rules_of_arguments(), rules_of_configurations()}) {
        for (const ArgumentRule& rule : rules) {
            if (rule.source == one.source && rule.line == one.line) return rule;
        }
    }
    throw std::logic_error(fmt::format("no rule of line {}", one.line));
}

bool is_of_configurations(const ArgumentRule& rule) {
    const auto rules = rules_of_configurations();
    return std::any_of(rules.begin(), rules.end(), [&](const ArgumentRule& each) { return &each == &rule; });
}

TEST(ArgumentRules, StopAtWhatMegatronStopsAtAndNameAWayOut) {
    for (const Case& one : all_cases()) {
        EXPECT_THAT(refusal_in(one, one.broken, one.value), HasSubstr(std::string(one.says))) << one.line;
        if (one.legal.empty()) continue;  // that of the rule before or behind is its neighbour too
        EXPECT_EQ(refusal_in(one, one.legal, one.value == "1" ? "8" : "1"), "accepted") << one.line;
    }
}

TEST(ArgumentRules, HaveACaseEachThatBreaksThem) {
    std::set<std::pair<RuleSource, int>> tested, there;
    for (const Case& one : all_cases()) tested.emplace(one.source, one.line);
    for (const auto rules : {rules_of_arguments(), rules_of_configurations()}) {
        for (const ArgumentRule& rule : rules) {
            EXPECT_TRUE(there.emplace(rule.source, rule.line).second) << rule.flag << ": two rules of line " << rule.line;
            EXPECT_TRUE(tested.contains({rule.source, rule.line})) << rule.flag << ", line " << rule.line << ", has no case";
            EXPECT_TRUE(find_flag(rule.flag)) << rule.flag << " is no flag";
        }
    }
    EXPECT_EQ(tested, there);
}

TEST(ArgumentRules, AskForVariablesThatAreKnownAlone) {
    const std::string flags = "--tensor-model-parallel-size 2";
    const auto refused = [&](const std::string& lines, std::optional<int> capability) {
        try {
            (void)read_megatron_text(lines + "\ntorchrun pretrain_gpt.py " + kSmall + flags, "run.sh", {.compute_capability = capability});
        } catch (const ConfigError&) {
            return true;
        }
        return false;
    };
    EXPECT_TRUE(refused("export CUDA_DEVICE_MAX_CONNECTIONS=8", 90));
    EXPECT_FALSE(refused("export CUDA_DEVICE_MAX_CONNECTIONS=8", 100)) << "Blackwell asks for none";
    EXPECT_FALSE(refused("export CUDA_DEVICE_MAX_CONNECTIONS=8", std::nullopt));
    EXPECT_FALSE(refused("", 90)) << "the environment that the script runs in may have it";
    EXPECT_FALSE(refused("export CUDA_DEVICE_MAX_CONNECTIONS=$QUEUES", 90));
    EXPECT_FALSE(refused("if [ $A = b ]; then\nexport CUDA_DEVICE_MAX_CONNECTIONS=8\nfi", 90));
}

TEST(ArgumentRules, NameVariablesThatAreLeftToTheLauncher) {
    const auto left = [](const std::string& lines, int capability) {
        return read_megatron_text(lines + "\ntorchrun pretrain_gpt.py " + kSmall + "--tensor-model-parallel-size 2", "run.sh",
                                  {.compute_capability = capability})
            .flags.of_environment;
    };
    EXPECT_THAT(left("", 90), ElementsAre(HasSubstr("needs CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment")));
    EXPECT_THAT(left("export CUDA_DEVICE_MAX_CONNECTIONS=1", 90), IsEmpty());
    EXPECT_THAT(left("export CUDA_DEVICE_MAX_CONNECTIONS=$QUEUES", 90), SizeIs(1)) << "whose value the script does not tell";
    EXPECT_THAT(left("", 100), IsEmpty());
}

TEST(ArgumentRules, CountStagesBetweenBars) {
    const std::string flags = kSmall + "--pipeline-model-parallel-size 2 --overlap-p2p-communication-warmup-flush ";
    EXPECT_THAT(refusal(flags + "--pipeline-model-parallel-layout Ett|ttL"), HasSubstr("interleaved schedule"));
    EXPECT_THAT(refusal(flags + "--hybrid-layer-pattern M-|M*"), HasSubstr("interleaved schedule"));
    EXPECT_EQ(refusal(flags + "--pipeline-model-parallel-layout Et|t|t|tL"), "accepted");
    EXPECT_EQ(refusal(flags + "--pipeline-model-parallel-layout Et|(t|)*2tL"), "accepted");
}

TEST(ArgumentRules, LeaveNoFitOpenForWhatKeepsTheSameTensors) {
    for (const FlagNotComputed& one : read(kSmall + "--qk-clip --normalization RMSNorm --fused-residual-rmsnorm").flags.not_computed)
        EXPECT_EQ(one.decides, Decides::nothing) << one.flag;
}

TEST(ArgumentRules, ReadVariablesOfYaml) {
    const auto refused = [](const std::string& queues) {
        try {
            (void)read_megatron_text(
                "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: " + queues +
                    "\nMODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --vocab-size: "
                    "1000\n  --seq-length: 64\n  --context-parallel-size: 2\n",
                "run.yaml", {.compute_capability = 90});
        } catch (const ConfigError&) {
            return true;
        }
        return false;
    };
    EXPECT_TRUE(refused("4"));
    EXPECT_FALSE(refused("1"));
}

TEST(ArgumentRules, LeaveWhatIsNotKnownOpen) {
    EXPECT_EQ(refusal(kSmall + "--lr $LR --min-lr 1e-3 --lr-warmup-iters $WARMUP --train-samples 100"), "accepted");
    EXPECT_THAT(refusal(kSmall + "--tensor-model-parallel-size $TP --tp-comm-overlap"), Not(HasSubstr("--tp-comm-overlap")));
}

TEST(ArgumentRules, LeaveOpenWhatAFileDoesNotTell) {
    const auto refused = [](const std::string& text) {
        try {
            static_cast<void>(read_megatron_text("torchrun pretrain_gpt.py " + kSmall + text, "run.sh"));
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(refused("--recompute-granularity full"), HasSubstr("--recompute-method"));
    EXPECT_EQ(refused("--recompute-granularity full $EXTRA_ARGS"), "accepted");
    EXPECT_THAT(refused("--lr fast $EXTRA_ARGS"), HasSubstr("--lr = 'fast'")) << "whatever stands next to it";
}

// Other programs and switches set or leave out what would be asserted.
TEST(ArgumentRules, AreNotAskedWhereMegatronDoesNotAsk) {
    for (const char* flags :
         {"--bf16 --use-precision-aware-optimizer --actor-num-nodes 4", "--bf16 --use-precision-aware-optimizer --skip-train",
          "--bf16 --fp8-format hybrid --fp8-param-gather", "--use-checkpoint-args --load c --mtp-num-layers 1",
          "--use-checkpoint-args --use-mp-args-from-checkpoint-args --tensor-model-parallel-size 2 --tp-comm-overlap", "--save checkpoints",
          "--fp16 --loss-scale 0 --cuda-graph-impl full_iteration"}) {
        EXPECT_THAT(refusal(kSmall + std::string(flags)), Not(AnyOf(HasSubstr("needs"), HasSubstr("does not go with")))) << flags;
    }
    const std::string fsdp2 = "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights ";
    EXPECT_THAT(refusal(kSmall + fsdp2 + "--ddp-num-buckets 4 --ddp-bucket-size 100"), Not(HasSubstr("--ddp-num-buckets")));
    const auto of_bridge = [](const std::string& text) {
        return broken_argument_rules(parse_flags(split(text, ' ')), HeldAgainst::configurations);
    };
    EXPECT_THAT(of_bridge("--num-layers 4 --reuse-grad-buf-for-mxfp8-param-ag"), IsEmpty());
    EXPECT_THAT(of_bridge("--num-layers 9 --no-rope-freq 4"), SizeIs(1));
    EXPECT_THAT(of_bridge("--num-layers 9 --no-rope-freq 5 --hybrid-layer-pattern M*M*M*M*M*"), IsEmpty()) << "the pattern counts";
}

TEST(ArgumentRules, AreNotAskedForWhatACheckpointOrBridgeSets) {
    int exempt = 0;
    for (const Case& one : all_cases()) {
        const ArgumentRule& rule = rule_of(one);
        const auto is_asked = [&](const std::string& beside, HeldAgainst against) {
            const auto broken =
                broken_argument_rules(parse_flags(split(kSmall + std::string(one.broken) + beside, ' ')), against, surroundings_of(one));
            return std::any_of(broken.begin(), broken.end(),
                               [&](const std::string& said) { return said.starts_with(rule.flag) && said.ends_with(rule.message); });
        };
        const auto expect_exempt = [&](Exemption kind, const std::string& beside, HeldAgainst against) {
            exempt += rule.exempt.contains(kind) ? 1 : 0;
            EXPECT_EQ(is_asked(beside, against), !rule.exempt.contains(kind)) << rule.flag << ", line " << rule.line << beside;
        };
        ASSERT_TRUE(is_asked("", HeldAgainst::everything)) << rule.line;
        expect_exempt(Exemption::checkpoint_model, " --use-checkpoint-args", HeldAgainst::everything);
        expect_exempt(Exemption::checkpoint_sizes, " --use-mp-args-from-checkpoint-args", HeldAgainst::everything);
        if (is_of_configurations(rule)) expect_exempt(Exemption::bridge, "", HeldAgainst::configurations);
    }
    EXPECT_EQ(exempt, 26 + 8 + 7);
}

TEST(ArgumentRules, OfTheParserAreNotThoseOfBridge) {
    const auto broken = [](const std::string& text, HeldAgainst against) {
        return broken_argument_rules(parse_flags(split(text, ' ')), against);
    };
    const std::string text =
        "--num-layers 4 --save somewhere --save-interval 0 --lr fast --recompute-granularity full --recompute-num-layers 1";
    EXPECT_THAT(broken(text, HeldAgainst::everything),
                ElementsAre(HasSubstr("--lr = 'fast'"), HasSubstr("--save-interval = 0"), HasSubstr("--recompute-method")));
    EXPECT_THAT(broken(text, HeldAgainst::parser), ElementsAre(HasSubstr("--lr = 'fast'")));
    EXPECT_THAT(broken(text, HeldAgainst::configurations), ElementsAre(HasSubstr("--recompute-method")));
    EXPECT_THAT(broken(text, HeldAgainst::nothing), IsEmpty());
}

// argparse takes each word by itself: nargs='+'; int() takes no fraction.
TEST(ArgumentTypes, AreThoseOfArgparseForListsAndWholeNumbers) {
    EXPECT_THAT(refusal(kSmall + "--recompute-granularity selective --recompute-modules core_attn,mlp"),
                HasSubstr("--recompute-modules = 'core_attn,mlp' is one word"));
    EXPECT_EQ(refusal(kSmall + "--recompute-granularity selective --recompute-modules core_attn mlp"), "accepted");
    EXPECT_THAT(refusal(kSmall + "--position-embedding-type rope --rotary-base 999999.44"), HasSubstr("is not a whole number"));
    EXPECT_EQ(refusal(kSmall + "--position-embedding-type rope --rotary-base 1000000.0"), "accepted") << "published commands have it";
}

TEST(ArgumentTypes, AreThoseOfArgparseForFlagsWithoutEffect) {
    EXPECT_THAT(refusal(kSmall + "--moe-z-loss-coeff foo --lr fast --log-interval 1.5 --rerun-mode sometimes --timing-log-level 7"),
                AllOf(HasSubstr("--moe-z-loss-coeff = 'foo' is not a number; give one"), HasSubstr("--lr = 'fast' is not a number"),
                      HasSubstr("--log-interval = '1.5' is not a whole number; give one"),
                      HasSubstr("--rerun-mode = 'sometimes' is not known; use disabled, validate_results or report_stats"),
                      HasSubstr("--timing-log-level = '7' is not known; use 0, 1 or 2")));
    EXPECT_EQ(
        refusal(kSmall + "--lr 1e-4 --min-lr -inf --clip-grad +1. --log-interval 1_000 --seed -1 --rerun-mode disabled --lr-decay-style "
                         "a-forks-own --exit-interval $N"),
        "accepted");
    EXPECT_EQ(refusal(kSmall + "--log-interval=100"), "accepted");
    EXPECT_THAT(refusal(kSmall + "--log-interval=often"), HasSubstr("--log-interval = 'often'"));
}

}  // namespace
}  // namespace mgplan::formats::argument_rules_test
