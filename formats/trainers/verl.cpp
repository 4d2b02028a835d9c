#include <array>

#include "formats/trainers/trainer.hpp"
#include "plan/text/text.hpp"

// Source: volcengine/verl b178a3cd: verl/trainer/config/engine/megatron.yaml, verl/workers/config/engine.py, workers/megatron_workers.py,
// utils/megatron_utils.py (fp32 gradients, no overlap); ISEEKYAN/mbridge 10cb17f, core/llm_bridge.py (alltoall, grouped products).

namespace mgplan::formats {
namespace {

constexpr std::string_view kMegatron = "actor_rollout_ref.actor.megatron.";

constexpr std::array kVerlSettings{TrainerSetting{"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "micro_batch_size"}};
constexpr std::array kVerlComputed{TrainerSetting{"data.max_prompt_length + data.max_response_length", "seq_length"},
                                   TrainerSetting{"actor_rollout_ref.actor.ppo_mini_batch_size", "global_batch_size"},
                                   TrainerSetting{"actor_rollout_ref.actor.megatron.dtype", "fp16"}};

constexpr AdapterSettings kVerlAdapters{"actor_rollout_ref.model.lora.rank",           "actor_rollout_ref.model.lora.alpha",
                                        "actor_rollout_ref.model.lora.target_modules", "actor_rollout_ref.model.lora.exclude_modules",
                                        "actor_rollout_ref.model.lora.type",           "actor_rollout_ref.model.lora.dropout",
                                        "actor_rollout_ref.model.lora.dtype"};

/// A number in [1, 2^31] of the settings.
std::optional<std::int64_t> count_of(const Settings& settings, std::string_view name) {
    const auto value = settings.whole(name);
    return value && *value >= 1 && *value <= (std::int64_t{1} << 31) ? value : std::nullopt;
}

/// The mini-batch of one optimizer step: its prompts times the answers of each (megatron_workers.py).
void add_batch(const Settings& settings, TrainerJob& job) {
    const auto prompt = count_of(settings, "data.max_prompt_length"), response = count_of(settings, "data.max_response_length");
    if (prompt && response) job.fields["seq_length"] = std::to_string(*prompt + *response);
    const auto prompts = count_of(settings, "actor_rollout_ref.actor.ppo_mini_batch_size");
    const std::int64_t answers = count_of(settings, "actor_rollout_ref.rollout.n").value_or(1);
    if (prompts && answers < (std::int64_t{1} << 20)) job.fields["global_batch_size"] = std::to_string(*prompts * answers);
    // Sequences are packed up to a number of tokens; those of the longest length fill a pack each, or share it.
    const auto tokens = count_of(settings, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu");
    if (!settings.is_true("actor_rollout_ref.actor.use_dynamic_bsz") || !prompt || !response) return;
    const std::int64_t cp = field_or(job, "context_parallel_size", 1);
    const std::int64_t fit = tokens && cp > 0 && cp < 4096 ? *tokens * cp / (*prompt + *response) : 1;
    const std::int64_t batch = field_or(job, "global_batch_size", 1), dp = data_parallel_size(job);
    job.fields["micro_batch_size"] = std::to_string(largest_divisor(batch % dp == 0 ? batch / dp : 1, fit));
}

}  // namespace

const Trainer kVerl{
    .framework = "verl",
    .source = "volcengine/verl b178a3cd",
    .sections =
        "actor_rollout_ref.actor.megatron actor_rollout_ref.actor.megatron.override_ddp_config "
        "actor_rollout_ref.actor.megatron.override_transformer_config actor_rollout_ref.actor.optim.override_optimizer_config",
    .settings = kVerlSettings,
    .computed = kVerlComputed,
    .fixed =
        "bias_activation_fusion=False bias_dropout_fusion=False apply_rope_fusion=False gradient_accumulation_fusion=False bf16=True "
        "grad_reduce_in_fp32=True use_distributed_optimizer=True moe_token_dispatcher_type=alltoall moe_grouped_gemm=True "
        "attention_backend=flash",
    .own =
        "_target_ param_offload grad_offload optimizer_offload use_dist_checkpointing dist_checkpointing_path dist_checkpointing_prefix "
        "seed use_mbridge vanilla_mbridge use_remove_padding forward_only dtype extra override_ddp_config override_transformer_config "
        "override_mcore_model_config load_weight strategy",
    .model = "actor_rollout_ref.model.path",
    .adapters = true,
    .reads = [](const Settings& settings) { return settings.has_below(kMegatron); },
    .finish =
        [](const Settings& settings, TrainerJob& job) {
            // mpu's size decides, whatever the field says (llm_bridge.py).
            job.fields["sequence_parallel"] = field_or(job, "tensor_model_parallel_size", 1) > 1 ? "True" : "False";
            if (settings.get("actor_rollout_ref.actor.megatron.dtype") == "float16") {
                job.fields.erase("bf16");
                job.fields["fp16"] = "True";
            }
            if (const auto rank = settings.get(kVerlAdapters.rank); rank && *rank != "0") {
                Settings adapters = settings;
                // verl/trainer/config/ppo_megatron_trainer.yaml
                if (!settings.get(kVerlAdapters.modules))
                    adapters.set(std::string(kVerlAdapters.modules), "[linear_qkv, linear_proj, linear_fc1, linear_fc2]");
                add_adapters(adapters, kVerlAdapters, job);
                // transformer_impl.py makes them by Megatron-Bridge alone.
                if (lower_case(settings.get("actor_rollout_ref.actor.megatron.vanilla_mbridge").value_or("true")) != "false")
                    job.problems.add_missing_fact(
                        "actor_rollout_ref.model.lora.rank needs actor_rollout_ref.actor.megatron.vanilla_mbridge=False; add it");
            }
            settle_world(job, count_of(settings, "trainer.nnodes"), count_of(settings, "trainer.n_gpus_per_node"));
            add_batch(settings, job);
            job.notes.emplace_back(
                "one update of the actor, sequences of the longest length: generation, reference and critic not planned");
        },
    .reads_model = "by name",
    .reads_layout = "yes",
    .reads_batch = "yes",
    .reads_precision = "bf16, fp16",
    .reads_recompute = "yes",
    .reads_optimizer = "yes"};

}  // namespace mgplan::formats
