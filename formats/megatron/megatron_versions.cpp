#include "formats/megatron/megatron_versions.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::array<MegatronVersionName, 3> kVersions{{{MegatronVersion::v0_19, "0.19", "megatron-core 0.19.2"},
                                                        {MegatronVersion::v0_20, "0.20", "main at d98e8a64"},
                                                        {MegatronVersion::dev, "dev", "branch dev at d48bd6be"}}};

// The flags that megatron/training/arguments.py of each version makes (add_megatron_arguments), compared. Those in no version are of older
// releases and forks; torchrun's own, and those that ModelOpt, Kitchen and scripts other than pretrain_gpt.py add, are not among them.
constexpr auto kVersionedFlags = std::to_array<VersionedFlags>({
    {{MegatronVersion::v0_20},
     WithoutFlag::refuse,
     "batch-invariant-backend ckpt-drop-redundant-extra-state ckpt-fully-parallel-load-per-rank-objects "
     "ckpt-pg-tensors-cache-create ckpt-pg-tensors-cache-path enable-mhc-connections gdp-cutedsl-kernel "
     "gdp-num-chunk-states-to-recompute gdp-num-householder gtp-expert-remat-nccl-ub gtp-remat-nccl-ub "
     "gtp-remat-opt-in-modules gtp-remat-reduce-scatter-with-fp32-accumulation megatron-fsdp-version mhc-num-residual-streams "
     "moe-combine-bwd-dtype moe-dispatch-fwd-dtype moe-use-grouped-tensor mtp-hsm muon-use-syrk no-save-tokenizer-assets "
     "otel-enabled otel-service-name otel-span-groups output-logit-dtype rl-durable-rollout-bank rl-max-inflight-requests "
     "rl-rollout-bank-dir rl-rollout-bank-max-bytes use-gigatoken"},
    {{MegatronVersion::dev}, WithoutFlag::omit, "original-max-position-embeddings"},
    {{MegatronVersion::dev},
     WithoutFlag::refuse,
     "chunked-optimizer-state-offload enable-hyper-connections linear-attention-type num-residual-streams "
     "offload-optimizer-states optimizer-state-offload-chunk-size-mb optimizer-state-offload-fraction use-fused-mhc "
     "use-layer-wise-param-layout"},
    {{MegatronVersion::v0_19, MegatronVersion::v0_20},
     WithoutFlag::refuse,
     "expert-tensor-parallel-num-weight-shards flash-attention-version inference-cuda-graph-max-tokens "
     "moe-hybridep-pad-uneven-dispatch-inputs moe-ncclep-zero-copy moe-router-quantile-balancing-ema "
     "no-use-layer-wise-param-layout override-ckpt-iteration tensor-parallel-num-weight-shards "
     "use-same-sampling-seed-across-dp-ranks"},
    {{MegatronVersion::v0_20, MegatronVersion::dev},
     WithoutFlag::refuse,
     "mhc-init-gating-factor mhc-recompute-layer-num mhc-sinkhorn-iterations"},
    {{},
     WithoutFlag::omit,
     "ademamix-alpha ademamix-alpha-warmup ademamix-beta3 ademamix-beta3-warmup align-param-gather "
     "auto-detect-ckpt-format-from beta-fast beta-slow check-for-nan-in-loss-and-grad checkpoint-in-cpu checkpoint-num-layers "
     "contigious-checkpointing cpu-offloading cpu-optimizer cpu-torch-adam cpu_torch_adam create-attention-mask-in-dataloader "
     "curriculum-learning data-impl data-parallel-random-init-seed deepspeed-activation-checkpointing deepspeed-config "
     "deepspeed_config disable-last-saving ds-sequence-parallel-fpdt ds-sequence-parallel-fpdt-chunk-size "
     "ds-sequence-parallel-fpdt-offloading ds-sequence-parallel-size embed-layernorm empty-unused-memory "
     "enable-gloo-process-groups enable-hetero enable-one-logger enable-primus-turbo force-ds-sequence-parallel "
     "fp8-dot-product-attention fp8-multi-head-attention fused-ce-mode hetero-process-meshes hidden-size-teacher "
     "hybrid-attention-ratio hybrid-mlp-ratio kd kd-alpha-ce kd-beta-ce kd-temp legacy-tokenizer load-teacher local_rank "
     "log-avg-reset-interval log-avg-skip-iterations log-batch-size-to-tensorboard log-loss-scale-to-tensorboard "
     "lora-adapter-name lora-alpha lora-dropout lora-fusion lora-load lora-modules-to-save lora-r lora-rank "
     "lora-register-forward-hook lora-target-modules max-padding-length max-tokens-per-gpu mmap-bin-files moe-capacity-factor "
     "moe-expert-model-parallelism moe-layer-recompute-off moe-loss-weight moe-num-experts moe-per-layer-logging-interval "
     "moe-router-topk-limited-devices moe-top-k moe-use-legacy-grouped-gemm mos mtp-layer-pattern nccl-ub "
     "no-async-tensor-model-parallel-allreduce no-fp8-weight-transpose-cache no-load-strict "
     "no-log-learnig-rate-to-tensorboard no-query-key-layer-scaling no-scatter-gather-tensors-in-pipeline "
     "no-weight-decay-cond num-attention-heads-teacher num-experts-teacher num-key-value-heads num-layers-teacher "
     "num-mla-groups one-logger-entity partition-activations patch-tokenizer-type perform-initialization post-mlp-layernorm "
     "post-self-attn-layernorm profile-backward qknorm-impl random-ltd remote-device retriever-seq-length retro-add-retriever "
     "retro-project-dir s3-cache-path sink-sliding-window stderr-sink-level synchronize-each-layer tokenizer-name-or-path "
     "train-tokens trigger-path turbo-deepep-num-cu turbo-sync-free-moe-stage use-custom-fsdp use-dualpipev "
     "use-dynamic-batch-size use-gated-attention use-legacy-models use-mpi use-pin-memory use-turbo-attention "
     "use-turbo-deepep use-turbo-grouped-gemm use-z-loss virtual-pipeline-model-parallel-size vocab-special-tokens wandb-name "
     "wd-incr-steps xielu xiprelu xiprelup zero-allgather-bucket-size zero-contigious-gradients zero-reduce-bucket-size "
     "zero-reduce-scatter zero-stage"},
});

using FlagsByName = std::map<std::string, const VersionedFlags*, std::less<>>;

const FlagsByName& flags_by_name() {
    static const FlagsByName flags = [] {
        FlagsByName built;
        for (const VersionedFlags& group : kVersionedFlags) {
            for (const auto& name : split(std::string(group.names), ' ')) built.emplace(name, &group);
        }
        return built;
    }();
    return flags;
}

}  // namespace

std::span<const MegatronVersionName> megatron_versions() {
    return kVersions;
}

const MegatronVersionName& name_of(MegatronVersion version) {
    return *std::find_if(kVersions.begin(), kVersions.end(), [&](const MegatronVersionName& one) { return one.version == version; });
}

const MegatronVersionName& newest_of(const MegatronVersions& versions) {
    return versions.contains(kNewestMegatron) ? name_of(kNewestMegatron)
                                              : *std::find_if(kVersions.begin(), kVersions.end(), [&](const MegatronVersionName& one) {
                                                    return versions.contains(one.version);
                                                });
}

std::string versions_text(const MegatronVersions& versions) {
    std::vector<std::string> all, named;
    for (const MegatronVersionName& one : kVersions) {
        all.emplace_back(one.name);
        if (versions.contains(one.version)) named.emplace_back(one.name);
    }
    return named.empty() ? fmt::format("none of {}", fmt::join(all, ", ")) : fmt::format("{}", fmt::join(named, ", "));
}

std::optional<VersionedFlags> versions_of_flag(std::string_view flag) {
    if (flag.starts_with("--")) flag.remove_prefix(2);
    const auto found = flags_by_name().find(flag);
    return found == flags_by_name().end() ? std::nullopt : std::optional(*found->second);
}

}  // namespace mgplan::formats
