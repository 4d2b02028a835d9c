#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "formats/megatron/argument_rules.hpp"
#include "formats/megatron/flag_reader.hpp"
#include "plan/text/text.hpp"

// Types by which argparse reads the values that no prediction reads (megatron/training/arguments.py and the dataclasses that
// argument_utils.py makes flags of, Megatron-LM at d98e8a64). Flags of several values, of older releases and of forks are not among them,
// nor words to which published forks add their own (--lr-decay-style, --distributed-backend).

namespace mgplan::formats {
namespace {

constexpr std::string_view kWholeNumbers =
    "adlr-autoresume-interval async-ckpt-cpu-priority async-ckpt-io-priority biencoder-projection-dim "
    "check-weight-hash-across-dp-replicas-interval ckpt-step cuda-graph-warmup-steps dino-bottleneck-size "
    "dino-head-hidden-size dino-local-crops-number dino-local-img-size dino-warmup-teacher-temp-epochs dist-ckpt-workers "
    "distributed-timeout-minutes distributed-timeout-seconds-after-init dsa-indexer-skip-topk-offset dsa-indexer-topk-freq "
    "error-injection-rate eval-global-batch-size eval-interval eval-iters eval-micro-batch-size exit-duration-in-mins "
    "exit-interval fault-injector-delay-start-iteration fault-injector-num-ranks fault-injector-seed "
    "fine-grained-offloading-max-inflight-offloads flight-recorder-trace-buffer-size fp8-amax-history-len fp8-interval "
    "fp8-margin ft-num-warmup-iters gdp-num-chunk-states-to-recompute gdp-num-householder gpu-sniff-test-interval "
    "grpo-group-size grpo-iterations grpo-prompts-per-step hysteresis ict-head-size img-h img-w indexer-batch-size "
    "indexer-log-interval inference-batch-times-seqlen-threshold inference-coordinator-port inference-cuda-graph-max-tokens "
    "inference-dynamic-batching-block-size inference-dynamic-batching-cuda-graph-mixed-prefill-count "
    "inference-dynamic-batching-max-requests inference-dynamic-batching-max-tokens "
    "inference-dynamic-batching-num-cuda-graphs inference-logging-step-interval inference-max-requests "
    "inference-max-seq-length inprocess-active-world-size inprocess-max-iterations iter-per-epoch kitchen-recipe-number "
    "local-rank log-interval log-memory-interval logging-level logits-load-decode-threads logits-load-msc-prefetch-depth "
    "logits-load-prefetch-factor logits-save-top-k logits-save-top-p-min-k lr-decay-iters lr-decay-samples lr-warmup-iters "
    "lr-warmup-samples lr-wsd-decay-iters lr-wsd-decay-samples manual-gc-interval max-tokens-to-oom mlp-chunks-for-prefill "
    "mlp-chunks-for-training moe-hybridep-num-blocks-permute moe-hybridep-num-blocks-unpermute "
    "moe-hybridep-num-sms-preprocessing moe-mlp-glu-interleave-size moe-paged-stash-page-size "
    "moe-router-topk-limited-devices moe-routing-trace-max-training-iters moe-shared-expert-glu-interleave-size "
    "moe-upcycling-granularity muon-num-ns-steps mup-base-hidden-size non-persistent-save-interval null-tokenizer-eod-id "
    "null-tokenizer-pad-id num-channels num-classes num-dataset-builder-threads num-speculative-tokens num-workers "
    "override-ckpt-iteration patch-dim persistent-save-interval profile-step-end profile-step-start "
    "relative-attention-max-distance relative-attention-num-buckets replication-factor replication-jump rl-default-top-k "
    "rl-inference-expert-model-parallel-size rl-inference-expert-tensor-model-parallel-size "
    "rl-inference-pipeline-model-parallel-size rl-inference-tensor-model-parallel-size rl-max-inflight-requests "
    "rl-prompts-per-eval rl-rollout-bank-max-bytes rl-sequence-packing-max-sequences-per-bin rotary-base "
    "rotary-seq-len-interpolation-factor save-activations-interval save-dgrads-interval save-interval save-params-interval "
    "save-retain-interval save-tokens-per-expert-interval save-wgrads-interval seed start-eval-at-iter straggler-ctrlr-port "
    "straggler-minmax-count tensorboard-log-interval tensorboard-queue-size tiktoken-num-special-tokens train-sync-interval "
    "wd-incr-steps yarn-original-max-position-embeddings";

constexpr std::string_view kNumbers =
    "adam-beta1 adam-beta2 adam-eps classes-fraction clip-grad data-per-class-fraction decoupled-lr decoupled-min-lr "
    "dino-freeze-last-layer dino-teacher-temp dino-warmup-teacher-temp dsa-indexer-k-norm-epsilon dsa-indexer-loss-coeff "
    "embedding-init-method-std end-weight-decay fault-injector-fault-delay fault-injector-mtti-seconds "
    "fault-injector-offset-seconds fim-fragment-rate fim-rate fim-spm-rate glu-linear-offset grpo-clamp-eps-lower "
    "grpo-clamp-eps-upper grpo-entropy-term-weight grpo-kl-beta head-lr-mult inference-dynamic-batching-buffer-size-gb "
    "inference-dynamic-batching-mamba-memory-ratio inference-dynamic-batching-paused-buffer-size-gb "
    "inference-dynamic-batching-prefix-caching-mamba-gb inference-dynamic-batching-prefix-caching-routing-alpha "
    "init-method-std initial-loss-scale inprocess-barrier-timeout inprocess-completion-timeout inprocess-hard-timeout "
    "inprocess-heartbeat-interval inprocess-heartbeat-timeout inprocess-last-call-wait inprocess-monitor-process-interval "
    "inprocess-monitor-thread-interval inprocess-progress-watchdog-interval inprocess-soft-timeout "
    "inprocess-termination-grace-time lion-beta1 lion-beta2 logits-load-kd-loss-alpha logits-save-top-p loss-scale "
    "loss-scale-window lr lr-warmup-fraction lr-warmup-init mask-factor mask-prob mid-level-dataset-surplus min-loss-scale "
    "min-lr moe-input-jitter-eps moe-paged-stash-buffer-size-factor-cpu moe-router-bias-update-rate moe-router-force-biased "
    "moe-router-quantile-balancing-ema moe-router-topk-scaling-factor moe-z-loss-coeff mscale mscale-all-dim "
    "mtp-loss-scaling-factor muon-extra-scale-factor muon-momentum mup-attn-scale-power mup-base-head-dim "
    "mup-embedding-mult mup-output-mult mup-width-mult norm-epsilon qk-clip-alpha qk-clip-threshold query-in-block-prob "
    "rl-default-temperature rl-default-top-p rl-generation-lag rl-importance-sampling-truncation-coef rope-scaling-factor "
    "rotary-scaling-factor sample-rate sgd-momentum short-seq-prob start-weight-decay weight-decay yarn-beta-fast "
    "yarn-beta-slow";

/// Flags that take several words, each by itself.
constexpr std::string_view kListFlags =
    "cp-comm-type cuda-graph-modules cuda-graph-scope hierarchical-context-parallel-sizes moe-aux-loss-coeff "
    "moe-router-load-balancing-type offload-modules recompute-modules";

/// Flags that take one of a few words, without "--", separated by blanks.
struct FewWords {
    std::string_view flags, words;
};

constexpr auto kFewWords = std::to_array<FewWords>({
    {"async-strategy", "nvrx mcore"},
    {"batch-invariant-backend", "te_native deepgemm triton"},
    {"bert-embedder-type", "megatron huggingface"},
    {"ckpt-convert-format", "torch torch_dist"},
    {"ckpt-fully-parallel-load-exchange-algo", "broadcast gather_rounds gather_object"},
    {"ckpt-fully-parallel-load-process-group ckpt-fully-parallel-save-process-group", "dp ep_dp"},
    {"dataloader-type", "single cyclic external"},
    {"dist-ckpt-strictness",
     "assume_ok_unexpected log_unexpected log_all raise_unexpected raise_all return_unexpected return_all ignore_all"},
    {"dsa-kernel-backend", "none tilelang cudnn"},
    {"empty-unused-memory-level timing-log-level", "0 1 2"},
    {"error-injection-type", "correct_result transient_error persistent_error"},
    {"flash-attention-version", "2 3 4"},
    {"fp8-amax-compute-algo", "most_recent max"},
    {"inference-dynamic-batching-async-sched-mode", "legacy async"},
    {"inference-dynamic-batching-cuda-graph-sizing-distribution", "exponential linear"},
    {"inference-dynamic-batching-logprobs-mode", "raw_logprobs processed_logprobs"},
    {"inference-dynamic-batching-prefix-caching-coordinator-policy", "longest_prefix first_prefix_block load_balanced"},
    {"inference-dynamic-batching-prefix-caching-eviction-policy", "ref_zero lru"},
    {"inference-dynamic-batching-sampling-backend", "torch flashinfer"},
    {"inference-dynamic-batching-unified-memory-level rl-inference-model-unified-memory-level", "0 1"},
    {"inference-grouped-gemm-backend", "flashinfer torch vllm"},
    {"inference-moe-token-dispatcher-type", "nccl nvls"},
    {"inprocess-granularity", "node rank"},
    {"kitchen-attention-backend", "sdpa fa"},
    {"logits-save-dtype", "fp16 bf16 fp32"},
    {"mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype", "bf16 fp16 fp32"},
    {"mamba-training-ssm-states-dtype", "fp32 bf16"},
    {"mask-type", "random row"},
    {"moe-combine-bwd-dtype moe-dispatch-fwd-dtype", "bf16 mxfp8"},
    {"moe-router-score-function", "softmax sigmoid sqrtsoftplus"},
    {"moe-token-drop-policy", "probs position"},
    {"muon-fp32-matmul-prec", "low medium high"},
    {"muon-scalar-optimizer", "adam lion"},
    {"muon-scale-mode", "spectral unit_rms_norm shape_scaling"},
    {"muon-tp-mode", "blockwise duplicated distributed"},
    {"non-persistent-ckpt-type", "global local in_memory"},
    {"non-persistent-local-ckpt-algo", "fully_parallel atomic"},
    {"output-logit-dtype", "bf16 fp32"},
    {"pipeline-model-parallel-comm-backend", "nccl ucc"},
    {"refit-method", "nccl gloo nvshmem"},
    {"rerun-mode", "disabled validate_results report_stats"},
    {"rl-consumption-granularity rl-submission-granularity", "R G B"},
    {"rl-kv-cache-management-mode", "persist offload recompute"},
    {"rl-sequence-packing-algo", "fifo round-robin"},
    {"rope-type", "rope yarn"},
    {"sharp-enabled-group", "dp dp_replica"},
    {"swin-backbone-type", "tiny base h3"},
    {"symmetric-ar-type", "two_shot one_shot multimem_all_reduce"},
    {"tiktoken-pattern", "v1 v2"},
    {"timing-log-option", "max minmax all"},
    {"tp-comm-bootstrap-backend", "nccl mpi gloo"},
    {"vision-backbone-type", "vit mit swin"},
    {"vision-pretraining-type", "classify inpaint dino"},
    {"weight-decay-incr-style", "constant linear cosine"},
});

enum class ValueType : std::uint8_t { whole_number, number, word };

struct Expected {
    ValueType type;
    std::string_view words = "";  ///< of a word
};

using ExpectedValues = std::map<std::string, Expected, std::less<>>;

void expect(ExpectedValues& values, std::string_view flags, Expected expected) {
    for (const auto& flag : split(std::string(flags), ' ')) values.emplace(fmt::format("--{}", flag), expected);
}

const ExpectedValues& expected_values() {
    static const ExpectedValues values = [] {
        ExpectedValues all;
        expect(all, kWholeNumbers, {ValueType::whole_number});
        expect(all, kNumbers, {ValueType::number});
        for (const FewWords& few : kFewWords) expect(all, few.flags, {ValueType::word, few.words});
        return all;
    }();
    return values;
}

/// Python's float() also takes these words, in any case and with a sign.
bool is_endless(std::string value) {
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (value.starts_with('-') || value.starts_with('+')) value.erase(0, 1);
    return value == "inf" || value == "infinity" || value == "nan";
}

/// Describes the error of a value, with a fix; "" where argparse takes it.
std::string wrong_with(const std::string& value, const Expected& expected) {
    const std::string number = without_grouping(value.starts_with('+') ? value.substr(1) : value);
    switch (expected.type) {
        case ValueType::whole_number:
            return parse_integer(number) ? "" : "is not a whole number; give one";
        case ValueType::number:
            return parse_real(number) || is_endless(value) ? "" : "is not a number; give one";
        case ValueType::word:
            break;
    }
    const auto words = split(std::string(expected.words), ' ');
    if (std::find(words.begin(), words.end(), value) != words.end()) return "";
    return fmt::format("is not known; use {}", any_of_text(words));
}

}  // namespace

std::vector<std::string> wrong_value_types(const ParsedFlags& parsed) {
    std::vector<std::string> messages;
    for (const auto& name : split(std::string(kListFlags), ' ')) {
        const std::string flag = fmt::format("--{}", name);
        for (const auto* flags : {&parsed.used, &parsed.not_read}) {
            const auto given = flags->find(flag);
            if (given == flags->end()) continue;
            const auto joined = std::find_if(given->second.begin(), given->second.end(),
                                             [](const std::string& value) { return value.find(',') != std::string::npos; });
            if (joined != given->second.end())
                messages.push_back(
                    fmt::format("{} = '{}' is one word to Megatron-LM; separate its parts by blanks", flag, FlagReader::shown(*joined)));
        }
    }
    // The others that are read are checked where they are.
    for (const std::string_view flag : {"--rotary-base", "--rotary-seq-len-interpolation-factor"}) {
        const auto given = parsed.used.find(flag);
        if (given == parsed.used.end() || given->second.empty()) continue;
        const std::string& value = given->second.front();
        const auto number = parse_real(without_grouping(value));
        // Published commands have 1000000.0, which the parser does not take.
        if (number && *number != std::round(*number))
            messages.push_back(fmt::format("{} = '{}' is not a whole number; give one", flag, FlagReader::shown(value)));
    }
    for (const auto& [flag, values] : parsed.not_read) {
        const auto expected = expected_values().find(flag);
        if (expected == expected_values().end() || values.empty()) continue;
        const std::string& value = values.front();
        if (value.empty() || value.find_first_of("$`") != std::string::npos) continue;  // not known
        if (const std::string wrong = wrong_with(value, expected->second); !wrong.empty())
            messages.push_back(fmt::format("{} = '{}' {}", flag, FlagReader::shown(value), wrong));
    }
    return messages;
}

}  // namespace mgplan::formats
