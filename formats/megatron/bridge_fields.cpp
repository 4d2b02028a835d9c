#include "formats/megatron/bridge_fields.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>

#include "formats/megatron/megatron_flags.hpp"
#include "plan/text/text.hpp"

// Sources: NVIDIA-NeMo/Megatron-Bridge 067f987d, training/config.py, models/gpt_provider.py and training/mlm_compat/arguments.py (which
// maps Megatron-LM's arguments to fields); NVIDIA/Megatron-LM d98e8a64, core/transformer/transformer_config.py,
// core/model_parallel_config.py, core/distributed/distributed_data_parallel_config.py and core/optimizer/optimizer_config.py (defaults).

namespace mgplan::formats {
namespace {

constexpr std::array kRules{
    FieldRule{"model", "num_moe_experts", FieldForm::value, "--num-experts"},
    FieldRule{"model", "layernorm_epsilon", FieldForm::value, "--norm-epsilon"},
    FieldRule{"model", "add_bias_linear", FieldForm::if_off, "--disable-bias-linear"},
    FieldRule{"model", "share_embeddings_and_output_weights", FieldForm::if_off, "--untie-embeddings-and-output-weights"},
    FieldRule{"model", "rope_scaling", FieldForm::if_on, "--use-rope-scaling"},
    FieldRule{"model", "seq_len_interpolation_factor", FieldForm::value, "--rotary-seq-len-interpolation-factor"},
    FieldRule{"model", "quant_recipe", FieldForm::value, "--te-precision-config-file"},
    FieldRule{"model", "use_mamba_mem_eff_path", FieldForm::if_off, "--disable-mamba-mem-eff-path"},
    FieldRule{"model", "num_layers_in_first_pipeline_stage", FieldForm::value, "--decoder-first-pipeline-num-layers"},
    FieldRule{"model", "num_layers_in_last_pipeline_stage", FieldForm::value, "--decoder-last-pipeline-num-layers"},
    FieldRule{"model", "microbatch_group_size_per_vp_stage", FieldForm::value, "--microbatch-group-size-per-virtual-pipeline-stage"},
    FieldRule{"model", "gradient_accumulation_fusion", FieldForm::if_off, "--no-gradient-accumulation-fusion"},
    FieldRule{"model", "masked_softmax_fusion", FieldForm::if_off, "--no-masked-softmax-fusion"},
    FieldRule{"model", "bias_dropout_fusion", FieldForm::if_off, "--no-bias-dropout-fusion"},
    FieldRule{"model", "apply_rope_fusion", FieldForm::if_off, "--no-rope-fusion"},
    FieldRule{"model", "fp8", FieldForm::value, "--fp8-format"},
    FieldRule{"model", "fp8_wgrad", FieldForm::if_off, "--no-fp8-wgrad"},
    FieldRule{"model", "fp4", FieldForm::value, "--fp4-format"},
    FieldRule{"model", "seq_length", FieldForm::value, "--seq-length"},
    FieldRule{"model", "overlap_p2p_comm_warmup_flush", FieldForm::if_on, "--overlap-p2p-communication-warmup-flush"},
    FieldRule{"ddp", "bucket_size", FieldForm::value, "--ddp-bucket-size"},
    FieldRule{"ddp", "num_buckets", FieldForm::value, "--ddp-num-buckets"},
    FieldRule{"ddp", "pad_buckets_for_high_nccl_busbw", FieldForm::if_on, "--ddp-pad-buckets-for-high-nccl-busbw"},
    FieldRule{"ddp", "reduce_scatter_with_fp32_accumulation", FieldForm::if_on, "--ddp-reduce-scatter-with-fp32-accumulation"},
    FieldRule{"ddp", "check_for_nan_in_grad", FieldForm::if_off, "--no-check-for-nan-in-loss-and-grad"},
    FieldRule{"ddp", "nccl_ub", FieldForm::if_on, "--use-nccl-ub"},
    FieldRule{"ddp", "gradient_reduce_div_fusion", FieldForm::if_off, "--no-gradient-reduce-div-fusion"},
    FieldRule{"checkpoint", "ckpt_format", FieldForm::value, "--ckpt-format"},
    FieldRule{"checkpoint", "load", FieldForm::value, "--load"},
    FieldRule{"checkpoint", "finetune", FieldForm::if_on, "--finetune"},
    FieldRule{"tokenizer", "tokenizer_type", FieldForm::value, "--tokenizer-type"},
    FieldRule{"tokenizer", "tokenizer_model", FieldForm::value, "--tokenizer-model"},
    FieldRule{"tokenizer", "vocab_file", FieldForm::value, "--vocab-file"},
    FieldRule{"dist", "enable_megatron_core_experimental", FieldForm::if_on, "--enable-experimental"},
};

constexpr std::array kDependent{
    DependentFields{"moe_paged_stash_", "model.moe_paged_stash"},
    DependentFields{"moe_", "model.num_moe_experts"},
    DependentFields{"dsa_", "model.dsa_indexer_topk"},
    DependentFields{"linear_",
                    "model.experimental_attention_variant model.linear_attention_freq model.hybrid_layer_pattern "
                    "model.hybrid_override_pattern"},
    DependentFields{"mamba_ gdp_", "model.is_hybrid_model model.hybrid_layer_pattern model.hybrid_override_pattern"},
    DependentFields{"mhc_ num_residual_streams use_fused_mhc", "model.enable_mhc_connections model.enable_hyper_connections"},
    DependentFields{"kitchen_", "model.use_kitchen_attention model.use_kitchen"},
    DependentFields{"num_layers_at_", "model.first_last_layers_bf16"},
    DependentFields{"activation_offload_ delta_offload_ min_offloaded_ fine_grained_offloading_ offload_modules delay_offload_",
                    "model.fine_grained_activation_offloading"},
    DependentFields{"cpu_offloading_", "model.cpu_offloading"},
    DependentFields{"optimizer_offload_ overlap_cpu_optimizer_ use_torch_optimizer_for_ pin_cpu_", "optimizer.optimizer_cpu_offload"},
    DependentFields{"optimizer_state_offload_", "optimizer.chunked_optimizer_state_offload optimizer.offload_optimizer_states"},
    DependentFields{"data_parallel_sharding_ outer_dp_ suggested_communication_ keep_fp8_transpose_ fsdp_ megatron_fsdp_ ckpt_format "
                    "disable_symmetric_",
                    "ddp.use_megatron_fsdp dist.use_megatron_fsdp dist.use_torch_fsdp2"},
    DependentFields{"q_lora_ kv_lora_ qk_head_dim qk_pos_emb_ v_head_dim rope_type rotary_scaling_ original_max_ beta_ mscale cache_mla_ "
                    "mla_down_",
                    "model.multi_latent_attention"},
    DependentFields{"fp8_", "model.fp8"},
    DependentFields{"fp4_", "model.fp4"},
    DependentFields{"mtp_", "model.mtp_num_layers"},
    DependentFields{"mup_", "model.use_mup"},
    DependentFields{"cuda_graph_", "model.cuda_graph_impl model.enable_cuda_graph model.external_cuda_graph"},
    DependentFields{"batch_invariant_backend", "model.batch_invariant_mode"},
    DependentFields{"window_attn_", "model.window_size"},
    DependentFields{"qk_clip_", "model.qk_clip"},
    DependentFields{"recompute_", "model.recompute_granularity"},
    DependentFields{"main_params_dtype main_grads_dtype exp_avg_dtype exp_avg_sq_dtype", "optimizer.use_precision_aware_optimizer"},
    DependentFields{"wgrad_deferral_", "model.defer_embedding_wgrad_compute"},
    DependentFields{"tp_comm_bootstrap_", "model.tp_comm_overlap"},
};

/// Neither project reads moe_a2a_overlap and keep_mtp_spec_in_bf16.
constexpr std::array<std::string_view, 64> kWithoutEffect{"params_dtype",
                                                          "pipeline_dtype",
                                                          "autocast_dtype",
                                                          "autocast_enabled",
                                                          "enable_autocast",
                                                          "deallocate_pipeline_outputs",
                                                          "perform_initialization",
                                                          "use_cpu_initialization",
                                                          "scatter_embedding_sequence_parallel",
                                                          "parallel_output",
                                                          "batch_p2p_comm",
                                                          "batch_p2p_sync",
                                                          "tp_comm_bulk_dgrad",
                                                          "tp_comm_bulk_wgrad",
                                                          "tp_comm_overlap_ag",
                                                          "tp_comm_overlap_rs",
                                                          "tp_comm_split_ag",
                                                          "tp_comm_split_rs",
                                                          "tp_comm_overlap_cfg",
                                                          "hf_model_id",
                                                          "hf_model_revision",
                                                          "transformer_layer_spec",
                                                          "hybrid_stack_spec",
                                                          "mamba_stack_spec",
                                                          "init_method",
                                                          "output_layer_init_method",
                                                          "embedding_init_method",
                                                          "embedding_init_method_std",
                                                          "softmax_scale",
                                                          "memory_efficient_layer_norm",
                                                          "persist_layer_norm",
                                                          "layernorm_zero_centered_gamma",
                                                          "rotary_interleaved",
                                                          "store_param_remainders",
                                                          "decoupled_weight_decay",
                                                          "check_optimizer_step_success",
                                                          "cuda_graph_use_single_mempool",
                                                          "cuda_graph_retain_backward_graph",
                                                          "clone_scatter_output_in_embedding",
                                                          "generation_config",
                                                          "use_te_rng_tracker",
                                                          "average_in_collective",
                                                          "fsdp_all_gather_in_start_param_sync",
                                                          "apply_query_key_layer_scaling",
                                                          "attention_softmax_in_fp32",
                                                          "cpu_offloading_activations",
                                                          "hetereogenous_dist_checkpoint",
                                                          "tp_only_amax_red",
                                                          "make_vocab_size_divisible_by",
                                                          "should_pad_vocab",
                                                          "activation_func",
                                                          "gated_linear_unit",
                                                          "bias_activation_fusion",
                                                          "num_query_groups",
                                                          "overlap_p2p_comm",
                                                          "vocab_size",
                                                          "grad_reduce_in_fp32",
                                                          "virtual_pipeline_model_parallel_size",
                                                          "pipeline_model_parallel_layout",
                                                          "fp8_param",
                                                          "fp4_param",
                                                          "moe_a2a_overlap",
                                                          "keep_mtp_spec_in_bf16",
                                                          "disable_parameter_transpose_cache"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kDefaults{{
    {"dsa_kernel_backend", "none"},
    {"mlp_chunks_for_prefill", "1"},
    {"mlp_chunks_for_training", "1"},
    {"moe_dispatch_fwd_dtype", "bf16"},
    {"moe_combine_bwd_dtype", "bf16"},
    {"empty_unused_memory_level", "0"},
    {"tensor_parallel_num_weight_shards", "1"},
    {"expert_tensor_parallel_num_weight_shards", "1"},
    {"pipeline_model_parallel_comm_backend", "nccl"},
    {"kitchen_attention_backend", "sdpa"},
    {"megatron_fsdp_version", "1"},
    {"activation_offload_fraction", "1.0"},
    {"delta_offload_bytes_across_pp_ranks", "0"},
}};

/// Fields outside `model` whose flags messages name (training/config.py: TrainingConfig, DistributedDataParallelConfig, OptimizerConfig,
/// DistributedInitConfig).
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kSections{{
    {"train", "micro_batch_size global_batch_size train_iters train_samples rampup_batch_size decrease_batch_size_if_needed skip_train"},
    {"ddp",
     "use_distributed_optimizer overlap_grad_reduce overlap_param_gather use_megatron_fsdp data_parallel_sharding_strategy "
     "outer_dp_sharding_strategy num_distributed_optimizer_instances fsdp_double_buffer keep_fp8_transpose_cache "
     "reuse_grad_buf_for_mxfp8_param_ag fp8_param_gather suggested_communication_unit_size"},
    {"optimizer",
     "optimizer use_precision_aware_optimizer main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype optimizer_cpu_offload "
     "optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d overlap_param_gather_with_optimizer_step"},
    {"dist", "use_torch_fsdp2 use_tp_pp_dp_mapping"},
}};

}  // namespace

std::span<const FieldRule> bridge_field_rules() {
    return kRules;
}

std::string bridge_field_of(std::string_view flag) {
    for (const FieldRule& rule : kRules) {
        if (rule.flag != flag) continue;
        return fmt::format("{}.{}{}", rule.section, rule.field, rule.form == FieldForm::if_off ? " = false" : "");
    }
    // A switch that turns off has a field of another name, and a vocabulary may be given in several places.
    const bool other = flag.starts_with("--no-") || flag.starts_with("--disable-") || flag == "--vocab-size";
    if (!flag.starts_with("--") || other || !find_flag(flag)) return "";
    std::string field(flag.substr(2));
    std::replace(field.begin(), field.end(), '-', '_');
    for (const auto& [section, fields] : kSections) {
        const auto names = split(fields, ' ');
        if (std::find(names.begin(), names.end(), field) != names.end()) return fmt::format("{}.{}", section, field);
    }
    return "model." + field;
}

std::span<const DependentFields> bridge_dependent_fields() {
    return kDependent;
}

bool bridge_field_without_effect(std::string_view field) {
    return std::find(kWithoutEffect.begin(), kWithoutEffect.end(), field) != kWithoutEffect.end() || field.starts_with("inference_");
}

bool is_bridge_default(std::string_view field, std::string_view value) {
    return std::find(kDefaults.begin(), kDefaults.end(), std::pair(field, value)) != kDefaults.end();
}

}  // namespace mgplan::formats
