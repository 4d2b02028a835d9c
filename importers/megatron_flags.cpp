#include "importers/megatron_flags.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include <fmt/core.h>

#include "plan/text.hpp"

namespace mgplan::importers {
namespace {

/// Flags that share arity and effect, without their "--", separated by white space.
struct FlagGroup {
    FlagArity arity;
    FlagEffect effect;
    std::string_view feature;
    std::string_view names;
};

// Source: megatron/training/arguments.py of Megatron-LM over its releases; torchrun's own flags stand beside them in scripts.
constexpr std::array kGroups{
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "num-layers encoder-num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups "
              "max-position-embeddings vocab-size padded-vocab-size make-vocab-size-divisible-by normalization "
              "position-embedding-type rotary-percent rotary-base rope-type rotary-seq-len-interpolation-factor norm-epsilon "
              "rotary-scaling-factor rope-scaling-factor mscale mscale-all-dim original-max-position-embeddings beta-fast beta-slow "
              "mtp-loss-scaling-factor "
              "attention-dropout hidden-dropout window-size window-attn-skip-freq softmax-type "
              "seq-length encoder-seq-length micro-batch-size global-batch-size"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "group-query-attention swiglu squared-relu openai-gelu onnx-safe quick-geglu qk-layernorm disable-bias-linear "
              "add-qkv-bias untie-embeddings-and-output-weights no-position-embedding use-rotary-position-embeddings use-rope-scaling"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size "
              "expert-tensor-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank "
              "microbatch-group-size-per-virtual-pipeline-stage decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
              "pipeline-model-parallel-layout num-distributed-optimizer-instances"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "sequence-parallel account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split use-tp-pp-dp-mapping "
              "no-overlap-p2p-communication overlap-p2p-communication-warmup-flush overlap-grad-reduce overlap-param-gather "
              "overlap-param-gather-with-optimizer-step use-distributed-optimizer tp-comm-overlap overlap-moe-expert-parallel-comm "
              "moe-shared-expert-overlap delay-wgrad-compute defer-embedding-wgrad-compute ddp-pad-buckets-for-high-nccl-busbw"},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "cp-comm-type recompute-modules cuda-graph-scope cuda-graph-modules"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "recompute-granularity recompute-method recompute-num-layers cuda-graph-impl attention-backend transformer-impl "
              "ddp-bucket-size ddp-num-buckets cross-entropy-fusion-impl wgrad-deferral-limit"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "recompute-activations enable-cuda-graph external-cuda-graph use-flash-attn cross-entropy-loss-fusion "
              "no-gradient-accumulation-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion "
              "no-masked-softmax-fusion no-rope-fusion moe-permute-fusion attention-softmax-in-fp32 apply-query-key-layer-scaling "
              "fp32-residual-connection deterministic-mode no-check-for-nan-in-loss-and-grad log-params-norm log-num-zeros-in-grad "
              "no-create-attention-mask-in-dataloader no-async-tensor-model-parallel-allreduce"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "bf16 fp16 accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 fp8-param-gather use-precision-aware-optimizer"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "fp8-format fp8-recipe main-params-dtype main-grads-dtype exp-avg-dtype exp-avg-sq-dtype optimizer"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "num-experts moe-router-topk moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-layer-freq "
              "moe-token-dispatcher-type moe-flex-dispatcher-backend moe-expert-capacity-factor moe-router-num-groups "
              "moe-router-group-topk moe-router-score-function moe-router-dtype moe-router-load-balancing-type moe-aux-loss-coeff "
              "moe-router-bias-update-rate"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "moe-grouped-gemm moe-pad-expert-input-to-capacity moe-router-enable-expert-bias moe-enable-deepep "
              "moe-shared-expert-gate"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim mtp-num-layers hybrid-layer-pattern "
              "hybrid-override-pattern hybrid-attention-ratio hybrid-mlp-ratio"},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "multi-latent-attention is-hybrid-model"},

    FlagGroup{FlagArity::none, FlagEffect::not_computed, "Megatron FSDP", "use-megatron-fsdp use-custom-fsdp"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "PyTorch FSDP2", "use-torch-fsdp2"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "FSDP sharding",
              "data-parallel-sharding-strategy outer-dp-sharding-strategy suggested-communication-unit-size"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "offloading activations to the host", "cpu-offloading-num-layers"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "offloading activations to the host",
              "fine-grained-activation-offloading cpu-offloading"},
    FlagGroup{FlagArity::many, FlagEffect::not_computed, "offloading activations to the host", "offload-modules"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "optimizer on the host",
              "optimizer-cpu-offload use-torch-optimizer-for-cpu-offload overlap-cpu-optimizer-d2h-h2d"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "optimizer on the host", "optimizer-offload-fraction"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "saved activations divided over tp", "distribute-saved-activations"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "fp4", "fp4-format fp4-recipe"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "fp4", "fp4-param-gather"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "first and last layers in bf16", "first-last-layers-bf16"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "first and last layers in bf16",
              "num-layers-at-start-in-bf16 num-layers-at-end-in-bf16"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "layers of different shape",
              "heterogeneous-layers-config-path heterogeneous-layers-config-encoded-json"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "latent mixture of experts", "moe-latent-size"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "one MTP layer used repeatedly", "mtp-use-repeated-layer"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "variable context parallelism", "hybrid-context-parallel"},
    FlagGroup{FlagArity::many, FlagEffect::not_computed, "layers written elsewhere", "spec"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "elastic sub-networks (Flextron)", "flextron enable-router"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "fused operation kernels", "use-transformer-engine-op-fuser"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "reductions in the network or in user buffers", "use-sharp nccl-ub use-nccl-ub"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "packed sequences", "sft rl-use-sequence-packing"},
    FlagGroup{FlagArity::many, FlagEffect::not_computed, "batch size that changes during training",
              "rampup-batch-size step-batch-size-schedule"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "retrieval (Retro)", "retro-project-dir"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "retrieval (Retro)", "retro-add-retriever"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "another attention", "experimental-attention-variant linear-attention-freq"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "gated attention output", "attention-output-gate"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "knowledge distillation or pruned export", "export-kd-cfg export-kd-teacher-load"},
    FlagGroup{FlagArity::one, FlagEffect::not_computed, "reduced precision of kept activations",
              "kitchen-config-file kitchen-recipe-number"},
    FlagGroup{FlagArity::none, FlagEffect::not_computed, "fp8 copies of activations", "fp8-dot-product-attention fp8-multi-head-attention"},

    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "adam-beta1 adam-beta2 adam-eps sgd-momentum clip-grad weight-decay start-weight-decay end-weight-decay "
              "weight-decay-incr-style lr min-lr lr-decay-style lr-wsd-decay-style lr-decay-iters lr-decay-samples lr-wsd-decay-iters "
              "lr-wsd-decay-samples lr-warmup-fraction lr-warmup-iters lr-warmup-samples lr-warmup-init warmup decoupled-lr "
              "decoupled-min-lr lr-mult-router init-method-std embedding-init-method-std loss-scale initial-loss-scale "
              "min-loss-scale loss-scale-window hysteresis train-iters train-samples train-tokens exit-interval exit-duration-in-mins "
              "eval-interval "
              "eval-iters eval-global-batch-size eval-micro-batch-size start-eval-at-iter seed data-parallel-random-init-seed"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "save save-interval save-retain-interval load ckpt-step ckpt-format dist-ckpt-format dist-ckpt-strictness "
              "dist-ckpt-workers pretrained-checkpoint non-persistent-save-interval non-persistent-ckpt-type "
              "non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo auto-detect-ckpt-format-from "
              "replication-jump replication-factor tokenizer-type tokenizer-model tokenizer-metadata tiktoken-pattern "
              "tiktoken-num-special-tokens vocab-file merge-file vocab-extra-ids vocab-special-tokens split data-cache-path "
              "data-args-path per-split-data-args-path num-dataset-builder-threads num-workers dataloader-type mid-level-dataset-surplus "
              "mmap-bin-files retriever-seq-length sample-rate mask-prob short-seq-prob log-interval tensorboard-dir "
              "tensorboard-log-interval tensorboard-queue-size wandb-project wandb-exp-name wandb-save-dir wandb-entity "
              "logging-level timing-log-level timing-log-option profile-step-start profile-step-end memory-snapshot-path "
              "config-logger-dir one-logger-project one-logger-run-name one-logger-entity app-tag-run-name app-tag-run-version "
              "straggler-ctrlr-port straggler-minmax-count check-weight-hash-across-dp-replicas-interval manual-gc-interval "
              "distributed-backend distributed-timeout-minutes local-rank local_rank high-priority-stream-groups "
              "nccl-communicator-config-path rerun-mode error-injection-rate error-injection-type result-rejected-tracker-filename "
              "export-model-type export-quant-cfg yaml-cfg inference-max-seq-length inference-max-requests "
              "inference-batch-times-seqlen-threshold "
              "cuda-graph-warmup-steps"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "moe-z-loss-coeff moe-input-jitter-eps "
              "moe-router-topk-scaling-factor moe-token-drop-policy moe-per-layer-logging-interval moe-deepep-num-sms "
              "moe-hybridep-num-sms moe-router-topk-limited-devices glu-linear-offset activation-func-clamp-value "
              "fp8-margin fp8-interval fp8-amax-history-len fp8-amax-compute-algo tp-comm-overlap-cfg tp-comm-bootstrap-backend "
              "mamba-head-dim mamba-num-groups mamba-num-heads mamba-state-dim num-mla-groups"},
    // Flextron's and distillation's settings; the feature itself is named by its switch.
    FlagGroup{FlagArity::many, FlagEffect::without, "",
              "budget-list budget-probs budget-type emb-int-list mlp-int-list mamba-int-list moe-expert-int-list hard-sample-th "
              "linear-scaler-start linear-scaler-end loss-alpha original-model-sample-prob router-beta router-gbs router-inter-dim "
              "router-std tau-init tau-decay"},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "slice soft-mask binary-mask"},
    FlagGroup{FlagArity::many, FlagEffect::without, "",
              "data-path train-data-path valid-data-path test-data-path hierarchical-context-parallel-sizes iterations-to-skip "
              "profile-ranks mrope-section no-rope-freq mtp-layer-pattern"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "async-save use-persistent-ckpt-worker auto-detect-ckpt-format ckpt-assume-constant-structure ckpt-fully-parallel-load "
              "ckpt-fully-parallel-save no-ckpt-fully-parallel-save dist-ckpt-optim-fully-reshardable dist-ckpt-save-pre-mcore-014 "
              "use-dist-ckpt exit-on-missing-checkpoint no-load-optim no-load-rng no-save-optim no-save-rng no-load-strict finetune "
              "perform-initialization no-initialization use-checkpoint-args use-mp-args-from-checkpoint-args "
              "use-checkpoint-opt_param-scheduler use-checkpoint-opt-param-scheduler override-opt_param-scheduler "
              "override-opt-param-scheduler replication verify-integrity mock-data legacy-tokenizer no-mmap-bin-files "
              "reset-position-ids reset-attention-mask eod-mask-loss s3-cache-path full-validation create-attention-mask-in-dataloader"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "use-mcore-models use-legacy-models no-persist-layer-norm apply-layernorm-1p rotary-interleaved "
              "apply-residual-connection-post-layernorm bert-no-binary-head calculate-per-token-loss ddp-average-in-collective "
              "init-method-xavier-uniform check-for-nan-in-loss-and-grad check-for-spiky-loss check-for-large-grads "
              "moe-router-pre-softmax moe-router-force-load-balancing moe-router-padding-for-fp8 moe-per-layer-logging "
              "moe-router-fusion moe-apply-probs-on-input moe-layer-recompute-off test-mode manual-gc te-rng-tracker "
              "inference-rng-tracker enable-experimental export-default-te-spec export-te-mcore-model no-weight-decay-cond "
              "use-fused-weighted-squared-relu no-fp8-wgrad align-param-gather no-align-param-gather no-barrier-with-level-1-timing "
              "no-scatter-gather-tensors-in-pipeline use-ring-exchange-p2p lazy-mpu-init use-cpu-initialization empty-unused-memory "
              "enable-gloo-process-groups disable-gloo-process-groups data-parallel-random-init "
              "tp-comm-overlap-rs-dgrad disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-overlap-ag "
              "disable-tp-comm-overlap-rs disable-tp-comm-split-ag disable-tp-comm-split-rs batch-invariant-mode"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "log-throughput log-progress log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-memory-to-tensorboard "
              "log-world-size-to-tensorboard log-batch-size-to-tensorboard no-log-learnig-rate-to-tensorboard "
              "no-log-loss-scale-to-tensorboard log-straggler log-device-memory-used log-loss-scale-to-tensorboard log-energy "
              "disable-straggler-on-startup disable-mamba-mem-eff-path profile use-pytorch-profiler record-memory-history "
              "no-one-logger enable-one-logger enable-ft-package exit-signal-handler adlr-autoresume skip-train "
              "decrease-batch-size-if-needed dataloader-fast-cache-load disable-msc enable-msc inprocess-restart"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "nproc_per_node nproc-per-node nnodes node_rank node-rank master_addr master-addr master_port master-port rdzv_id rdzv-id "
              "rdzv_backend rdzv-backend rdzv_endpoint rdzv-endpoint rdzv_conf rdzv-conf max_restarts max-restarts log_dir log-dir "
              "exit-signal adlr-autoresume-interval tee redirects empty-unused-memory-level"},
};

using FlagTable = std::unordered_map<std::string_view, Flag>;

const FlagTable& table() {
    static const FlagTable flags = [] {
        FlagTable built;
        for (const auto& group : kGroups) {
            std::string_view names = group.names;
            while (!names.empty()) {
                const auto end = std::min(names.find(' '), names.size());
                if (end > 0) built.emplace(names.substr(0, end), Flag{group.arity, group.effect, group.feature});
                names.remove_prefix(std::min(end + 1, names.size()));
            }
        }
        return built;
    }();
    return flags;
}

bool is_flag(const std::string& word) {
    return word.size() > 2 && word.starts_with("--");
}

/// Where the training script's own flags begin: behind its name ("torchrun --nnodes 2 pretrain_gpt.py --num-layers …"),
/// at 0 where no script is named before the first flag that counts.
std::size_t behind_launcher(const std::vector<std::string>& words) {
    for (std::size_t at = 0; at < words.size(); ++at) {
        if (words[at].ends_with(".py")) return at + 1;
        if (is_flag(words[at])) {
            const auto flag = find_flag(words[at].substr(0, words[at].find('=')));
            if (flag && flag->effect == FlagEffect::used) return 0;
        }
    }
    return 0;
}

/// Adds a text once.
void add_once(std::vector<std::string>& list, std::string text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

/// What no flag explains, each text once. A file that is no command line is all of that: after so many no more are listed.
class UnknownWords {
public:
    /// Whether a text is still listed; if not, it is counted.
    bool lists_more() {
        if (listed_.size() < kMost) return true;
        ++left_out_;
        return false;
    }
    void add(std::string text) { add_once(listed_, std::move(text)); }
    [[nodiscard]] std::vector<std::string> list() && {
        if (left_out_ > 0) listed_.push_back(fmt::format("and {} more", left_out_));
        return std::move(listed_);
    }

private:
    static constexpr std::size_t kMost = 100;
    std::vector<std::string> listed_;
    std::size_t left_out_ = 0;
};

std::string joined(std::string text, const std::vector<std::string>& words, std::size_t from, std::size_t to) {
    constexpr std::size_t kShown = 200;
    for (std::size_t i = from; i < to && text.size() < kShown; ++i) text += fmt::format(" {}", words[i].substr(0, kShown));
    if (text.size() > kShown) text = text.substr(0, kShown) + "...";
    return text;
}

}  // namespace

std::optional<Flag> find_flag(std::string_view name) {
    if (name.starts_with("--")) name.remove_prefix(2);
    const auto found = table().find(name);
    if (found == table().end()) return std::nullopt;
    return found->second;
}

std::vector<std::string> flag_names() {
    std::vector<std::string> names;
    for (const auto& [name, flag] : table()) names.push_back(fmt::format("--{}", name));
    std::sort(names.begin(), names.end());
    return names;
}

ParsedFlags parse_flags(const std::vector<std::string>& words) {
    ParsedFlags parsed;
    UnknownWords unknown;
    std::size_t at = behind_launcher(words);
    while (at < words.size() && !is_flag(words[at])) ++at;  // the command before its flags
    while (at < words.size()) {
        std::string name = words[at];
        std::vector<std::string> values;
        if (const auto equals = name.find('='); equals != std::string::npos) {
            values.push_back(name.substr(equals + 1));
            name = name.substr(0, equals);
        }
        std::size_t end = at + 1;
        while (end < words.size() && !is_flag(words[end])) ++end;
        const auto flag = find_flag(name);
        if (!flag) {
            if (unknown.lists_more()) {
                static const std::vector<std::string> known = flag_names();
                const std::string hint = did_you_mean(name, known);
                unknown.add(joined(words[at].substr(0, 200), words, at + 1, end) + (hint.empty() ? "" : fmt::format(" ({})", hint)));
            }
            at = end;
            continue;
        }
        std::size_t taken = at + 1;
        if (values.empty() && flag->arity != FlagArity::none) {
            const std::size_t most = flag->arity == FlagArity::one ? std::min(end, at + 2) : end;
            values.assign(words.begin() + static_cast<std::ptrdiff_t>(taken), words.begin() + static_cast<std::ptrdiff_t>(most));
            taken = most;
        }
        // Words behind a flag that takes none: a redirection behind a command, say.
        if (taken < end && unknown.lists_more()) unknown.add(joined("words that belong to no flag:", words, taken, end));
        switch (flag->effect) {
            case FlagEffect::used:
                parsed.used[name] = std::move(values);
                break;
            case FlagEffect::without:
                add_once(parsed.without_effect, name);
                parsed.without_effect_values[name] = std::move(values);
                break;
            case FlagEffect::not_computed:
                add_once(parsed.not_computed, fmt::format("{} ({})", flag->feature, name));
                break;
        }
        at = end;
    }
    parsed.unknown = std::move(unknown).list();
    return parsed;
}

}  // namespace mgplan::importers
