#include <array>

#include "formats/trainers/trainer.hpp"

// Source: NVIDIA-NeMo/RL 7ea279abf: examples/configs/grpo_math_1B.yaml (the fields), nemo_rl/models/megatron/setup.py (recomputation,
// adapters).

namespace mgplan::formats {
namespace {

constexpr std::array kNemoRlSettings{TrainerSetting{"policy.train_global_batch_size", "global_batch_size"},
                                     TrainerSetting{"policy.train_micro_batch_size", "micro_batch_size"},
                                     TrainerSetting{"policy.max_total_sequence_length", "seq_length"}};

constexpr AdapterSettings kNemoRlAdapters{"policy.megatron_cfg.peft.dim",
                                          "policy.megatron_cfg.peft.alpha",
                                          "policy.megatron_cfg.peft.target_modules",
                                          "policy.megatron_cfg.peft.exclude_modules",
                                          "policy.megatron_cfg.peft.type",
                                          "policy.megatron_cfg.peft.dropout",
                                          "policy.megatron_cfg.peft.lora_dtype"};

}  // namespace

const Trainer kNemoRl{
    .framework = "NeMo-RL",
    .source = "NVIDIA-NeMo/RL 7ea279abf",
    .sections =
        "policy.megatron_cfg policy.megatron_cfg.model_overrides policy.megatron_cfg.distributed_data_parallel_config "
        "policy.megatron_cfg.optimizer",
    .settings = kNemoRlSettings,
    .fixed = "bf16=True use_distributed_optimizer=True moe_grouped_gemm=True gradient_accumulation_fusion=False",
    .own =
        "enabled model_overrides converter_type force_reconvert_from_hf empty_unused_memory_level activation_checkpointing pipeline_dtype "
        "freeze_moe_router moe_per_layer_logging use_gloo_process_groups cuda_graph_warmup_steps cuda_graph_impl cuda_graph_modules "
        "fused_linear_logprobs_chunk_size defer_fp32_logits mtp_loss_scaling_factor mtp_use_repeated_layer mtp_detach_heads "
        "use_fused_weighted_squared_relu optimizer params_dtype sgd_momentum bf16 fp16 offload_modules moe_router_bias_update_rate "
        "average_in_collective",
    .model = "policy.model_name",
    .adapters = true,
    .reads =
        [](const Settings& settings) {
            const auto enabled = settings.get("policy.megatron_cfg.enabled");
            return settings.has_below("policy.megatron_cfg.") && (!enabled || settings.is_true("policy.megatron_cfg.enabled"));
        },
    .finish =
        [](const Settings& settings, TrainerJob& job) {
            const bool recomputes = settings.is_true("policy.megatron_cfg.activation_checkpointing");
            const std::string granularity = settings.get("policy.megatron_cfg.recompute_granularity").value_or("full");
            for (const char* field : {"recompute_granularity", "recompute_method", "recompute_num_layers"}) job.fields.erase(field);
            if (recomputes) job.fields["recompute_granularity"] = granularity;
            if (recomputes && granularity == "full") {
                job.fields["recompute_method"] = "uniform";
                job.fields["recompute_num_layers"] = "1";
            }
            if (!recomputes || granularity == "full") job.fields.erase("recompute_modules");
            if (!settings.is_true("policy.megatron_cfg.optimizer.optimizer_cpu_offload")) job.fields.erase("optimizer_offload_fraction");
            // Settings of parts that are off.
            for (const char* field : {"mtp_num_layers", "use_fused_linear_logprobs", "fine_grained_activation_offloading"}) {
                const auto found = job.fields.find(field);
                if (found != job.fields.end() && (found->second == "0" || found->second == "false" || found->second == "False"))
                    job.fields.erase(found);
            }
            if (settings.is_true("policy.megatron_cfg.peft.enabled")) add_adapters(settings, kNemoRlAdapters, job);
            // Without a flag each: they leave the verdict open.
            if (settings.is_true("policy.megatron_cfg.fp8_cfg.enabled")) job.fields["fp8_cfg"] = "True";
            if (settings.get("policy.quant_cfg") || settings.has_below("policy.quant_cfg.")) job.fields["quant_cfg"] = "True";
            settle_world(job, settings.whole("cluster.num_nodes"), settings.whole("cluster.gpus_per_node"));
            job.notes.emplace_back("one update of the policy, sequences of the longest length: generation and reference not planned");
        },
    .reads_model = "by name",
    .reads_layout = "yes",
    .reads_batch = "yes",
    .reads_precision = "bf16",
    .reads_recompute = "yes",
    .reads_optimizer = "yes"};

}  // namespace mgplan::formats
