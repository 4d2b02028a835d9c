#pragma once
// Megatron-LM's own estimate of a job's memory, reproduced number for number. It is no prediction of mgplan's: it divides
// layers over stages as real numbers, shards over dp without cp, and ignores biases, position embeddings, QK-norm and
// MTP's projections; its activations know neither grouped queries nor gating, mixtures or context parallelism.
// Source: megatron/training/theoretical_memory_usage.py of Megatron-LM d98e8a64.

#include <cstdint>
#include <optional>
#include <vector>

namespace mgplan {

/// The arguments that the estimate reads, under Megatron-LM's names and with its meanings.
struct MegatronEstimateArguments {
    std::int64_t num_layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t ffn_hidden_size = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t kv_channels = 0;
    std::optional<std::int64_t> num_query_groups;  ///< with group_query_attention
    bool group_query_attention = false;
    bool swiglu = false;
    bool rms_norm = false;  ///< else LayerNorm
    bool add_bias_linear = true;
    bool untie_embeddings_and_output_weights = false;
    std::int64_t padded_vocab_size = 0;
    std::optional<std::int64_t> num_experts;
    std::int64_t moe_router_topk = 2;
    std::int64_t moe_ffn_hidden_size = 0;
    std::int64_t moe_shared_expert_intermediate_size = 0;
    bool moe_shared_expert_gate = false;
    std::optional<std::int64_t> moe_latent_size;
    std::vector<bool> moe_layers;  ///< with experts: one entry a layer
    std::int64_t mtp_num_layers = 0;
    bool multi_latent_attention = false;
    std::optional<std::int64_t> q_lora_rank;
    std::int64_t kv_lora_rank = 0;
    std::int64_t qk_head_dim = 0;
    std::int64_t qk_pos_emb_head_dim = 0;
    std::int64_t v_head_dim = 0;
    std::int64_t seq_length = 0;
    std::int64_t micro_batch_size = 1;
    std::int64_t world_size = 1;
    std::int64_t tensor_model_parallel_size = 1;
    std::int64_t pipeline_model_parallel_size = 1;
    std::optional<std::int64_t> virtual_pipeline_model_parallel_size;
    std::int64_t expert_model_parallel_size = 1;
    std::int64_t expert_tensor_parallel_size = 1;
    std::int64_t data_parallel_size = 1;  ///< world/(tp·pp·cp)
    bool use_distributed_optimizer = false;
    bool sequence_parallel = false;
    bool recompute_selective = false;
    std::optional<std::int64_t> num_microbatches;
};

/// Bytes and parameter counts as Megatron-LM's floating-point arithmetic gives them.
struct MegatronMemoryEstimate {
    double weight_and_optimizer_bytes = 0;   ///< of the most loaded shard
    double activation_bytes_sp = 0;          ///< compute_activation_memory: with sequence parallelism and selective recompute
    double activation_bytes_without_sp = 0;  ///< compute_activation_memory_without_sp
    double activation_bytes = 0;             ///< the one of the two that report_theoretical_memory takes
    double total_parameters = 0;             ///< MTP included, biases not
    double active_parameters = 0;            ///< MTP counted fully
    double parameters_on_most_loaded_shard = 0;
};

/// Throws ConfigError for what Megatron-LM asserts (latent attention with grouped queries, a layer list of another
/// length) and for sizes below 1.
[[nodiscard]] MegatronMemoryEstimate megatron_memory_estimate(const MegatronEstimateArguments& arguments);

}  // namespace mgplan
