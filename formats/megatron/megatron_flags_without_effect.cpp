#include <array>

#include "formats/megatron/megatron_flag_groups.hpp"

// Source: megatron/training/arguments.py of Megatron-LM over its releases, and the dataclasses that it makes flags of (argument_utils.py,
// d98e8a64). Scripts also hold torchrun's own flags.

namespace mgplan::formats {
namespace {

constexpr std::string_view kOfRule = "a rule about other flags asks for it";

constexpr std::array kFlagsWithoutEffect{
    // Numbers that change what is learned and no size or time; they are read for export and for mgplan's own runs.
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "rotary-base rope-type norm-epsilon rotary-scaling-factor rope-scaling-factor mscale mscale-all-dim "
              "original-max-position-embeddings beta-fast beta-slow mtp-loss-scaling-factor rotary-seq-len-interpolation-factor "
              "no-rope-freq moe-router-score-function moe-router-bias-update-rate moe-router-topk-scaling-factor init-method-std",
              Decides::nothing},
    FlagGroup{FlagArity::one, FlagEffect::without, "", "lora-adapter-name", Decides::nothing},
    FlagGroup{FlagArity::many, FlagEffect::without, "", "lora-register-forward-hook", Decides::nothing},
    // Read for export: the prediction has random draws without it.
    FlagGroup{FlagArity::none, FlagEffect::without, "", "moe-router-force-load-balancing", Decides::nothing},
    // The hybrid optimizer takes PyTorch's on the host whatever it says (core/optimizer/__init__.py, d98e8a64); what the host keeps pinned
    // is no memory of the device.
    FlagGroup{FlagArity::none, FlagEffect::without, "", "use-torch-optimizer-for-cpu-offload cpu-offloading-retain-pinned-cpu-buffers"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "moe-router-pre-softmax squared-relu use-rope-scaling no-check-for-nan-in-loss-and-grad "
              "log-params-norm log-num-zeros-in-grad",
              Decides::nothing},
    // Experts' squared ReLU is predicted as the one kernel that this makes of it, also without.
    FlagGroup{FlagArity::none, FlagEffect::without, "", "use-fused-weighted-squared-relu"},
    // Numbers of rows are far above a page of 64 tokens, to which they are rounded up.
    FlagGroup{FlagArity::one, FlagEffect::without, "", "moe-paged-stash-page-size"},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "openai-gelu onnx-safe", Decides::nothing},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "moe-enable-deepep"},  // the flex dispatcher's default
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "adam-beta1 adam-beta2 adam-eps sgd-momentum clip-grad weight-decay start-weight-decay end-weight-decay "
              "weight-decay-incr-style lr min-lr lr-decay-style lr-wsd-decay-style lr-decay-iters lr-decay-samples lr-wsd-decay-iters "
              "lr-wsd-decay-samples lr-warmup-fraction lr-warmup-iters lr-warmup-samples lr-warmup-init decoupled-lr "
              "decoupled-min-lr lr-mult-router embedding-init-method-std loss-scale initial-loss-scale "
              "min-loss-scale loss-scale-window hysteresis train-tokens exit-interval exit-duration-in-mins "
              "eval-interval "
              "eval-iters start-eval-at-iter seed data-parallel-random-init-seed"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "save save-interval save-retain-interval ckpt-step dist-ckpt-format dist-ckpt-strictness "
              "dist-ckpt-workers non-persistent-save-interval non-persistent-ckpt-type "
              "non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo auto-detect-ckpt-format-from "
              "replication-jump replication-factor tokenizer-metadata tiktoken-pattern "
              "tiktoken-num-special-tokens merge-file vocab-special-tokens split data-cache-path "
              "data-args-path per-split-data-args-path num-dataset-builder-threads num-workers mid-level-dataset-surplus "
              "mmap-bin-files retriever-seq-length sample-rate mask-prob short-seq-prob log-interval tensorboard-dir "
              "tensorboard-log-interval tensorboard-queue-size wandb-project wandb-exp-name wandb-save-dir wandb-entity "
              "logging-level timing-log-level timing-log-option profile-step-start profile-step-end memory-snapshot-path "
              "config-logger-dir one-logger-project one-logger-run-name one-logger-entity app-tag-run-name app-tag-run-version "
              "straggler-ctrlr-port straggler-minmax-count check-weight-hash-across-dp-replicas-interval manual-gc-interval "
              "distributed-backend distributed-timeout-minutes local-rank local_rank high-priority-stream-groups "
              "nccl-communicator-config-path rerun-mode error-injection-rate error-injection-type result-rejected-tracker-filename "
              "export-model-type export-quant-cfg inference-max-seq-length inference-max-requests "
              "inference-batch-times-seqlen-threshold "
              "cuda-graph-warmup-steps"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "moe-z-loss-coeff moe-input-jitter-eps "
              "moe-token-drop-policy moe-per-layer-logging-interval "
              "moe-router-topk-limited-devices "
              "fp8-margin fp8-interval fp8-amax-history-len fp8-amax-compute-algo tp-comm-overlap-cfg tp-comm-bootstrap-backend "
              "num-mla-groups"},
    // Show that a checkpoint brings the rows of the vocabulary.
    FlagGroup{FlagArity::none, FlagEffect::without, "", "use-checkpoint-args", Decides::nothing, kOfRule},
    FlagGroup{FlagArity::one, FlagEffect::without, "", "pretrained-checkpoint", Decides::nothing, kOfRule},
    // Distinguish a checkpoint from which training goes on from one with which it begins.
    FlagGroup{FlagArity::none, FlagEffect::without, "", "finetune skip-train ddp-average-in-collective calculate-per-token-loss",
              Decides::nothing, kOfRule},
    FlagGroup{FlagArity::one, FlagEffect::without, "", "dataloader-type", Decides::nothing, kOfRule},
    // Models of Megatron-core take it and read it nowhere (models/gpt/gpt_model.py, hybrid/hybrid_model.py).
    FlagGroup{FlagArity::none, FlagEffect::without, "", "fp16-lm-cross-entropy"},
    // Flags that weights in parts exclude or need (formats/megatron/megatron_weight_shards.cpp).
    FlagGroup{FlagArity::one, FlagEffect::without, "", "eval-global-batch-size eval-micro-batch-size", Decides::nothing, kOfRule},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient",
              Decides::nothing, kOfRule},
    // Forks have these: logs, the last save, data and names of Primus, Pai-Megatron-Patch, llm-jp and swiss-ai; what older releases had as
    // defaults.
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "stderr-sink-level log-avg-skip-iterations log-avg-reset-interval wandb-name data-impl trigger-path max-padding-length "
              "patch-tokenizer-type qknorm-impl ademamix-alpha ademamix-beta3 ademamix-beta3-warmup ademamix-alpha-warmup"},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "disable-last-saving no-query-key-layer-scaling use-mpi"},
    // Distinguishes gpt-oss' gate from others: values, not bytes or time.
    FlagGroup{FlagArity::one, FlagEffect::without, "", "glu-linear-offset", Decides::nothing},
    // Flextron's and distillation's settings; the feature itself is named by its switch.
    FlagGroup{FlagArity::many, FlagEffect::without, "",
              "budget-list budget-probs budget-type emb-int-list mlp-int-list mamba-int-list moe-expert-int-list hard-sample-th "
              "linear-scaler-start linear-scaler-end loss-alpha original-model-sample-prob router-beta router-gbs router-inter-dim "
              "router-std tau-init tau-decay"},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "slice soft-mask binary-mask"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "export-kd-cfg export-kd-teacher-model-config export-kd-teacher-ckpt-format num-layers-teacher hidden-size-teacher "
              "num-attention-heads-teacher kd-beta-ce kd-alpha-ce kd-temp"},
    FlagGroup{FlagArity::many, FlagEffect::without, "", "num-experts-teacher"},
    FlagGroup{FlagArity::many, FlagEffect::without, "",
              "data-path train-data-path valid-data-path test-data-path hierarchical-context-parallel-sizes iterations-to-skip "
              "profile-ranks mrope-section mtp-layer-pattern"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "use-persistent-ckpt-worker auto-detect-ckpt-format ckpt-assume-constant-structure ckpt-fully-parallel-load "
              "ckpt-fully-parallel-save no-ckpt-fully-parallel-save dist-ckpt-save-pre-mcore-014 "
              "use-dist-ckpt exit-on-missing-checkpoint no-load-rng no-save-rng no-load-strict "
              "perform-initialization no-initialization use-mp-args-from-checkpoint-args "
              "use-checkpoint-opt_param-scheduler use-checkpoint-opt-param-scheduler override-opt_param-scheduler "
              "override-opt-param-scheduler replication verify-integrity mock-data legacy-tokenizer no-mmap-bin-files "
              "reset-position-ids reset-attention-mask eod-mask-loss s3-cache-path full-validation create-attention-mask-in-dataloader"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "use-mcore-models use-legacy-models no-persist-layer-norm apply-layernorm-1p rotary-interleaved "
              "apply-residual-connection-post-layernorm bert-no-binary-head "
              "init-method-xavier-uniform check-for-nan-in-loss-and-grad check-for-spiky-loss check-for-large-grads "
              "moe-router-padding-for-fp8 moe-per-layer-logging "
              "moe-router-fusion moe-apply-probs-on-input moe-layer-recompute-off test-mode manual-gc te-rng-tracker "
              "inference-rng-tracker enable-experimental export-default-te-spec export-te-mcore-model no-weight-decay-cond "
              "align-param-gather no-align-param-gather no-barrier-with-level-1-timing "
              "no-scatter-gather-tensors-in-pipeline use-ring-exchange-p2p lazy-mpu-init use-cpu-initialization empty-unused-memory "
              "enable-gloo-process-groups disable-gloo-process-groups data-parallel-random-init "
              "tp-comm-overlap-rs-dgrad disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-overlap-ag "
              "disable-tp-comm-overlap-rs disable-tp-comm-split-ag disable-tp-comm-split-rs "},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "log-throughput log-progress log-timers-to-tensorboard log-validation-ppl-to-tensorboard log-memory-to-tensorboard "
              "log-world-size-to-tensorboard log-batch-size-to-tensorboard no-log-learnig-rate-to-tensorboard "
              "no-log-loss-scale-to-tensorboard log-straggler log-device-memory-used log-loss-scale-to-tensorboard log-energy "
              "disable-straggler-on-startup profile use-pytorch-profiler record-memory-history "
              "no-one-logger enable-one-logger enable-ft-package exit-signal-handler adlr-autoresume "
              "dataloader-fast-cache-load disable-msc enable-msc inprocess-restart"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "nproc_per_node nproc-per-node nnodes node_rank node-rank master_addr master-addr master_port master-port rdzv_id rdzv-id "
              "rdzv_backend rdzv-backend rdzv_endpoint rdzv-endpoint rdzv_conf rdzv-conf max_restarts max-restarts log_dir log-dir "
              "exit-signal adlr-autoresume-interval tee redirects "},
    // Checkpoints.
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "async-ckpt-use-cpu-shm ckpt-convert-update-legacy-dist-opt-format ckpt-fully-parallel-load-per-rank-objects "
              "ckpt-pg-tensors-cache-create load-main-params-from-ckpt "
              "no-ckpt-load-validate-sharding-integrity no-save-tokenizer-assets no-strict-fsdp-dtensor-load "
              "no-use-tokenizer-model-from-checkpoint-args ckpt-drop-redundant-extra-state"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "async-ckpt-cpu-priority async-ckpt-io-priority async-strategy ckpt-convert-format ckpt-convert-save "
              "ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-load-process-group "
              "ckpt-fully-parallel-save-process-group ckpt-pg-tensors-cache-path persistent-save-interval "
              "override-ckpt-iteration"},
    // Data and validation.
    FlagGroup{FlagArity::many, FlagEffect::without, "", "validation-set-names"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "allow-ambiguous-pad-tokens dataloader-defer-npy-index-mmap fim-data multiple-validation-sets "
              "no-tokenizer-sentencepiece-ignore-extra-whitespaces trust-remote-code use-gigatoken"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "chat-template null-tokenizer-eod-id null-tokenizer-pad-id fim-eod-token fim-fragment-rate fim-middle-token "
              "fim-no-prefix fim-pad-token fim-prefix-token fim-rate fim-split-sample fim-spm-rate fim-suffix-token "
              "object-storage-cache-path per-dataset-sequences-path phase-transition-iterations"},
    // Inference.
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "decode-only-cuda-graphs enable-chunked-prefill inference-cuda-graph-all-prefills inference-dynamic-batching "
              "inference-dynamic-batching-track-generated-token-events inference-dynamic-batching-track-paused-request-events "
              "output-bert-embeddings use-legacy-static-engine use-same-sampling-seed-across-dp-ranks"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "bert-embedder-type inference-coordinator-port inference-cuda-graph-max-tokens inference-disable-ep-consensus "
              "inference-dynamic-batching-async-sched-mode inference-dynamic-batching-block-size "
              "inference-dynamic-batching-buffer-size-gb inference-dynamic-batching-cuda-graph-mixed-prefill-count "
              "inference-dynamic-batching-cuda-graph-sizing-distribution inference-dynamic-batching-logprobs-mode "
              "inference-dynamic-batching-mamba-memory-ratio inference-dynamic-batching-max-requests "
              "inference-dynamic-batching-max-tokens inference-dynamic-batching-num-cuda-graphs "
              "inference-dynamic-batching-paused-buffer-size-gb inference-dynamic-batching-prefix-caching "
              "inference-dynamic-batching-prefix-caching-coordinator-policy "
              "inference-dynamic-batching-prefix-caching-eviction-policy inference-dynamic-batching-prefix-caching-mamba-gb "
              "inference-dynamic-batching-prefix-caching-routing-alpha inference-dynamic-batching-sampling-backend "
              "inference-dynamic-batching-unified-memory-level inference-logging-step-interval inference-shards "
              "inference-text-gen-server-logging inference-use-synchronous-zmq-collectives inference-wandb-logging "
              "mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype max-tokens-to-oom num-speculative-tokens"},
    // Logs and traces.
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "log-max-attention-logit moe-routing-trace-capture-hidden-states moe-routing-trace-capture-logits "
              "moe-routing-trace-dump-weights nvtx-ranges pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra "
              "pytorch-profiler-collect-shapes record-shapes one-logger-async otel-enabled"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "log-memory-interval moe-routing-trace-max-training-iters moe-routing-trace-path otel-service-name "
              "otel-span-groups"},
    // Settings of features that a switch of their own names, and numbers that change no size.
    FlagGroup{FlagArity::many, FlagEffect::without, "", "retriever-report-topk-accuracies"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "apply-wd-to-qk-layernorm muon-nesterov muon-no-split-qkv muon-use-syrk biencoder-shared-query-context-model "
              "retriever-score-scaling use-one-sent-docs cache-mla-latents dino-norm-last-layer no-data-sharding "
              "dsa-indexer-rope-interleaved flash-decode inference-disable-triton-nvls-kernels "
              "inference-fuse-tp-communication inference-moe-disable-fused-quant-kernels init-model-with-meta-device "
              "moe-pad-experts-for-cuda-graph-inference nccl-all-reduce-for-prefill no-clone-scatter-output-in-embedding "
              "no-dsa-indexer-rotate-activation no-dsa-indexer-scoring-relu use-mup grpo-filter-groups-with-same-reward "
              "rl-durable-rollout-bank logits-load-ignore-errors moe-use-upcycling no-pin-cpu-grads no-pin-cpu-params "
              "no-yarn-correction-range-round-to-int yarn-correction-range-round-to-int"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "bert-load block-data-path embedding-path evidence-data-path ict-load indexer-batch-size indexer-log-interval "
              "query-in-block-prob classes-fraction data-per-class-fraction dino-bottleneck-size dino-freeze-last-layer "
              "dino-head-hidden-size dino-local-crops-number dino-local-img-size dino-teacher-temp dino-warmup-teacher-temp "
              "dino-warmup-teacher-temp-epochs head-lr-mult img-h img-w iter-per-epoch mask-factor mask-type num-channels "
              "num-classes patch-dim vision-pretraining-type dsa-indexer-k-norm-epsilon dsa-indexer-loss-coeff "
              "inference-cuda-graph-scope inference-grouped-gemm-backend inference-moe-token-dispatcher-type "
              "moe-hybridep-num-blocks-permute moe-hybridep-num-blocks-unpermute "
              "moe-hybridep-num-sms-preprocessing moe-router-quantile-balancing-ema "
              "mup-attn-scale-power mup-base-head-dim mup-base-hidden-size mup-embedding-mult mup-output-mult mup-width-mult "
              "qk-clip-alpha qk-clip-threshold dump-param-to-param-group-map grpo-clamp-eps-lower grpo-clamp-eps-upper "
              "grpo-entropy-term-weight grpo-group-size grpo-iterations grpo-kl-beta grpo-prompts-per-step langrl-env-config "
              "refit-method rl-consumption-granularity rl-default-temperature rl-default-top-k rl-default-top-p "
              "rl-generation-lag lion-beta1 lion-beta2 muon-coefficient-type muon-extra-scale-factor muon-fp32-matmul-prec "
              "muon-momentum muon-num-ns-steps muon-scalar-optimizer muon-scale-mode muon-tp-mode no-weight-decay-cond-type "
              "logits-load-decode-threads logits-load-kd-loss-alpha logits-load-msc-prefetch-depth "
              "logits-load-prefetch-factor logits-save-dir logits-save-dtype logits-save-top-k logits-save-top-p "
              "logits-save-top-p-min-k mamba-training-ssm-states-dtype moe-upcycling-granularity "
              "relative-attention-max-distance relative-attention-num-buckets yarn-beta-fast yarn-beta-slow "
              "yarn-original-max-position-embeddings"},
    // Watching and restarting.
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "calc-ft-timeouts exit-signal-handler-for-dataloader exit-signal-handler-for-training no-manual-gc-eval "
              "flight-recorder-include-stack-trace no-flight-recorder-dump-on-timeout no-flight-recorder-extra-dump-on-exec "
              "no-flight-recorder-include-only-active inprocess-empty-cuda-cache"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "distributed-timeout-seconds-after-init flight-recorder-dump-path flight-recorder-trace-buffer-size "
              "ft-num-warmup-iters gpu-sniff-test-interval train-sync-interval inprocess-active-world-size "
              "inprocess-barrier-timeout inprocess-completion-timeout inprocess-granularity inprocess-hard-timeout "
              "inprocess-heartbeat-interval inprocess-heartbeat-timeout inprocess-last-call-wait inprocess-max-iterations "
              "inprocess-monitor-process-interval inprocess-monitor-thread-interval inprocess-progress-watchdog-interval "
              "inprocess-soft-timeout inprocess-termination-grace-time"},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "run-workload-inspector-server"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "save-tokens-per-expert-interval wd-incr-steps fault-injector-ranks fault-injector-num-ranks fault-injector-fault-types "
              "fault-injector-fault-probabilities fault-injector-fault-delay fault-injector-delay-start-iteration "
              "fault-injector-mtti-seconds fault-injector-offset-seconds fault-injector-seed"},
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast tokenizer-sentencepiece-legacy"},
    FlagGroup{FlagArity::one, FlagEffect::without, "", "sft-tokenizer-prompt-format"},
    // Tensors and parameters written out at such steps.
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "save-activations-interval save-dgrads-interval save-params-interval save-wgrads-interval titles-data-path "
              "swin-backbone-type"},
    FlagGroup{FlagArity::many, FlagEffect::without, "", "tokenizer-special-tokens rl-inference-parsers"},
    FlagGroup{FlagArity::none, FlagEffect::without, "", "rl-profile"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "rl-inference-expert-model-parallel-size rl-inference-pipeline-model-parallel-size "
              "rl-inference-tensor-model-parallel-size rl-prompts-per-eval rl-sequence-packing-algo rl-submission-granularity"},
    // Reinforcement learning, which --perform-rl-step switches on; these change nothing without it.
    FlagGroup{FlagArity::none, FlagEffect::without, "",
              "rl-partial-rollouts rl-skip-bos-token rl-verify-model-weights-swap rl-training-cuda-graphs rl-persist-cuda-graphs "
              "rl-offload-optimizer-during-inference rl-offload-inference-model-weights-when-idle rl-inference-logprobs-is-correction"},
    FlagGroup{FlagArity::one, FlagEffect::without, "",
              "rl-importance-sampling-truncation-coef rl-inference-expert-tensor-model-parallel-size "
              "rl-inference-model-unified-memory-level rl-kv-cache-management-mode rl-max-inflight-requests rl-profile-dir "
              "rl-rollout-bank-dir rl-rollout-bank-max-bytes rl-sequence-packing-max-sequences-per-bin"},
};

}  // namespace

std::span<const FlagGroup> flag_groups_without_effect() {
    return kFlagsWithoutEffect;
}

}  // namespace mgplan::formats
