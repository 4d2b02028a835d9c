#include <array>

#include <nlohmann/json.hpp>

#include "formats/trainers/trainer.hpp"
#include "plan/text/text.hpp"

// Source: huggingface/nanotron 2411b022: src/nanotron/config (ParallelismArgs, TokensArgs, OptimizerArgs), models/llama.py: model_config is
// a LlamaConfig of Hugging Face.

namespace mgplan::formats {
namespace {

constexpr std::array kNanotronSettings{TrainerSetting{"parallelism.tp", "tensor_model_parallel_size"},
                                       TrainerSetting{"parallelism.pp", "pipeline_model_parallel_size"},
                                       TrainerSetting{"parallelism.context_parallel_size", "context_parallel_size"},
                                       TrainerSetting{"tokens.micro_batch_size", "micro_batch_size"},
                                       TrainerSetting{"tokens.sequence_length", "seq_length"},
                                       TrainerSetting{"optimizer.accumulate_grad_in_fp32", "grad_reduce_in_fp32"}};

constexpr std::array kNanotronComputed{TrainerSetting{"tokens.batch_accumulation_per_replica", "global_batch_size"},
                                       TrainerSetting{"parallelism.tp_mode", "sequence_parallel"},
                                       TrainerSetting{"optimizer.zero_stage", "use_distributed_optimizer"}};

std::int64_t size_of(const Settings& settings, std::string_view name) {
    const auto value = settings.whole(name);
    return value && *value >= 1 && *value <= (1 << 20) ? *value : 1;
}

/// The model's fields as JSON: numbers and switches as such.
std::string llama_config(const Settings& settings) {
    nlohmann::ordered_json config{{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
    for (const auto& [name, value] : settings.directly_below("model.model_config")) {
        if (name == "is_llama_config" || name == "_attn_implementation" || value.empty()) continue;
        if (value == "true" || value == "false" || value == "True" || value == "False")
            config[name] = value == "true" || value == "True";
        else if (const auto whole = parse_integer(value))
            config[name] = *whole;
        else if (const auto real = parse_real(value))
            config[name] = *real;
        else
            config[name] = value;
    }
    return config.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

const Trainer kNanotron{
    .framework = "nanotron",
    .source = "huggingface/nanotron 2411b022",
    .settings = kNanotronSettings,
    .computed = kNanotronComputed,
    .fixed = "bias_activation_fusion=False bias_dropout_fusion=False",
    .reads = [](const Settings& settings) { return settings.is_true("model.model_config.is_llama_config"); },
    .finish =
        [](const Settings& settings, TrainerJob& job) {
            job.config = llama_config(settings);
            const std::int64_t dp = size_of(settings, "parallelism.dp");
            if (!job.world)
                job.world = dp * size_of(settings, "parallelism.tp") * size_of(settings, "parallelism.pp") *
                            size_of(settings, "parallelism.context_parallel_size");
            job.fields["global_batch_size"] = std::to_string(size_of(settings, "tokens.micro_batch_size") *
                                                             size_of(settings, "tokens.batch_accumulation_per_replica") * dp);
            const std::string type = settings.get("model.dtype").value_or("bfloat16");
            if (type == "bfloat16" || type == "float16") job.fields[type == "bfloat16" ? "bf16" : "fp16"] = "True";
            if (settings.get("parallelism.tp_mode") == "REDUCE_SCATTER" && field_or(job, "tensor_model_parallel_size", 1) > 1)
                job.fields["sequence_parallel"] = "True";
            if (settings.whole("optimizer.zero_stage").value_or(0) >= 1) job.fields["use_distributed_optimizer"] = "True";
            if (settings.is_true("parallelism.recompute_layer")) {
                job.fields["recompute_granularity"] = "full";
                job.fields["recompute_method"] = "uniform";
                job.fields["recompute_num_layers"] = "1";
            }
            job.notes.emplace_back("nanotron's job with the kernels and schedule of Megatron-LM");
        },
    .reads_model = "Llama",
    .reads_layout = "yes",
    .reads_batch = "yes",
    .reads_precision = "bf16, fp16, fp32",
    .reads_recompute = "layers",
    .reads_optimizer = "ZeRO 0 and 1"};

}  // namespace mgplan::formats
