#pragma once
// Choices of Megatron-LM's command line that change its memory or time and have no counterpart in mgplan's own engine.

#include <array>
#include <cstdint>
#include <string_view>

#include "plan/training/fully_sharded.hpp"
#include "plan/training/weight_shards.hpp"

namespace mgplan {

/// Scaling of fp8 values (--fp8-recipe).
enum class Fp8Recipe : std::uint8_t { delayed, tensorwise, blockwise, mxfp8 };

/// Quantisation of a product's operand: an fp8 recipe, or nvfp4 (4-bit elements, a scale for each 16).
enum class QuantisedFormat : std::uint8_t { delayed, tensorwise, blockwise, mxfp8, nvfp4 };

[[nodiscard]] constexpr QuantisedFormat quantised_format(Fp8Recipe recipe, bool nvfp4 = false) {
    return nvfp4 ? QuantisedFormat::nvfp4 : static_cast<QuantisedFormat>(recipe);
}

/// Kernel of a fused attention (--attention-backend auto, flash, fused): the flash-attn package's or cuDNN's.
enum class FusedAttention : std::uint8_t { automatic, flash_attention, cudnn };

/// --optimizer. Muon orthogonalises the momentum of matrices and gives what else there is to Adam (core/optimizer/emerging_optimizers.py);
/// with the distributed optimizer each matrix belongs to one data-parallel rank (layer_wise_optimizer.py). AdEMAMix is of swiss-ai's fork.
enum class OptimizerKind : std::uint8_t { adam, sgd, lion, muon, ademamix };

inline constexpr std::array kOptimizerKinds{OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::muon,
                                            OptimizerKind::ademamix};

[[nodiscard]] constexpr std::string_view to_string(OptimizerKind kind) {
    switch (kind) {
        case OptimizerKind::adam:
            return "adam";
        case OptimizerKind::sgd:
            return "sgd";
        case OptimizerKind::lion:
            return "lion";
        case OptimizerKind::muon:
            return "muon";
        case OptimizerKind::ademamix:
            return "ademamix";
    }
    return "";
}

/// Values that an optimizer keeps of a parameter from step to step, besides the main parameter: for Muon those of a matrix; its other
/// parameters have Adam's two.
[[nodiscard]] constexpr int kept_moments(OptimizerKind kind) {
    switch (kind) {
        case OptimizerKind::sgd:
        case OptimizerKind::lion:
        case OptimizerKind::muon:
            return 1;
        case OptimizerKind::adam:
            return 2;
        case OptimizerKind::ademamix:
            return 3;
    }
    return 2;
}

/// Elements of a tensor that waits on the host, at least (megatron/core/transformer/transformer_config.py, min_offloaded_tensor_size).
inline constexpr std::int64_t kLeastOffloaded = std::int64_t{1} << 20;

/// MiB of moments that may come back from the host at once, at most: a limit of this code, 1 TiB.
inline constexpr std::int64_t kMostOffloadChunk = std::int64_t{1} << 20;

/// Factors of expert buffers, at most: a limit of this code.
inline constexpr double kMostExpertCapacity = 1024;

/// Megatron-LM's buffers of a size fixed ahead for the rows that a rank's experts receive, so that no step waits for their number
/// (moe/token_dispatcher.py, _HybridEPManager; moe/paged_stash.py). Multiples of the rows of an even split.
struct ExpertBuffers {
    double capacity = 0;       ///< --moe-expert-rank-capacity-factor: of each buffer; 0: the number of rows there are
    bool paged_stash = false;  ///< --moe-paged-stash: what is kept for the backward waits in pages
    /// --moe-paged-stash-buffer-size-factor-cuda: of the pages on the device; negative: of the rows that there are in place of an even
    /// split
    double pages = 1.1;
    bool operator==(const ExpertBuffers&) const = default;
};

/// Defaults are Megatron-LM's (megatron/training/arguments.py).
struct MegatronSwitches {
    bool transformer_engine = true;            ///< --transformer-impl transformer_engine, else local
    bool gradient_accumulation_fusion = true;  ///< weight gradients are added into the main gradient by the GEMM itself
    bool bias_activation_fusion = true;        ///< --no-bias-gelu-fusion, --no-bias-swiglu-fusion
    bool bias_dropout_fusion = true;
    bool masked_softmax_fusion = true;
    bool rope_fusion = true;
    /// --no-async-tensor-model-parallel-allreduce: without sequence parallelism the all-reduce of an input gradient over tp starts after
    /// the weight gradient instead of overlapping with it. Megatron-LM of 2020 and 2021 and Megatron-DeepSpeed of 2022 have no other way;
    /// today's Megatron-LM ignores the flag.
    bool async_tp_reduce = true;
    bool moe_permute_fusion = false;
    bool te_cross_entropy = false;  ///< --cross-entropy-fusion-impl te, else native
    bool attention_mask_in_dataloader = true;
    bool fp8_gradients_in_e4m3 = false;  ///< --fp8-format e4m3: gradients of outputs too; else they are e5m2 (hybrid)
    bool attention_softmax_in_fp32 = false;
    bool query_key_layer_scaling = false;  ///< fp32 softmax for the unfused attention too
    bool fp32_residual_connection = false;
    bool deterministic = false;
    bool gradient_checks = true;  ///< --no-check-for-nan-in-loss-and-grad turns them off
    bool log_params_norm = false;
    bool log_num_zeros_in_grad = false;
    /// Logit gradients and output layer inputs are kept until the cool-down …
    bool defer_embedding_wgrad = false;
    std::int64_t wgrad_deferral_limit = 0;  ///< … of at most this number of microbatches; 0: of all
    bool gather_with_optimizer_step = false;
    bool moe_shared_expert_overlap = false;
    bool delay_wgrad = false;
    bool router_fp32 = false;  ///< --moe-router-dtype fp32 or fp64
    bool precision_aware_optimizer = false;
    bool fp8_output_projection = false;  ///< --fp8-output-proj: the head's product too, under mxfp8
    bool fp8_attention = false;          ///< --fp8-dot-product-attention
    bool op_fuser = false;               ///< --use-transformer-engine-op-fuser: experts' products with activation and quantisation
    bool permute_in_hybrid_ep = false;   ///< --moe-permute-fusion-into-hybridep
    ExpertBuffers expert_buffers = {};   ///< sizes that are fixed ahead for what a rank's experts receive
    double activation_clamp = 0;         ///< --activation-func-clamp-value; 0: none
    std::int64_t dispatcher_sms = 0;     ///< --moe-flex-dispatcher-num-sms, --moe-deepep-num-sms, --moe-hybridep-num-sms; 0: the default
    Fp8Recipe fp8_recipe = Fp8Recipe::delayed;
    FusedAttention fused_attention = FusedAttention::automatic;
    std::int64_t bucket_size = 0;  ///< elements of a gradient bucket; 0: Megatron's rule
    std::int64_t num_buckets = 0;  ///< instead of a size; 0: not given
    bool pad_buckets = false;      ///< --ddp-pad-buckets-for-high-nccl-busbw
    /// --first-last-layers-bf16 with --num-layers-at-start-in-bf16 and --num-layers-at-end-in-bf16: decoder layers whose products stay in
    /// 16 bits where those of others are quantised.
    std::int64_t bf16_layers_at_start = 0, bf16_layers_at_end = 0;
    OptimizerKind optimizer = OptimizerKind::adam;
    /// Each matrix of a layer-wise optimizer lies in one rank's shard of its gradient buffer (main at d98e8a64 without
    /// --no-use-layer-wise-param-layout, dev with --use-layer-wise-param-layout).
    bool layer_wise_layout = false;
    std::int64_t offloaded_layers = 0;  ///< --cpu-offloading-num-layers: the first layers, whose activations wait in the host's memory
    /// --overlap-cpu-optimizer-d2h-h2d: copies of parameters that the host updates overlap with the updates
    bool overlap_host_update = false;
    std::int64_t offload_chunk_mib = 0;              ///< --optimizer-state-offload-chunk-size-mb: moments that come back at once; 0: all
    std::int64_t least_offloaded = kLeastOffloaded;  ///< --min-offloaded-tensor-size: what has fewer elements stays on the device
    bool forced_routing = false;     ///< --moe-router-force-load-balancing: experts are drawn at random in the router's place
    bool fused_streams = false;      ///< --use-fused-mhc (branch dev): kernels that mix residual streams in one pass
    bool reuse_grad_buffer = false;  ///< --reuse-grad-buf-for-mxfp8-param-ag: mxfp8 parameters are gathered in bf16, then quantised
    /// --max-seqlen-per-dp-cp-rank under --hybrid-context-parallel: tokens that a document leaves on a rank at most; 0: no such switch.
    std::int64_t document_tokens = 0;
    FullyShardedSpec fully_sharded{};
    WeightShards weight_shards{};

    bool operator==(const MegatronSwitches&) const = default;
};

}  // namespace mgplan
