#include <algorithm>
#include <array>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/trainers/trainer.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

// Source: EleutherAI/gpt-neox ea7aefd8: megatron/neox_arguments/neox_args.py (names and defaults), megatron/model/transformer.py
// (ParallelMLP: the inner size of gated activations).

namespace mgplan::formats {
namespace {

constexpr std::array kNeoxComputed{TrainerSetting{"model_parallel_size", "tensor_model_parallel_size"},
                                   TrainerSetting{"pipe_parallel_size", "pipeline_model_parallel_size"},
                                   TrainerSetting{"train_micro_batch_size_per_gpu", "micro_batch_size"},
                                   TrainerSetting{"train_batch_size", "global_batch_size"},
                                   TrainerSetting{"zero_optimization.stage", "use_distributed_optimizer"},
                                   TrainerSetting{"checkpoint_num_layers", "recompute_num_layers"}};

/// Names may have hyphens in place of underscores.
std::optional<std::string> text_of(const Settings& settings, std::string name) {
    if (auto value = settings.get(name)) return value;
    std::replace(name.begin(), name.end(), '_', '-');
    return settings.get(name);
}
std::int64_t size_of(const Settings& settings, const char* name, std::int64_t otherwise) {
    const auto text = text_of(settings, name);
    const auto value = text ? parse_integer(*text) : std::nullopt;
    return value && *value >= 0 && *value <= (std::int64_t{1} << 30) ? *value : otherwise;
}
bool is_on(const Settings& settings, const char* name, bool otherwise) {
    const auto text = text_of(settings, name);
    return text ? lower_case(*text) == "true" : otherwise;
}

/// ParallelMLP: two thirds of the inner size for gated activations, rounded up to a multiple of 256.
std::int64_t inner_size(const Settings& settings, bool gated) {
    const std::int64_t hidden = size_of(settings, "hidden_size", 0);
    std::int64_t inner = size_of(settings, "intermediate_size", 0);
    if (inner == 0) inner = 4 * hidden;
    const std::int64_t multiple = std::clamp<std::int64_t>(size_of(settings, "mlp_multiple_of", 256), 1, 1 << 20);
    if (gated) inner = inner * 2 / 3 / 2;
    return (inner + multiple - 1) / multiple * multiple;
}

/// The network as a config of Hugging Face's GPT-NeoX, or of its Llama for RMSNorm and SwiGLU without biases. Throws for others.
std::string neox_config(const Settings& settings) {
    const std::string norm = text_of(settings, "norm").value_or("layernorm"), activation = text_of(settings, "activation").value_or("gelu"),
                      positions = text_of(settings, "pos_emb").value_or("learned");
    const auto refuse = [&](const std::string& what) -> std::string {
        throw MissingFactError(
            std::vector{fmt::format("gpt-neox with {} is no network that a Hugging Face type here describes; give its model as --model "
                                    "config.json next to the file",
                                    what)});
    };
    if (positions != "rotary") return refuse("pos_emb " + positions);
    if (size_of(settings, "moe_num_experts", 1) > 1) return refuse("experts");
    nlohmann::ordered_json config{{"hidden_size", size_of(settings, "hidden_size", 0)},
                                  {"num_hidden_layers", size_of(settings, "num_layers", 0)},
                                  {"num_attention_heads", size_of(settings, "num_attention_heads", 0)},
                                  {"max_position_embeddings", size_of(settings, "max_position_embeddings", 2048)},
                                  {"tie_word_embeddings", !is_on(settings, "no_weight_tying", false)}};
    const auto share = text_of(settings, "rotary_pct");
    const double rotated = share ? parse_real(*share).value_or(1) : 1;
    const bool biased = is_on(settings, "use_bias_in_mlp", true), biased_attention = is_on(settings, "use_bias_in_attn_linear", true);
    if (norm == "layernorm" && activation == "gelu" && biased && biased_attention) {
        config["model_type"] = "gpt_neox";
        config["architectures"] = {"GPTNeoXForCausalLM"};
        config["intermediate_size"] = inner_size(settings, false);
        config["rotary_pct"] = rotated;
        config["hidden_act"] = "gelu";
        config["use_parallel_residual"] = is_on(settings, "gpt_j_residual", false);
        if (text_of(settings, "num_kv_heads")) return refuse("num_kv_heads");
    } else if (norm == "rmsnorm" && activation == "swiglu" && !biased && !biased_attention && rotated == 1 &&
               !is_on(settings, "gpt_j_residual", false)) {
        config["model_type"] = "llama";
        config["architectures"] = {"LlamaForCausalLM"};
        config["intermediate_size"] = inner_size(settings, true);
        config["hidden_act"] = "silu";
        config["num_key_value_heads"] = size_of(settings, "num_kv_heads", size_of(settings, "num_attention_heads", 0));
    } else {
        return refuse(fmt::format("norm {}, activation {}, biases {}, gpt_j_residual {}", norm, activation, biased,
                                  is_on(settings, "gpt_j_residual", false)));
    }
    return config.dump();
}

void finish(const Settings& settings, TrainerJob& job) {
    job.config = neox_config(settings);
    job.fields["tensor_model_parallel_size"] = std::to_string(std::max<std::int64_t>(1, size_of(settings, "model_parallel_size", 1)));
    job.fields["pipeline_model_parallel_size"] = std::to_string(std::max<std::int64_t>(1, size_of(settings, "pipe_parallel_size", 0)));
    job.fields["seq_length"] = std::to_string(size_of(settings, "seq_length", 2048));
    job.fields["make_vocab_size_divisible_by"] = std::to_string(size_of(settings, "make_vocab_size_divisible_by", 128));
    const std::int64_t micro = size_of(settings, "train_micro_batch_size_per_gpu", 0), whole = size_of(settings, "train_batch_size", 0);
    if (micro > 0) job.fields["micro_batch_size"] = std::to_string(micro);
    if (whole > 0)
        job.fields["global_batch_size"] = std::to_string(whole);
    else if (micro > 0 && micro < (1 << 20) && job.world)
        job.fields["global_batch_size"] = std::to_string(
            micro * std::clamp<std::int64_t>(size_of(settings, "gradient_accumulation_steps", 1), 1, 1 << 16) * data_parallel_size(job));
    const bool half = is_on(settings, "fp16.enabled", false) || settings.is_true("fp16.fp16");
    const std::string precision = text_of(settings, "precision")
                                      .value_or(half                               ? "fp16"
                                                : settings.is_true("bf16.enabled") ? "bfloat16"
                                                                                   : "");
    if (precision == "bfloat16") job.fields["bf16"] = "True";
    if (precision == "fp16") job.fields["fp16"] = "True";
    if (is_on(settings, "sequence_parallel", false)) job.fields["sequence_parallel"] = "True";
    const std::int64_t stage = size_of(settings, "zero_optimization.stage", 0);
    if (stage == 1) job.fields["use_distributed_optimizer"] = "True";
    if (stage > 1) job.fields[fmt::format("zero_optimization_stage_{}", stage)] = "True";  // no flag: leaves the fit open
    if (is_on(settings, "checkpoint_activations", false)) {
        job.fields["recompute_granularity"] = "full";
        job.fields["recompute_method"] = "uniform";
        job.fields["recompute_num_layers"] = std::to_string(std::max<std::int64_t>(1, size_of(settings, "checkpoint_num_layers", 1)));
    }
    for (const char* dropout : {"hidden_dropout", "attention_dropout"}) job.fields[dropout] = text_of(settings, dropout).value_or("0.0");
    job.notes.emplace_back("gpt-neox's job with the kernels and schedule of Megatron-LM");
}

}  // namespace

const Trainer kGptNeox{.framework = "gpt-neox",
                       .source = "EleutherAI/gpt-neox ea7aefd8",
                       .computed = kNeoxComputed,
                       .reads = [](const Settings& settings) { return size_of(settings, "num_layers", 0) > 0; },
                       .finish = finish,
                       .reads_model = "GPT-NeoX, Llama",
                       .reads_layout = "yes",
                       .reads_batch = "yes, with --world",
                       .reads_precision = "fp16, bf16, fp32",
                       .reads_recompute = "layers",
                       .reads_optimizer = "ZeRO 0 and 1"};

}  // namespace mgplan::formats
