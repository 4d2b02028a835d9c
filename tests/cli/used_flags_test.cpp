// Each flag that a prediction claims to use: the answer about a command follows it.
#include <array>
#include <set>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/megatron_flags.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::used_flags_test {
namespace {

using Json = nlohmann::ordered_json;

/// A command that the flag is added to, behind which it counts where it stands there already.
struct UsedFlag {
    std::string flag, context, value;
    std::string cluster = "dgx-h100";
};

const std::string kDense =
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50000 "
    "--micro-batch-size 2 --global-batch-size 64 --bf16 ";
const std::string kMixture =
    kDense + "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall ";
const std::string kFlexible =
    kDense +
    "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 --moe-token-dispatcher-type flex --moe-grouped-gemm "
    "--no-bias-dropout-fusion ";
const std::string kFused = kFlexible +
                           "--moe-flex-dispatcher-backend hybridep --use-transformer-engine-op-fuser --swiglu --fp8-format e4m3 "
                           "--fp8-recipe mxfp8 ";
const std::string kSharded = kDense + "--use-distributed-optimizer --overlap-grad-reduce ";
const std::string kIndexed = kDense + "--multi-latent-attention --q-lora-rank 256 --experimental-attention-variant dsa --no-rope-fusion ";
const std::string kStreams = kDense + "--enable-mhc-connections ";
const std::string kDevStreams = kDense + "--enable-hyper-connections ";
const std::string kLatent = kDense + "--multi-latent-attention --q-lora-rank 256 ";
const std::string kPipeline = kDense + "--pipeline-model-parallel-size 4 ";
const std::string kRotary = kDense + "--position-embedding-type rope ";
const std::string kTensor = kDense + "--tensor-model-parallel-size 2 --sequence-parallel ";
const std::string kHybrid = kDense + "--hybrid-layer-pattern M-M* ";
const std::string kDelta = kDense + "--normalization RMSNorm --experimental-attention-variant gated_delta_net --linear-attention-freq 4 ";
const std::string kFp8 = kDense + "--fp8-format hybrid ";
const std::string kFsdp2 = kDense + "--no-gradient-accumulation-fusion --untie-embeddings-and-output-weights ";
const std::string kFsdp = kDense + "--use-megatron-fsdp ";
const std::string kFsdpOfAll = kFsdp + "--data-parallel-sharding-strategy optim_grads_params ";
const std::string kAware = kSharded + "--use-precision-aware-optimizer ";
const std::string kOnHost = kAware + "--optimizer-cpu-offload ";
const std::string kWaiting = kSharded + "--chunked-optimizer-state-offload ";
const std::string kWaitingMost =  // at its most in the update
    kWaiting + "--hidden-size 4096 --num-attention-heads 32 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 ";
const std::string kModulesOnHost = kDense + "--fine-grained-activation-offloading --offload-modules core_attn ";
const std::string kMxfp8 = kDense + "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer ";

std::string without(const std::string& words) {
    std::string text = kDense;
    text.erase(text.find(words), words.size());
    return text;
}

std::vector<UsedFlag> used_flags() {
    return {
        {"--num-layers", kDense, "16"},
        {"--virtual-pipeline-model-parallel-size", kPipeline, "2"},                                        // said to be not computed
        {"--moe-use-legacy-grouped-gemm", kMixture + "--moe-grouped-gemm --no-bias-dropout-fusion ", ""},  // not with biases
        {"--encoder-num-layers", without("--num-layers 8"), "8"},
        {"--hidden-size", kDense, "2048"},
        {"--ffn-hidden-size", kDense, "2048"},
        {"--num-attention-heads", kDense + "--attention-backend unfused ", "32"},
        {"--kv-channels", kDense, "128"},
        {"--num-query-groups", kDense + "--group-query-attention --num-query-groups 16 ", "4"},
        {"--max-position-embeddings", kDense, "8192"},
        {"--vocab-size", kDense, "70000"},
        {"--padded-vocab-size", without("--vocab-size 50000"), "50048"},
        {"--make-vocab-size-divisible-by", kDense, "65536"},
        {"--no-pad-vocab-size", kDense, ""},  // Megatron-LM stops
        {"--normalization", kDense, "RMSNorm"},
        {"--position-embedding-type", kDense, "rope"},
        {"--rotary-percent", kRotary + "--cuda-graph-impl transformer_engine --cuda-graph-modules attn ", "0.5"},
        {"--attention-dropout", kDense + "--attention-backend unfused ", "0"},
        {"--hidden-dropout", kDense, "0"},
        {"--window-size", kDense, "128,0"},
        {"--window-attn-skip-freq", kDense + "--window-size 128,0 ", "2"},
        {"--softmax-type", kDense, "learnable"},
        {"--seq-length", kDense, "1024"},
        {"--encoder-seq-length", without("--seq-length 2048"), "1024"},
        {"--global-batch-size", kDense, "128"},
        {"--group-query-attention", kDense + "--num-query-groups 4 ", ""},
        {"--swiglu", kDense, ""},
        {"--xielu", kDense, ""},
        {"--quick-geglu", kDense, ""},
        {"--qk-layernorm", kDense, ""},
        {"--disable-bias-linear", kDense, ""},
        {"--add-qkv-bias", kDense + "--disable-bias-linear ", ""},
        {"--untie-embeddings-and-output-weights", kDense, ""},
        {"--no-position-embedding", kDense, ""},
        {"--use-rotary-position-embeddings", kDense, ""},
        {"--micro-batch-size", kDense, "4"},
        {"--recompute-granularity", kDense, "full --recompute-method uniform --recompute-num-layers 1"},
        {"--recompute-method", kPipeline + "--recompute-granularity full --recompute-num-layers 2 --recompute-method uniform ", "block"},
        {"--recompute-num-layers", kDense + "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ", "4"},
        {"--cuda-graph-impl", kDense, "local"},
        {"--tensor-model-parallel-size", kDense, "2"},
        {"--pipeline-model-parallel-size", kDense, "2"},
        {"--context-parallel-size", kDense, "2"},
        {"--expert-model-parallel-size", kMixture, "8"},
        {"--expert-tensor-parallel-size",
         kMixture + "--disable-bias-linear --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 ", "1"},
        {"--num-layers-per-virtual-pipeline-stage", kPipeline, "1"},
        {"--num-virtual-stages-per-pipeline-rank", kPipeline, "2"},
        {"--microbatch-group-size-per-virtual-pipeline-stage", kPipeline + "--num-virtual-stages-per-pipeline-rank 2 ", "8"},
        {"--decoder-first-pipeline-num-layers", kPipeline, "1"},
        {"--decoder-last-pipeline-num-layers", kPipeline, "1"},
        {"--pipeline-model-parallel-layout", kPipeline, "Et|tt|tt|tttL"},
        {"--num-distributed-optimizer-instances", kSharded, "2"},
        {"--sequence-parallel", kDense + "--tensor-model-parallel-size 2 ", ""},
        {"--account-for-embedding-in-pipeline-split", kPipeline, ""},
        {"--account-for-loss-in-pipeline-split", kPipeline, ""},
        {"--use-tp-pp-dp-mapping", kPipeline + "--tensor-model-parallel-size 2 ", ""},
        {"--recompute-activations", kDense + "--attention-backend unfused ", ""},
        {"--enable-cuda-graph", kDense, ""},
        {"--external-cuda-graph", kDense, ""},
        {"--moe-layer-recompute", kMixture, ""},
        {"--no-overlap-p2p-communication", kPipeline + "--num-virtual-stages-per-pipeline-rank 2 ", ""},
        {"--overlap-grad-reduce", kDense, ""},
        {"--overlap-param-gather", kSharded, ""},
        {"--use-distributed-optimizer", kDense, ""},
        {"--tp-comm-overlap", kTensor, ""},
        {"--overlap-moe-expert-parallel-comm", kMixture, ""},
        {"--moe-shared-expert-overlap",
         kMixture + "--cuda-graph-impl transformer_engine --cuda-graph-modules moe_preprocess moe_router "
                    "--moe-shared-expert-intermediate-size 1024 --moe-shared-expert-gate ",
         ""},
        {"--defer-embedding-wgrad-compute", kPipeline, ""},
        {"--ddp-pad-buckets-for-high-nccl-busbw", kSharded, ""},
        {"--cp-comm-type", kDense + "--context-parallel-size 2 ", "all_gather"},
        {"--recompute-modules", kDense + "--recompute-granularity selective ", "mlp"},
        {"--cuda-graph-scope", kDense + "--cuda-graph-impl transformer_engine ", "attn"},
        {"--cuda-graph-modules", kDense + "--cuda-graph-impl transformer_engine ", "attn"},
        {"--attention-backend", kDense, "unfused"},
        {"--transformer-impl", kDense, "local"},
        {"--ddp-bucket-size", kSharded + "--ddp-pad-buckets-for-high-nccl-busbw ", "400000"},
        {"--ddp-num-buckets", kSharded + "--ddp-pad-buckets-for-high-nccl-busbw ", "400"},
        {"--cross-entropy-fusion-impl", kDense + "--cross-entropy-loss-fusion ", "te"},
        {"--wgrad-deferral-limit", kPipeline + "--defer-embedding-wgrad-compute ", "2"},
        {"--use-flash-attn", kDense + "--transformer-impl local ", ""},
        {"--cross-entropy-loss-fusion", kDense, ""},
        {"--no-gradient-accumulation-fusion", kDense, ""},
        {"--no-rope-fusion", kRotary, ""},
        {"--no-bias-swiglu-fusion", kMixture + "--swiglu --moe-grouped-gemm --no-bias-dropout-fusion ", ""},
        {"--no-bias-gelu-fusion", kDense + "--tensor-model-parallel-size 2 ", ""},
        {"--no-bias-dropout-fusion", kDense, ""},
        {"--no-masked-softmax-fusion", kDense + "--attention-backend unfused ", ""},
        {"--moe-permute-fusion", kMixture + "--cuda-graph-impl transformer_engine --cuda-graph-modules moe_preprocess moe_router ", ""},
        {"--deterministic-mode", kDense, "", "dgx-b200"},
        {"--no-create-attention-mask-in-dataloader", kDense, ""},
        {"--no-async-tensor-model-parallel-allreduce", kDense + "--tensor-model-parallel-size 2 --transformer-impl local ", ""},
        {"--bf16", without("--bf16"), ""},
        {"--fp16", without("--bf16"), ""},
        {"--accumulate-allreduce-grads-in-fp32", without("--bf16") + "--fp16 ", ""},
        {"--grad-reduce-in-bf16", kDense, ""},
        {"--fp8-param-gather", kFp8 + "--use-distributed-optimizer ", ""},
        {"--use-precision-aware-optimizer", kSharded, ""},
        {"--fp8-format", kDense, "hybrid"},
        {"--fp8-recipe", kFp8, "blockwise"},
        {"--tensor-parallel-num-weight-shards", kDense, "4"},
        {"--expert-tensor-parallel-num-weight-shards", kMixture, "4"},
        {"--gtp-remat-opt-in-modules", kMixture + "--moe-latent-size 512 --tensor-parallel-num-weight-shards 4 ", "moe_latent_proj"},
        {"--enable-mhc-connections", kDense, ""},
        {"--enable-hyper-connections", kDense, ""},
        {"--use-fused-mhc", kDevStreams, ""},
        {"--mhc-num-residual-streams", kStreams, "2"},
        {"--num-residual-streams", kDevStreams, "2"},
        {"--mhc-sinkhorn-iterations", kStreams, "5"},
        {"--mhc-init-gating-factor", kStreams, "-1"},
        {"--mhc-recompute-layer-num", kStreams + "--recompute-granularity selective --recompute-modules mhc ", "2"},
        {"--hybrid-context-parallel", kDense + "--calculate-per-token-loss --max-seqlen-per-dp-cp-rank 2048 ", ""},
        {"--max-seqlen-per-dp-cp-rank", kDense + "--calculate-per-token-loss --hybrid-context-parallel ", "2048"},
        {"--first-last-layers-bf16", kFp8 + "--fp8-recipe tensorwise ", ""},
        {"--num-layers-at-start-in-bf16", kFp8 + "--fp8-recipe tensorwise --first-last-layers-bf16 ", "3"},
        {"--num-layers-at-end-in-bf16", kFp8 + "--fp8-recipe tensorwise --first-last-layers-bf16 ", "0"},
        {"--fp4-format", kDense, "e2m1", "dgx-b200"},
        {"--fp4-recipe", kDense + "--fp4-format e2m1 ", "custom", "dgx-b200"},  // said to be not computed
        {"--fp4-param-gather", kDense + "--fp4-format e2m1 --use-distributed-optimizer ", "", "dgx-b200"},
        {"--fp8-output-proj", kFp8 + "--fp8-recipe mxfp8 ", "", "dgx-b200"},
        {"--fp8-dot-product-attention", kFp8, "", "dgx-b200"},
        {"--use-transformer-engine-op-fuser",
         kMixture + "--moe-grouped-gemm --no-bias-dropout-fusion --swiglu --fp8-format e4m3 --fp8-recipe mxfp8 ", "", "dgx-b200"},
        {"--activation-func-clamp-value", kMixture + "--moe-grouped-gemm --no-bias-dropout-fusion --quick-geglu ", "7"},
        {"--moe-expert-rank-capacity-factor", kFused, "1.5", "dgx-b200"},
        {"--moe-paged-stash", kFused + "--moe-expert-rank-capacity-factor 2 ", "", "dgx-b200"},
        {"--moe-paged-stash-buffer-size-factor-cuda", kFused + "--moe-expert-rank-capacity-factor 2 --moe-paged-stash ", "1.5", "dgx-b200"},
        {"--delay-wgrad-compute", kFlexible + "--overlap-moe-expert-parallel-comm ", ""},
        {"--moe-permute-fusion-into-hybridep", kFlexible + "--moe-flex-dispatcher-backend hybridep ", ""},
        {"--moe-flex-dispatcher-num-sms", kFlexible + "--moe-flex-dispatcher-backend hybridep --overlap-moe-expert-parallel-comm ", "64"},
        {"--moe-hybridep-num-sms", kFlexible + "--moe-flex-dispatcher-backend hybridep --overlap-moe-expert-parallel-comm ", "64"},
        {"--moe-deepep-num-sms", kFlexible + "--overlap-moe-expert-parallel-comm ", "64"},
        {"--main-params-dtype", kSharded + "--use-precision-aware-optimizer ", "fp16"},
        {"--main-grads-dtype", kSharded + "--use-precision-aware-optimizer ", "bf16"},
        {"--exp-avg-dtype", kSharded + "--use-precision-aware-optimizer ", "bf16"},
        {"--exp-avg-sq-dtype", kSharded + "--use-precision-aware-optimizer ", "bf16"},
        {"--optimizer", kDense, "muon"},
        {"--no-use-layer-wise-param-layout", kDense + "--optimizer muon --use-distributed-optimizer ", ""},
        {"--use-layer-wise-param-layout", kDense + "--optimizer dist_muon ", ""},
        {"--num-experts", kDense, "8"},
        {"--moe-router-topk", kMixture, "4"},
        {"--moe-ffn-hidden-size", kMixture, "512"},
        {"--moe-shared-expert-intermediate-size", kMixture, "512"},
        {"--moe-latent-size", kMixture, "256"},
        {"--moe-layer-freq", kMixture, "2"},
        {"--moe-token-dispatcher-type", kMixture, "allgather"},
        {"--moe-flex-dispatcher-backend",
         kMixture + "--moe-token-dispatcher-type flex --cuda-graph-impl transformer_engine --cuda-graph-modules moe ", "hybridep"},
        {"--moe-expert-capacity-factor", kMixture, "1"},
        {"--moe-router-num-groups", kMixture + "--moe-router-group-topk 2 ", "4"},
        {"--moe-router-group-topk", kMixture + "--moe-router-num-groups 4 ", "2"},
        {"--moe-router-dtype", kMixture + "--cuda-graph-impl transformer_engine --cuda-graph-modules moe_router ", "fp32"},
        {"--moe-router-load-balancing-type", kMixture + "--moe-aux-loss-coeff 1e-2 ", "none"},
        {"--moe-aux-loss-coeff", kMixture, "1e-2"},
        {"--moe-grouped-gemm", kMixture, ""},
        {"--moe-pad-expert-input-to-capacity",
         kMixture + "--cuda-graph-impl transformer_engine --cuda-graph-modules moe --moe-expert-capacity-factor 1 ", ""},
        {"--moe-router-enable-expert-bias", kMixture + "--moe-router-score-function sigmoid ", ""},
        {"--moe-shared-expert-gate", kMixture + "--moe-shared-expert-intermediate-size 512 ", ""},
        {"--q-lora-rank", kLatent, "512"},
        {"--kv-lora-rank", kLatent, "256"},
        {"--qk-head-dim", kLatent, "64"},
        {"--qk-pos-emb-head-dim", kLatent, "32"},
        {"--v-head-dim", kLatent, "64"},
        {"--mtp-num-layers", kRotary, "1"},
        {"--spec", kHybrid, "mine.layers my_spec"},
        {"--mamba-state-dim", kHybrid, "64"},
        {"--mamba-head-dim", kHybrid, "32"},
        {"--mamba-num-groups", kHybrid, "4"},
        {"--mamba-num-heads", kHybrid, "16"},
        {"--experimental-attention-variant", kDense + "--normalization RMSNorm --linear-attention-freq 4 ", "gated_delta_net"},
        {"--linear-attention-type", kDense + "--normalization RMSNorm --linear-attention-freq 4 ", "gated_delta_net"},
        {"--linear-attention-freq", kDelta, "2"},
        {"--linear-conv-kernel-dim", kDelta, "2"},
        {"--linear-key-head-dim", kDelta, "64"},
        {"--linear-value-head-dim", kDelta, "64"},
        {"--linear-num-key-heads", kDelta, "8"},
        {"--linear-num-value-heads", kDelta, "16"},
        {"--attention-output-gate", kDense, ""},
        {"--hybrid-layer-pattern", kDense, "M-M*"},
        {"--hybrid-override-pattern", kDense, "M-M*"},
        {"--mtp-hybrid-override-pattern", kHybrid + "--position-embedding-type none --mtp-num-layers 1 ", "*-"},
        {"--hybrid-attention-ratio", kDense, "0.1"},
        {"--hybrid-mlp-ratio", kDense, "0.1"},
        {"--dsa-indexer-n-heads", kIndexed + "--dsa-indexer-head-dim 64 --dsa-indexer-topk 64 ", "4"},
        {"--dsa-indexer-head-dim", kIndexed + "--dsa-indexer-n-heads 4 --dsa-indexer-topk 64 ", "64"},
        {"--dsa-indexer-topk", kIndexed + "--dsa-indexer-n-heads 4 --dsa-indexer-head-dim 64 ", "64"},
        {"--mtp-use-repeated-layer", kDense + "--position-embedding-type rope --mtp-num-layers 2 ", ""},
        {"--multi-latent-attention", kDense, ""},
        {"--is-hybrid-model", kDense, ""},
        {"--checkpoint-activations", kDense, ""},
        {"--decoder-num-layers", kDense, "8"},
        {"--decoder-seq-length", kDense, "128"},
        {"--lora-target-modules", kDense, "linear_qkv"},
        {"--lora-modules-to-save", kDense, "word_embeddings"},
        {"--lora-r", kDense + "--lora-target-modules linear_qkv ", "8"},
        {"--lora-rank", kDense + "--lora-target-modules linear_qkv ", "8"},
        {"--lora-alpha", kDense, "32"},  // without targets
        {"--lora-load", kDense, "adapter"},
        {"--export-kd-teacher-load", kDense, "teacher"},
        {"--logits-load-dir", kDense, "logits"},
        {"--load-teacher", kDense, "teacher"},
        {"--kd", kDense, ""},
        {"--mos", kDense, ""},
        {"--batch-size", kDense, "2"},
        {"--warmup", kDense, "0.01"},
        {"--model-parallel-size", kDense, "2"},
        {"--tokenizer-type", without("--vocab-size 50000"), "Llama3Tokenizer"},
        {"--tokenizer-model", without("--vocab-size 50000"), "Qwen/Qwen3-8B"},
        {"--tokenizer-name-or-path", without("--vocab-size 50000"), "gpt2"},
        {"--vocab-file", without("--vocab-size 50000"), "gpt2-vocab.json"},
        {"--vocab-extra-ids", without("--vocab-size 50000") + "--vocab-file gpt2-vocab.json ", "1000"},
        {"--step-batch-size-schedule", without("--global-batch-size 64"), "0:64 1B:128"},
        {"--rampup-batch-size", kDense + "--train-samples 100000 ", "32 16 1000"},
        {"--decrease-batch-size-if-needed", without("--global-batch-size 64") + "--global-batch-size 66 ", ""},
        {"--train-iters", kDense, "1000"},
        {"--train-samples", kDense, "100000"},
        {"--load", kDense + "--rampup-batch-size 16 16 1000 --train-samples 100000 ", "checkpoints"},
        {"--use-torch-fsdp2", kFsdp2, ""},
        {"--torch-fsdp2-no-reshard-after-forward", kFsdp2 + "--use-torch-fsdp2 ", ""},
        {"--use-megatron-fsdp", kDense + "--data-parallel-sharding-strategy optim_grads_params ", ""},
        {"--use-custom-fsdp", kDense + "--data-parallel-sharding-strategy optim_grads_params ", ""},
        {"--data-parallel-sharding-strategy", kFsdp, "optim_grads_params"},
        {"--outer-dp-sharding-strategy", kFsdpOfAll + "--num-distributed-optimizer-instances 2 ", "optim"},
        {"--fsdp-double-buffer", kFsdpOfAll, ""},
        {"--megatron-fsdp-max-pool-double-buffer", kFsdpOfAll, ""},
        {"--suggested-communication-unit-size", kFsdpOfAll, "1000000"},
        {"--megatron-fsdp-main-params-dtype", kFsdpOfAll, "auto"},
        {"--megatron-fsdp-main-grads-dtype", kFsdpOfAll, "fp32"},
        {"--megatron-fsdp-grad-comm-dtype", kFsdpOfAll, "fp32"},
        {"--megatron-fsdp-version", kFsdpOfAll, "3"},
        {"--keep-fp8-transpose-cache", kFp8 + "--use-megatron-fsdp --data-parallel-sharding-strategy optim --fp8-param-gather ", ""},
        {"--ckpt-format", kFsdp, "torch_dist"},
        {"--reuse-grad-buf-for-mxfp8-param-ag", kMxfp8, "", "dgx-b200"},
        {"--cpu-offloading-num-layers", kDense, "6"},
        {"--cpu-offloading", kPipeline, ""},
        {"--optimizer-cpu-offload", kAware, ""},
        {"--optimizer-offload-fraction", kOnHost, "0.5"},
        {"--overlap-cpu-optimizer-d2h-h2d", kOnHost, ""},
        {"--offload-optimizer-states", kSharded, ""},
        {"--chunked-optimizer-state-offload", kSharded, ""},
        {"--optimizer-state-offload-fraction", kWaiting, "0.5"},
        {"--optimizer-state-offload-chunk-size-mb", kWaitingMost, "1"},
        {"--async-save", kWaiting, ""},
        {"--no-save-optim", kWaiting + "--async-save ", ""},
        {"--no-load-optim", kWaiting + "--ckpt-format torch --no-save-optim ", ""},
        {"--fine-grained-activation-offloading", kDense + "--offload-modules core_attn ", ""},
        {"--offload-modules", kModulesOnHost, "core_attn attn_proj"},
        {"--min-offloaded-tensor-size", kModulesOnHost, "100000000"},
        {"--activation-offload-fraction", kModulesOnHost, "0.5"},              // said to be not computed
        {"--delta-offload-bytes-across-pp-ranks", kModulesOnHost, "1000000"},  // the same
        {"--use-turbo-deepep", kMixture, ""},
        {"--turbo-deepep-num-cu", kMixture + "--use-turbo-deepep --overlap-moe-expert-parallel-comm ", "64"},
    };
}

/// What of the answer may follow a flag: the exit code, the verdicts, the layout's memory and time, what training takes.
std::string answer(const std::string& command, const std::string& cluster) {
    const TempFile file("used.args", command);
    const Said said = say("check --top 0 --format json --world 16 --cluster " + cluster + " --megatron-args " + file.path());
    if (said.out.empty()) {
        EXPECT_EQ(said.code, kBadInput) << command << "\n" << said.err;
        return fmt::format("refused, {}", said.code);
    }
    const Json json = Json::parse(said.out);
    return fmt::format("{} {} {} {} {}", said.code, json["legal"].dump(), json["fits"].dump(), json["predicted"].dump(),
                       json["training"].dump());
}

TEST(UsedFlags, ChangeTheAnswer) {
    for (const auto& [flag, context, value, cluster] : used_flags()) {
        EXPECT_NE(answer(context, cluster), answer(fmt::format("{}{} {}", context, flag, value), cluster))
            << flag << " " << value << " behind " << context;
    }
}

TEST(UsedFlags, AreAllTested) {
    std::set<std::string> tested;
    for (const auto& one : used_flags()) tested.insert(one.flag);
    for (const auto& name : formats::flag_names()) {
        if (formats::find_flag(name)->effect != formats::FlagEffect::used) continue;
        if (name == "--yaml-cfg") continue;  // a file in place of the flags (YamlConfiguration, tests/formats)
        EXPECT_TRUE(tested.contains(name)) << name;
    }
    EXPECT_GT(tested.size(), 100U);
}

}  // namespace
}  // namespace mgplan::cli::testing::used_flags_test
