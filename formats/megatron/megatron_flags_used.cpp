#include <array>

#include "formats/megatron/megatron_flag_groups.hpp"

// Source: megatron/training/arguments.py of Megatron-LM over its releases, and the dataclasses that it makes flags of (argument_utils.py,
// d98e8a64).

namespace mgplan::formats {
namespace {

constexpr std::array kUsedFlags{
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "num-layers encoder-num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups "
              "max-position-embeddings vocab-size padded-vocab-size make-vocab-size-divisible-by normalization "
              "position-embedding-type rotary-percent "
              "attention-dropout hidden-dropout window-size window-attn-skip-freq softmax-type "
              "seq-length encoder-seq-length global-batch-size"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "group-query-attention swiglu quick-geglu qk-layernorm disable-bias-linear "
              "add-qkv-bias untie-embeddings-and-output-weights no-position-embedding use-rotary-position-embeddings "
              "no-pad-vocab-size"},
    FlagGroup{FlagArity::one, FlagEffect::used, "layout",
              "micro-batch-size recompute-granularity tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size "
              "expert-model-parallel-size "
              "expert-tensor-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank "
              "microbatch-group-size-per-virtual-pipeline-stage decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
              "pipeline-model-parallel-layout virtual-pipeline-model-parallel-size"},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "recompute-method recompute-num-layers cuda-graph-impl"},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "num-distributed-optimizer-instances"},
    FlagGroup{FlagArity::none, FlagEffect::used, "layout",
              "sequence-parallel account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split recompute-activations "
              "decrease-batch-size-if-needed"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "use-tp-pp-dp-mapping enable-cuda-graph external-cuda-graph moe-layer-recompute "
              "no-overlap-p2p-communication overlap-grad-reduce overlap-param-gather "
              "use-distributed-optimizer tp-comm-overlap overlap-moe-expert-parallel-comm delay-wgrad-compute "
              "moe-shared-expert-overlap defer-embedding-wgrad-compute ddp-pad-buckets-for-high-nccl-busbw"},
    FlagGroup{FlagArity::many, FlagEffect::used, "layout", "cp-comm-type"},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "recompute-modules cuda-graph-scope cuda-graph-modules"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "attention-backend transformer-impl "
              "ddp-bucket-size ddp-num-buckets cross-entropy-fusion-impl wgrad-deferral-limit"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "use-flash-attn cross-entropy-loss-fusion "
              "no-gradient-accumulation-fusion no-bias-swiglu-fusion "
              "no-masked-softmax-fusion moe-permute-fusion "
              "deterministic-mode "
              "no-create-attention-mask-in-dataloader no-async-tensor-model-parallel-allreduce"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "bf16 fp16 accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 fp8-param-gather use-precision-aware-optimizer "
              "fp4-param-gather fp8-output-proj fp8-dot-product-attention "
              "use-transformer-engine-op-fuser moe-permute-fusion-into-hybridep"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "activation-func-clamp-value fp4-format moe-deepep-num-sms moe-hybridep-num-sms moe-flex-dispatcher-num-sms "
              "fp8-format fp8-recipe main-params-dtype main-grads-dtype exp-avg-dtype exp-avg-sq-dtype optimizer"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "num-experts moe-router-topk moe-ffn-hidden-size moe-latent-size moe-shared-expert-intermediate-size moe-layer-freq "
              "moe-token-dispatcher-type moe-flex-dispatcher-backend moe-expert-capacity-factor moe-router-num-groups "
              "moe-router-group-topk moe-router-dtype moe-router-load-balancing-type moe-aux-loss-coeff "},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "moe-grouped-gemm moe-use-legacy-grouped-gemm moe-pad-expert-input-to-capacity moe-router-enable-expert-bias "
              "moe-shared-expert-gate"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim mtp-num-layers hybrid-layer-pattern "
              "hybrid-override-pattern hybrid-attention-ratio hybrid-mlp-ratio "
              "mamba-head-dim mamba-num-groups mamba-num-heads mamba-state-dim experimental-attention-variant linear-attention-type "
              "linear-attention-freq linear-conv-kernel-dim linear-key-head-dim linear-num-key-heads linear-num-value-heads "
              "linear-value-head-dim dsa-indexer-head-dim dsa-indexer-n-heads dsa-indexer-topk"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "xielu multi-latent-attention is-hybrid-model checkpoint-activations attention-output-gate mtp-use-repeated-layer "
              "first-last-layers-bf16"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "decoder-num-layers decoder-seq-length batch-size warmup model-parallel-size tokenizer-type tokenizer-model "
              "tokenizer-name-or-path vocab-file "
              "vocab-extra-ids"},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "step-batch-size-schedule rampup-batch-size spec"},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "tensor-parallel-num-weight-shards expert-tensor-parallel-num-weight-shards"},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "gtp-remat-opt-in-modules"},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "hybrid-context-parallel"},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "enable-mhc-connections enable-hyper-connections use-fused-mhc"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "mhc-num-residual-streams num-residual-streams mhc-sinkhorn-iterations mhc-init-gating-factor mhc-recompute-layer-num"},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "max-seqlen-per-dp-cp-rank"},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "moe-paged-stash"},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "moe-expert-rank-capacity-factor moe-paged-stash-buffer-size-factor-cuda"},
    FlagGroup{FlagArity::one, FlagEffect::used, "", "num-layers-at-start-in-bf16 num-layers-at-end-in-bf16"},
    FlagGroup{FlagArity::one, FlagEffect::used, "length of training", "train-iters train-samples load"},
    // Adapters and distillation, which are refused by name (megatron_refusals.cpp).
    FlagGroup{FlagArity::many, FlagEffect::used, "", "lora-target-modules lora-modules-to-save lora-register-forward-hook"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "lora-r lora-rank lora-alpha lora-load lora-dropout lora-adapter-name export-kd-teacher-load logits-load-dir load-teacher"},
    FlagGroup{FlagArity::none, FlagEffect::used, "", "lora-fusion kd mos"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward use-megatron-fsdp use-custom-fsdp fsdp-double-buffer "
              "megatron-fsdp-max-pool-double-buffer keep-fp8-transpose-cache use-turbo-deepep reuse-grad-buf-for-mxfp8-param-ag"},
    FlagGroup{FlagArity::one, FlagEffect::used, "",
              "data-parallel-sharding-strategy outer-dp-sharding-strategy suggested-communication-unit-size "
              "megatron-fsdp-main-params-dtype megatron-fsdp-main-grads-dtype megatron-fsdp-grad-comm-dtype megatron-fsdp-version "
              "cpu-offloading-num-layers turbo-deepep-num-cu ckpt-format optimizer-offload-fraction min-offloaded-tensor-size "
              "optimizer-state-offload-fraction optimizer-state-offload-chunk-size-mb activation-offload-fraction "
              "delta-offload-bytes-across-pp-ranks"},
    FlagGroup{FlagArity::none, FlagEffect::used, "",
              "optimizer-cpu-offload offload-optimizer-states chunked-optimizer-state-offload async-save no-save-optim no-load-optim "
              "overlap-cpu-optimizer-d2h-h2d "
              "fine-grained-activation-offloading cpu-offloading"},
    FlagGroup{FlagArity::many, FlagEffect::used, "", "offload-modules"},
};

}  // namespace

std::span<const FlagGroup> used_flag_groups() {
    return kUsedFlags;
}

}  // namespace mgplan::formats
