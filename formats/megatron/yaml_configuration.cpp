#include "formats/megatron/yaml_configuration.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include "formats/megatron/megatron_flags.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

/// Fields of the configurations whose flags have other names. Source: core_transformer_config_from_args in yaml_arguments.py and
/// arguments.py, d98e8a64.
const std::map<std::string, std::string, std::less<>>& flags_of_fields() {
    static const std::map<std::string, std::string, std::less<>> kFlags{
        {"num_moe_experts", "num-experts"},
        {"layernorm_epsilon", "norm-epsilon"},
        {"fp8", "fp8-format"},
        {"virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
        {"layernorm_zero_centered_gamma", "apply-layernorm-1p"},
        {"apply_rope_fusion", "rope-fusion"},
        {"bias_activation_fusion", "bias-gelu-fusion"},
        {"overlap_p2p_comm", "overlap-p2p-communication"},
        {"grad_reduce_in_fp32", "accumulate-allreduce-grads-in-fp32"},
        {"num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers"},
        {"num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers"},
        {"fp8_param", "fp8-param-gather"}};
    return kFlags;
}

/// Fields that name what others say, or that change nothing of a prediction.
const std::set<std::string, std::less<>>& fields_without_effect() {
    static const std::set<std::string, std::less<>> kFields{"gated_linear_unit",
                                                            "init_method",
                                                            "output_layer_init_method",
                                                            "params_dtype",
                                                            "autocast_dtype",
                                                            "pipeline_dtype",
                                                            "timers",
                                                            "finalize_model_grads_func",
                                                            "grad_scale_func",
                                                            "no_sync_func",
                                                            "grad_sync_func",
                                                            "param_sync_func",
                                                            "perform_initialization",
                                                            "use_cpu_initialization",
                                                            "enable_autocast",
                                                            "batch_p2p_comm",
                                                            "batch_p2p_sync",
                                                            "deallocate_pipeline_outputs",
                                                            "variable_seq_lengths",
                                                            "persist_layer_norm",
                                                            "memory_efficient_layer_norm",
                                                            "clone_scatter_output_in_embedding",
                                                            "rotary_interleaved",
                                                            "_cpu_offloading_context",
                                                            "barrier_with_L1_time",
                                                            "model_type"};
    return kFields;
}

std::string hyphened(std::string_view field) {
    std::string name(field);
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

bool is_true(const std::string& text) {
    return text == "true" || text == "True";
}

bool is_false(const std::string& text) {
    return text == "false" || text == "False";
}

class FlagsOfYaml {
public:
    explicit FlagsOfYaml(const std::string& where) : where_(where) {}

    void add_section(const YAML::Node& section) {
        const YAML::Node activation = section["activation_func"];
        is_swiglu_ = activation && activation.IsScalar() && activation.Scalar() == "swiglu";
        for (const auto& entry : section) {
            if (!entry.first.IsScalar()) throw ConfigError(fmt::format("{}: a key is no name; write name: value", where_));
            add(entry.first.Scalar(), entry.second);
        }
    }
    [[nodiscard]] std::vector<std::string> take() { return std::move(words_); }

private:
    void add(const std::string& field, const YAML::Node& value) {
        if (value.IsNull() || fields_without_effect().contains(field)) return;
        if (value.IsSequence()) return add_list(field, value);
        if (!value.IsScalar()) throw ConfigError(fmt::format("{}: {} holds a mapping; give a value", where_, field));
        const std::string& text = value.Scalar();
        if (text == "None" || text == "null" || text.empty()) return;
        if (field == "activation_func") return add_activation(text);
        if (field == "add_bias_linear") {
            if (is_false(text)) words_.emplace_back("--disable-bias-linear");
            return;
        }
        if (field == "num_query_groups") words_.emplace_back("--group-query-attention");
        // arguments.py makes the field of one of two flags, by the activation.
        const std::string name = flag_of_yaml_field(field == "bias_activation_fusion" && is_swiglu_ ? "bias_swiglu_fusion" : field);
        const auto flag = find_flag(name);
        if (is_true(text) && (!flag || flag->arity == FlagArity::none)) {
            // A fusion that is on has a flag for its absence alone.
            if (flag || !find_flag("no-" + name)) words_.push_back("--" + name);
        } else if (is_false(text)) {
            if (find_flag("no-" + name)) words_.push_back("--no-" + name);
        } else {
            words_.push_back("--" + name);
            words_.push_back(text);
        }
    }

    void add_list(const std::string& field, const YAML::Node& values) {
        words_.push_back("--" + hyphened(field));
        for (const auto& value : values) {
            if (!value.IsScalar()) throw ConfigError(fmt::format("{}: {} holds a nested list; give plain values", where_, field));
            words_.push_back(value.Scalar());
        }
    }

    void add_activation(const std::string& name) {
        if (name == "swiglu")
            words_.emplace_back("--swiglu");
        else if (name == "squaredrelu")
            words_.emplace_back("--squared-relu");
        else if (name != "gelu")
            throw ConfigError(fmt::format("{}: activation_func = {} is not known; use gelu, swiglu or squaredrelu", where_, name));
    }

    const std::string& where_;
    bool is_swiglu_ = false;
    std::vector<std::string> words_;
};

}  // namespace

std::string flag_of_yaml_field(std::string_view field) {
    const auto other = flags_of_fields().find(field);
    return other == flags_of_fields().end() ? hyphened(field) : other->second;
}

bool is_field_of_yaml(std::string_view field) {
    return flags_of_fields().contains(field) || fields_without_effect().contains(field) || field == "add_bias_linear" ||
           field == "num_query_groups";
}

std::optional<std::string> yaml_configuration_of(const std::vector<std::string>& words) {
    constexpr std::string_view kFlag = "--yaml-cfg";
    for (std::size_t at = words.size(); at-- > 0;) {
        if (words[at] == kFlag) return at + 1 < words.size() ? words[at + 1] : "";
        if (words[at].starts_with("--yaml-cfg=")) return words[at].substr(kFlag.size() + 1);
    }
    return std::nullopt;
}

std::vector<std::string> words_of_yaml_configuration(std::string_view text, const std::string& where) {
    try {
        const YAML::Node root = YAML::Load(std::string(text));
        if (!root.IsMap()) throw ConfigError(fmt::format("{}: no YAML mapping; write one name: value a line", where));
        FlagsOfYaml flags(where);
        for (const auto& entry : root) {
            const bool section = entry.first.IsScalar() && entry.second.IsMap() &&
                                 (entry.first.Scalar() == "language_model" || entry.first.Scalar() == "model_parallel");
            if (section) flags.add_section(entry.second);
        }
        YAML::Node others(YAML::NodeType::Map);
        for (const auto& entry : root) {
            if (!entry.second.IsMap()) others[entry.first] = entry.second;
        }
        flags.add_section(others);
        return flags.take();
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
}

}  // namespace mgplan::formats
