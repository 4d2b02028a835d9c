#include <array>

#include "formats/trainers/trainer.hpp"
#include "plan/text/text.hpp"

// Two programs that train through ROLL's mcore_adapter, whose TrainingArguments have Megatron-core's names: ROLL itself and LLaMA-Factory.
// Source: alibaba/ROLL 8eb27cc2, mcore_adapter/src/mcore_adapter/training_args.py, models/model_config.py and trainer/trainer.py;
// hiyouga/LLaMA-Factory ff6d4d12e, examples/megatron.

namespace mgplan::formats {
namespace {

/// TrainingArguments' own defaults: fp32 gradients of bf16 (__post_init__), no distributed optimizer, experts by all-gather.
constexpr std::string_view kFixed =
    "bias_activation_fusion=False bias_dropout_fusion=False apply_rope_fusion=False gradient_accumulation_fusion=False bf16=True "
    "moe_token_dispatcher_type=allgather";
constexpr std::string_view kOwn =
    "additional_configs variable_seq_lengths save_hf_model distrib_optim_fully_reshardable calculate_per_token_loss transformer_impl "
    "moe_enable_routing_replay max_grad_norm";

/// "list(range(0,16))" as 16.
std::optional<std::int64_t> devices_in(const std::string& mapping) {
    const auto open = mapping.find("range("), close = mapping.find(')');
    if (open == std::string::npos || close == std::string::npos || close < open + 6) return std::nullopt;
    const auto ends = split(mapping.substr(open + 6, close - open - 6), ',');
    std::vector<std::int64_t> values;
    for (std::string one : ends) {
        std::erase(one, ' ');
        const auto value = parse_integer(one);
        if (!value || *value < 0 || *value > (std::int64_t{1} << 24)) return std::nullopt;
        values.push_back(*value);
    }
    if (values.size() == 1) return values[0];
    if (values.size() == 2 && values[1] > values[0]) return values[1] - values[0];
    return std::nullopt;
}

/// Microbatches of `micro` sequences, accumulated: the batch follows the data-parallel ranks (trainer.py, num_microbatches).
void add_batch(TrainerJob& job, std::optional<std::int64_t> accumulation) {
    const std::int64_t micro = field_or(job, "micro_batch_size", 8);  // of transformers' TrainingArguments
    job.fields["micro_batch_size"] = std::to_string(micro);
    const std::int64_t steps = accumulation.value_or(1);
    if (!job.world || steps < 1 || steps > 100000 || micro < 1 || micro > 100000) return;
    job.fields["global_batch_size"] = std::to_string(micro * steps * data_parallel_size(job));
}

/// Full recomputation of each layer where nothing else is stated (model_config.py).
void add_recompute(TrainerJob& job) {
    const auto found = job.fields.find("recompute_granularity");
    if (found == job.fields.end() || found->second != "full") return;
    if (job.fields.contains("recompute_method") || job.fields.contains("recompute_num_layers")) return;
    job.fields["recompute_method"] = "uniform";
    job.fields["recompute_num_layers"] = "1";
}

constexpr std::array kLlamaFactorySettings{TrainerSetting{"per_device_train_batch_size", "micro_batch_size"},
                                           TrainerSetting{"cutoff_len", "seq_length"}};
constexpr std::array kLlamaFactoryComputed{TrainerSetting{"gradient_accumulation_steps", "global_batch_size"}};
constexpr std::array kRollSettings{TrainerSetting{"actor_train.training_args.per_device_train_batch_size", "micro_batch_size"},
                                   TrainerSetting{"sequence_length", "seq_length"}};
constexpr std::array kRollComputed{TrainerSetting{"actor_train.training_args.gradient_accumulation_steps", "global_batch_size"}};

}  // namespace

const Trainer kLlamaFactory{.framework = "LLaMA-Factory",
                            .source = "hiyouga/LLaMA-Factory ff6d4d12e",
                            .sections = ".",
                            .settings = kLlamaFactorySettings,
                            .computed = kLlamaFactoryComputed,
                            .fixed = kFixed,
                            .own = kOwn,
                            .model = "model_name_or_path",
                            .names_all = false,
                            .reads =
                                [](const Settings& settings) {
                                    return settings.get("tensor_model_parallel_size") || settings.get("pipeline_model_parallel_size") ||
                                           settings.get("expert_model_parallel_size") || settings.is_true("use_mca");
                                },
                            .finish =
                                [](const Settings& settings, TrainerJob& job) {
                                    add_recompute(job);
                                    add_batch(job, settings.whole("gradient_accumulation_steps"));
                                },
                            .reads_model = "by name",
                            .reads_layout = "yes",
                            .reads_batch = "yes, with --world",
                            .reads_precision = "bf16",
                            .reads_recompute = "yes",
                            .reads_optimizer = "yes"};

const Trainer kRoll{
    .framework = "ROLL",
    .source = "alibaba/ROLL 8eb27cc2",
    .sections = "actor_train.strategy_args.strategy_config",
    .settings = kRollSettings,
    .computed = kRollComputed,
    .fixed = kFixed,
    .own = kOwn,
    .model = "actor_train.model_args.model_name_or_path pretrain",
    .reads = [](const Settings& settings) { return settings.get("actor_train.strategy_args.strategy_name") == "megatron_train"; },
    .finish =
        [](const Settings& settings, TrainerJob& job) {
            if (!job.world) job.world = devices_in(settings.get("actor_train.device_mapping").value_or(""));
            const auto prompt = settings.whole("prompt_length"), response = settings.whole("response_length");
            if (!job.fields.contains("seq_length") && prompt && response) job.fields["seq_length"] = std::to_string(*prompt + *response);
            add_recompute(job);
            add_batch(job, settings.whole("actor_train.training_args.gradient_accumulation_steps"));
            job.notes.emplace_back(
                "the training of the actor alone, sequences of the longest length: generation and reference not planned");
        },
    .reads_model = "by name",
    .reads_layout = "yes",
    .reads_batch = "yes",
    .reads_precision = "bf16",
    .reads_recompute = "yes",
    .reads_optimizer = "yes"};

}  // namespace mgplan::formats
