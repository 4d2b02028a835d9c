#include "formats/megatron/logged_arguments.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/megatron_flags.hpp"
#include "formats/megatron/yaml_configuration.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kMostArguments = 4096;

using Values = std::map<std::string, std::string, std::less<>>;

/// Values that Megatron-LM computes, or that belong to one process. Source: validate_args and _print_args in arguments.py, d98e8a64 and
/// core 0.10 to 0.16.
const std::set<std::string, std::less<>>& derived_names() {
    static const std::set<std::string, std::less<>> kNames{"world_size",
                                                           "rank",
                                                           "local_rank",
                                                           "data_parallel_size",
                                                           "params_dtype",
                                                           "consumed_train_samples",
                                                           "consumed_valid_samples",
                                                           "skipped_train_samples",
                                                           "virtual_pipeline_model_parallel_size",
                                                           "transformer_pipeline_model_parallel_size",
                                                           "encoder_num_layers",
                                                           "encoder_seq_length",
                                                           "decoder_seq_length",
                                                           "add_position_embedding",
                                                           "padded_vocab_size",
                                                           "iteration",
                                                           "curr_iteration",
                                                           "variable_seq_lengths",
                                                           "data_sharding",
                                                           "use_dist_ckpt",
                                                           "start_weight_decay",
                                                           "end_weight_decay",
                                                           "tokenizer_type",
                                                           "async_tensor_model_parallel_allreduce"};
    return kNames;
}

bool is_nothing(std::string_view value) {
    return value.empty() || value == "None" || value == "[]" || value == "False" || value == "0" || value == "0.0";
}

bool is_on(const Values& values, std::string_view name) {
    const auto found = values.find(name);
    return found != values.end() && !is_nothing(found->second);
}

/// Names that mean something with another argument alone.
struct OnlyWith {
    std::string_view beginning;
    std::string_view switch_name;
};
constexpr std::array kOnlyWith{
    OnlyWith{"moe_", "num_experts"},
    OnlyWith{"expert_", "num_experts"},
    OnlyWith{"kv_lora_rank", "multi_latent_attention"},
    OnlyWith{"q_lora_rank", "multi_latent_attention"},
    OnlyWith{"qk_head_dim", "multi_latent_attention"},
    OnlyWith{"qk_pos_emb_head_dim", "multi_latent_attention"},
    OnlyWith{"v_head_dim", "multi_latent_attention"},
    OnlyWith{"rotary_scaling_factor", "multi_latent_attention"},
    OnlyWith{"original_max_position_embeddings", "multi_latent_attention"},
    OnlyWith{"mscale", "multi_latent_attention"},
    OnlyWith{"beta_", "multi_latent_attention"},
    OnlyWith{"rope_scaling_factor", "use_rope_scaling"},
    OnlyWith{"num_query_groups", "group_query_attention"},
    OnlyWith{"fp8_", "fp8"},
    OnlyWith{"fp4_", "fp4"},
    OnlyWith{"mamba_", "hybrid_override_pattern"},
    OnlyWith{"hybrid_", "hybrid_override_pattern"},
    OnlyWith{"is_hybrid_model", "hybrid_override_pattern"},
    OnlyWith{"mtp_", "mtp_num_layers"},
    OnlyWith{"retro_", "retro_add_retriever"},
    OnlyWith{"tp_comm_", "tp_comm_overlap"},
    OnlyWith{"overlap_p2p_comm", "virtual_pipeline_model_parallel_size"},
    OnlyWith{"bias_swiglu_fusion", "swiglu"},
    OnlyWith{"optimizer_offload_fraction", "optimizer_cpu_offload"},
    OnlyWith{"recompute_modules", "recompute_granularity"},
    OnlyWith{"muon_", "muon"},
    OnlyWith{"hybrid_context_parallel", "hybrid_context_parallel"},
    OnlyWith{"dsa_", "experimental_attention_variant"},
    OnlyWith{"linear_", "experimental_attention_variant"},
};

/// Arguments of other networks and of programs that do not train a language model.
constexpr std::array<std::string_view, 14> kElsewhere{"bert_", "biencoder_", "dino_", "ict_",       "img_",   "indexer_", "inference_",
                                                      "mask_", "vision_",    "swin_", "retriever_", "rerun_", "rl_",      "grpo_"};

bool has_meaning(const std::string& name, const Values& values) {
    if (derived_names().contains(name)) return false;
    for (const std::string_view beginning : kElsewhere) {
        if (name.starts_with(beginning)) return false;
    }
    for (const OnlyWith& row : kOnlyWith) {
        if (name.starts_with(row.beginning) && name != row.switch_name && !is_on(values, row.switch_name)) return false;
    }
    if (name == "bias_gelu_fusion") return !is_on(values, "swiglu");  // validate_args turns it off there
    if (name == "cp_comm_type") return values.contains("context_parallel_size") && values.at("context_parallel_size") != "1";
    return true;
}

/// "AttnBackend.auto" as auto.
std::string plain_value(const std::string& value) {
    const auto dot = value.find('.');
    const bool member = dot != std::string::npos && dot + 1 < value.size() && std::isupper(static_cast<unsigned char>(value[0])) != 0 &&
                        std::all_of(value.begin(), value.end(),
                                    [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_'; });
    return member ? value.substr(dot + 1) : value;
}

/// A value as YAML: Python's list of words as a list, all others in quotes.
nlohmann::ordered_json yaml_value(const std::string& value) {
    if (!value.starts_with('[') || !value.ends_with(']')) return plain_value(value);
    auto list = nlohmann::ordered_json::array();
    for (std::string one : split(value.substr(1, value.size() - 2), ',')) {
        std::erase_if(one, [](char c) { return c == '\'' || c == '"' || c == ' '; });
        if (!one.empty()) list.push_back(std::move(one));
    }
    return list;
}

/// The name and value of "  name ....... value", whatever a launcher wrote before it.
std::optional<std::pair<std::string, std::string>> argument_of(std::string_view line) {
    const auto dots = line.find(" .");
    if (dots == std::string_view::npos) return std::nullopt;
    const std::string_view before = line.substr(0, dots);
    const std::string_view name = before.substr(before.find_last_of(" \t:]") + 1);  // npos + 1 is 0
    std::string_view rest = line.substr(dots + 1);
    const auto end = rest.find_first_not_of('.');
    if (name.empty() || (end != std::string_view::npos && rest[end] != ' ')) return std::nullopt;
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    while (!rest.empty() && (rest.back() == '\r' || rest.back() == ' ')) rest.remove_suffix(1);
    const bool plain =
        std::all_of(name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
    if (!plain) return std::nullopt;
    return std::pair(std::string(name), std::string(rest.substr(0, 1024)));
}

struct Printed {
    Values values;
    std::optional<std::int64_t> vocabulary;
};

/// Reads the arguments of the last job of a log.
std::optional<Printed> read_block(std::string_view text) {
    std::optional<Printed> found;
    bool inside = false;
    while (!text.empty()) {
        const auto end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.find("- end of arguments -") != std::string_view::npos) {
            inside = false;
        } else if (line.find("- arguments -") != std::string_view::npos) {
            inside = true;
            found.emplace();
        } else if (inside) {
            auto argument = argument_of(line);
            if (argument && found->values.size() < kMostArguments) found->values.insert(std::move(*argument));
        } else if (const auto at = line.find("padded vocab (size: "); at != std::string_view::npos && found) {
            const std::string_view rest = line.substr(at + std::string_view("padded vocab (size: ").size());
            found->vocabulary = parse_integer(rest.substr(0, rest.find(')')));
        }
    }
    return found;
}

}  // namespace

std::optional<LoggedArguments> logged_arguments(std::string_view text, const std::string& where) {
    const auto printed = read_block(text);
    if (!printed || printed->values.empty()) return std::nullopt;
    LoggedArguments found;
    nlohmann::ordered_json yaml = nlohmann::ordered_json::object();
    for (const auto& [name, value] : printed->values) {
        if (name == "world_size") found.world = parse_integer(value);
        if (!has_meaning(name, printed->values) || value == "None" || value.empty()) continue;
        std::string hyphened = name;
        std::replace(hyphened.begin(), hyphened.end(), '_', '-');
        const auto flag = find_flag(hyphened);
        const bool known = flag || find_flag("no-" + hyphened) || is_field_of_yaml(name);
        const bool boolean = value == "True" || value == "False";
        // Every argument is printed, most of them with their default: a number says nothing about whether somebody chose it.
        if (!known || (flag && flag->effect == FlagEffect::not_computed && !boolean)) {
            if (!known && !is_nothing(value)) found.left_out.push_back(fmt::format("{} {}", name, value.substr(0, 40)));
            continue;
        }
        if (flag && flag->effect == FlagEffect::without) continue;
        yaml[name] = yaml_value(value);
    }
    if (printed->vocabulary) yaml["vocab_size"] = std::to_string(*printed->vocabulary);
    found.words = words_of_yaml_configuration(yaml.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace), where);
    return found;
}

}  // namespace mgplan::formats
