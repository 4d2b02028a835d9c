#include "importers/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json_reader.hpp"
#include "plan/text.hpp"

namespace mgplan::importers {
namespace {

using Json = nlohmann::ordered_json;

/// What an architecture says by itself, without a field in its config.
struct Architecture {
    std::string_view model_type;
    std::string_view class_name;  ///< of "architectures", where model_type is absent
    bool layer_norm = false;
    bool gated = true;
    bool learned_positions = false;
    bool tied = false;  ///< default of tie_word_embeddings
    bool all_biases = false;
    bool qkv_bias = false;  ///< on q, k and v whatever attention_bias says
    bool qk_norm = false;
    bool router_bias = false;
    bool sinks = false;
    bool shared_gate = false;
    bool sigmoid_router = false;
    bool expert_bias = false;
    std::int64_t full_attention_every = 0;  ///< of the layers with a window
    bool windows_need_switch = false;       ///< sliding_window counts only with use_sliding_window
    Activation activation = Activation::silu;
    double rotary_fraction = 1.0;
    bool llama4 = false;  ///< fields and layers of its own: see read_llama4_notes()
};

constexpr std::array kArchitectures{
    Architecture{.model_type = "llama", .class_name = "LlamaForCausalLM"},
    Architecture{.model_type = "llama4_text", .class_name = "Llama4ForCausalLM", .sigmoid_router = true, .llama4 = true},
    Architecture{.model_type = "mistral", .class_name = "MistralForCausalLM"},
    Architecture{.model_type = "mixtral", .class_name = "MixtralForCausalLM"},
    Architecture{.model_type = "qwen2", .class_name = "Qwen2ForCausalLM", .qkv_bias = true, .windows_need_switch = true},
    Architecture{
        .model_type = "qwen2_moe", .class_name = "Qwen2MoeForCausalLM", .qkv_bias = true, .shared_gate = true, .windows_need_switch = true},
    Architecture{.model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .qk_norm = true, .windows_need_switch = true},
    Architecture{.model_type = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .qk_norm = true, .windows_need_switch = true},
    Architecture{.model_type = "deepseek_v2", .class_name = "DeepseekV2ForCausalLM"},
    Architecture{.model_type = "deepseek_v3", .class_name = "DeepseekV3ForCausalLM", .sigmoid_router = true, .expert_bias = true},
    Architecture{.model_type = "kimi_k2", .class_name = "KimiK2ForCausalLM", .sigmoid_router = true, .expert_bias = true},
    Architecture{.model_type = "gpt_oss",
                 .class_name = "GptOssForCausalLM",
                 .all_biases = true,
                 .router_bias = true,
                 .sinks = true,
                 .full_attention_every = 2},
    Architecture{.model_type = "gpt2",
                 .class_name = "GPT2LMHeadModel",
                 .layer_norm = true,
                 .gated = false,
                 .learned_positions = true,
                 .tied = true,
                 .all_biases = true,
                 .activation = Activation::gelu},
    Architecture{.model_type = "megatron_gpt",
                 .class_name = "GPT",
                 .layer_norm = true,
                 .gated = false,
                 .learned_positions = true,
                 .tied = true,
                 .all_biases = true,
                 .activation = Activation::gelu},
    Architecture{.model_type = "nemotron",
                 .class_name = "NemotronForCausalLM",
                 .layer_norm = true,
                 .gated = false,
                 .activation = Activation::squared_relu,
                 .rotary_fraction = 0.5},
    Architecture{.model_type = "grok-1", .class_name = "Grok1ModelForCausalLM", .tied = true, .activation = Activation::gelu},
};

/// Names of the language models inside multimodal ones that are, but for what they see, an architecture above.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTextModels{{{"llama4", "llama4_text"},
                                                                                    {"qwen2_vl", "qwen2"},
                                                                                    {"qwen2_vl_text", "qwen2"},
                                                                                    {"qwen2_5_vl", "qwen2"},
                                                                                    {"qwen2_5_vl_text", "qwen2"},
                                                                                    {"qwen3_vl_text", "qwen3"},
                                                                                    {"qwen3_vl_moe_text", "qwen3_moe"},
                                                                                    {"ministral", "mistral"}}};

/// Models that are no decoder-only transformer: their configs carry the same size fields with another meaning.
constexpr std::array<std::string_view, 18> kOtherKinds{"bert",   "roberta", "xlm-roberta", "distilbert", "electra", "deberta",
                                                       "albert", "t5",      "mt5",         "bart",       "mbart",   "whisper",
                                                       "vit",    "clip",    "mamba",       "mamba2",     "rwkv",    "jamba"};

/// The llama row: what an unknown architecture is taken for.
constexpr const Architecture& kLlama = kArchitectures[0];

using Aliases = std::initializer_list<std::string_view>;

/// JsonReader over fields that go by several names.
class ConfigReader {
public:
    ConfigReader(const Json& json, const std::string& where, Problems& problems) : reader_(json, where, problems) {}

    [[nodiscard]] std::string_view present(Aliases aliases) const {
        for (const auto alias : aliases) {
            if (reader_.has(alias)) return alias;
        }
        return {};
    }
    [[nodiscard]] bool has(Aliases aliases) const { return !present(aliases).empty(); }
    std::int64_t integer(Aliases aliases, std::int64_t low, std::int64_t high) {
        const auto alias = present(aliases);
        if (!alias.empty() || aliases.size() == 1) return reader_.integer(alias.empty() ? *aliases.begin() : alias, low, high);
        std::string others;
        for (const auto* other = aliases.begin() + 1; other != aliases.end(); ++other)
            others += fmt::format("{}{}", others.empty() ? "" : " or ", *other);
        reader_.problems().add("{}: field '{}' (or {}) is missing; give a whole number from {} to {}", reader_.where(), *aliases.begin(),
                               others, low, high);
        return low;
    }
    std::int64_t integer_or(Aliases aliases, std::int64_t fallback, std::int64_t low, std::int64_t high) {
        const auto alias = present(aliases);
        return alias.empty() ? fallback : reader_.integer(alias, low, high);
    }
    double real_or(Aliases aliases, double fallback, double low, double high) {
        const auto alias = present(aliases);
        return alias.empty() ? fallback : reader_.real(alias, low, high);
    }
    bool boolean_or(Aliases aliases, bool fallback) {
        const auto alias = present(aliases);
        return alias.empty() ? fallback : reader_.boolean(alias);
    }
    std::string text_or(Aliases aliases, std::string fallback) {
        const auto alias = present(aliases);
        return alias.empty() ? std::move(fallback) : reader_.text(alias);
    }
    JsonReader& raw() { return reader_; }

private:
    JsonReader reader_;
};

Activation read_activation(ConfigReader& config, Activation fallback) {
    const std::string name = lower_case(config.text_or({"hidden_act", "activation_function", "hidden_activation"}, ""));
    if (name.empty()) return fallback;
    if (name == "silu" || name == "swish" || name == "swiglu" || name == "swiglu_clamped") return Activation::silu;
    if (name == "relu" || name == "reglu") return Activation::relu;
    if (name == "relu2" || name == "relu_squared" || name == "squared_relu" || name == "squared-relu") return Activation::squared_relu;
    if (name.find("gelu") != std::string::npos || name == "geglu") return Activation::gelu;
    config.raw().problems().add("{}: hidden_act = '{}' is not known; use silu, gelu, gelu_new, gelu_pytorch_tanh, relu or relu2",
                                config.raw().where(), name.substr(0, 40));
    return fallback;
}

void read_normalization(ConfigReader& config, const Architecture& architecture, ModelSpec& model) {
    model.normalization = architecture.layer_norm ? Normalization::layer_norm : Normalization::rms_norm;
    const std::string norm = lower_case(config.text_or({"norm"}, ""));
    if (norm == "layernorm" || norm == "layernorm1p" || norm == "layer_norm")
        model.normalization = Normalization::layer_norm;
    else if (norm == "rmsnorm" || norm == "rms_norm")
        model.normalization = Normalization::rms_norm;
    else if (!norm.empty())
        config.raw().problems().add("{}: norm = '{}' is not known; use rmsnorm, layernorm or layernorm1p", config.raw().where(),
                                    norm.substr(0, 40));
}

void read_epsilon(ConfigReader& config, ModelSpec& model) {
    model.norm_epsilon =
        config.real_or({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"}, model.norm_epsilon, 0, 1);
}

void read_positions(ConfigReader& config, const Architecture& architecture, ModelSpec& model) {
    const std::string position =
        lower_case(config.text_or({"position_embedding"}, architecture.learned_positions ? "learned_absolute" : "rope"));
    if (position == "none" || position == "nope")
        model.position = PositionEmbedding::none;
    else if (position == "rope" || position == "rotary")
        model.position = PositionEmbedding::rope;
    else if (position == "learned_absolute" || position == "learned" || position == "absolute")
        model.position = PositionEmbedding::learned;
    else
        config.raw().problems().add("{}: position_embedding = '{}' is not known; use rope, learned_absolute or none", config.raw().where(),
                                    position.substr(0, 40));
    double fraction = architecture.rotary_fraction;
    if (const Json* rope = config.raw().member("rope_parameters"); rope != nullptr && rope->is_object()) {
        JsonReader nested(*rope, config.raw().where() + ": rope_parameters", config.raw().problems());
        fraction = nested.real_or("partial_rotary_factor", fraction, 0, 1);
    }
    model.rotary_fraction = config.real_or({"partial_rotary_factor", "rotary_pct", "rope_percent"}, fraction, 0, 1);
    model.rotary_base = config.real_or({"rope_theta", "rotary_emb_base"}, model.rotary_base, 0, ModelLimits::rotary_base);
    // Where both are given, rope_parameters is the newer. A run refuses a scaling that it does
    // not know by its name.
    for (const std::string_view field : {"rope_parameters", "rope_scaling"}) {
        const Json* scaling = config.raw().member(field);
        if (scaling == nullptr || !scaling->is_object()) continue;
        JsonReader nested(*scaling, fmt::format("{}: {}", config.raw().where(), field), config.raw().problems());
        model.rotary_base = nested.real_or("rope_theta", model.rotary_base, 0, ModelLimits::rotary_base);
        const std::string name = lower_case(nested.text_or("rope_type", nested.text_or("type", "default")));
        if (name == "default") continue;
        model.rotary_scaling = name.substr(0, 40);
        RotaryScaling& values = model.rotary_scaling_values;
        const auto read = [&](std::string_view key, double& value) { value = nested.real_or(key, value, 0, ModelLimits::rotary_scaling); };
        read("factor", values.factor);
        read("low_freq_factor", values.low_frequency_factor);
        read("high_freq_factor", values.high_frequency_factor);
        read("beta_fast", values.beta_fast);
        read("beta_slow", values.beta_slow);
        read("mscale", values.mscale);
        read("mscale_all_dim", values.mscale_all_dim);
        values.original_positions =
            nested.integer_or("original_max_position_embeddings", values.original_positions, 0, ModelLimits::positions);
    }
}

void read_window(ConfigReader& config, const Architecture& architecture, ModelSpec& model, std::vector<std::string>& assumptions) {
    model.sliding_window = config.integer_or({"sliding_window"}, 0, 0, ModelLimits::positions);
    if (!config.boolean_or({"use_sliding_window"}, !architecture.windows_need_switch)) model.sliding_window = 0;
    if (const Json* types = config.raw().member("layer_types"); types != nullptr && types->is_array()) {
        const bool sliding = std::any_of(types->begin(), types->end(), [](const Json& type) { return type == "sliding_attention"; });
        if (!sliding) model.sliding_window = 0;
        // The first layer that sees all tells how often one does, where the list goes on like that.
        const auto sees_all = [](const Json& type) { return type == "full_attention"; };
        const std::int64_t first = std::find_if(types->begin(), types->end(), sees_all) - types->begin() + 1;
        const auto regular = [&] {
            for (std::size_t i = 0; i < types->size(); ++i) {
                if (sees_all((*types)[i]) != ((static_cast<std::int64_t>(i) + 1) % first == 0)) return false;
            }
            return true;
        };
        if (sliding && first <= std::ssize(*types)) {
            if (regular())
                model.full_attention_every = first;
            else
                assumptions.emplace_back("layer_types repeat irregularly, every layer taken with the sliding window");
        }
    } else if (model.sliding_window > 0) {
        model.full_attention_every = architecture.full_attention_every;
    }
}

void read_biases(ConfigReader& config, const Architecture& architecture, ModelSpec& model) {
    const bool attention = config.boolean_or({"attention_bias"}, architecture.all_biases);
    if (architecture.qkv_bias) {
        model.qkv_bias = config.boolean_or({"qkv_bias", "attention_bias"}, true);
    } else {
        model.qkv_bias = model.attention_output_bias = attention;
    }
    model.mlp_bias = config.boolean_or({"mlp_bias"}, architecture.all_biases);
}

/// Llama 4 lists its mixture layers, or has one every interleave_moe_layer_step, the first at that step's end
/// (configuration_llama4.py).
std::vector<bool> read_llama4_moe_layers(ConfigReader& config, std::int64_t layers) {
    const std::int64_t step = config.integer_or({"interleave_moe_layer_step"}, 1, 1, ModelLimits::layers);
    const Json* listed = config.raw().member("moe_layers");
    const bool has_list = listed != nullptr && listed->is_array();
    std::vector<bool> moe(static_cast<std::size_t>(layers), false);
    for (std::int64_t layer = step - 1; !has_list && layer < layers; layer += step) moe[static_cast<std::size_t>(layer)] = true;
    if (!has_list) return moe;
    for (const auto layer : config.raw().integers("moe_layers", 0, ModelLimits::layers)) {
        if (layer < layers) moe[static_cast<std::size_t>(layer)] = true;
    }
    return moe;
}

/// What Llama 4's layers do that no ModelSpec says (modeling_llama4.py): none of it has weights.
void read_llama4_notes(ConfigReader& config, ModelSpec& model, std::vector<std::string>& assumptions) {
    if (model.qk_norm) assumptions.emplace_back("norms of queries and keys, which have no weights in Llama 4, left out");
    model.qk_norm = false;
    const std::int64_t chunk = config.integer_or({"attention_chunk_size"}, 8192, 0, ModelLimits::positions);
    if (chunk > 0)
        assumptions.push_back(fmt::format("attention in chunks of {} taken as attention to all before", counted(chunk, "token")));
    assumptions.emplace_back("layers without rotary positions taken with them");
}

/// Which layers are mixtures: DeepSeek counts from first_k_dense_replace every moe_layer_freq-th, Qwen every
/// decoder_sparse_step-th but mlp_only_layers.
std::vector<bool> read_moe_layers(ConfigReader& config, std::int64_t layers) {
    std::vector<bool> moe(static_cast<std::size_t>(layers), true);
    const std::int64_t first = config.integer_or({"first_k_dense_replace"}, 0, 0, ModelLimits::layers);
    const std::int64_t step = config.integer_or({"decoder_sparse_step"}, 1, 1, ModelLimits::layers);
    std::int64_t every = 1;
    const Json* frequency = config.raw().member("moe_layer_freq");
    const bool listed = frequency != nullptr && frequency->is_array();
    std::vector<std::int64_t> list;
    if (listed) {
        list = config.raw().integers("moe_layer_freq", 0, 1);
        if (static_cast<std::int64_t>(list.size()) != layers && config.raw().problems().empty())
            config.raw().problems().add("{}: moe_layer_freq has {} entries for {} layers; give one entry per layer", config.raw().where(),
                                        list.size(), layers);
    } else {
        every = config.integer_or({"moe_layer_freq"}, 1, 1, ModelLimits::layers);
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const auto index = static_cast<std::size_t>(layer);
        moe[index] = layer >= first && layer % every == 0 && (layer + 1) % step == 0;
        if (listed && index < list.size()) moe[index] = list[index] == 1;
    }
    for (const auto layer : config.raw().integers("mlp_only_layers", 0, ModelLimits::layers)) {
        if (layer < layers) moe[static_cast<std::size_t>(layer)] = false;
    }
    return moe;
}

const Aliases kExperts{"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"};

void read_moe(ConfigReader& config, const Architecture& architecture, ModelSpec& model) {
    const std::int64_t experts = config.integer_or(kExperts, 0, 0, ModelLimits::experts);
    if (experts == 0) return;
    MoeSpec moe;
    moe.experts = experts;
    moe.top_k = config.integer({"num_experts_per_tok", "experts_per_token", "num_selected_experts", "moe_topk"}, 1, ModelLimits::experts);
    moe.expert_ffn = config.integer({"moe_intermediate_size", "intermediate_size"}, 1, ModelLimits::ffn);
    // Llama 4 always has one shared expert as wide as the others.
    const std::int64_t shared =
        config.integer_or({"n_shared_experts", "num_shared_experts"}, architecture.llama4 ? 1 : 0, 0, ModelLimits::experts);
    moe.shared_ffn =
        config.integer_or({"shared_expert_intermediate_size"}, std::min(shared * moe.expert_ffn, ModelLimits::ffn), 0, ModelLimits::ffn);
    moe.shared_gate = architecture.shared_gate && moe.shared_ffn > 0;
    moe.router_bias = architecture.router_bias;
    const std::string score = config.text_or({"scoring_func"}, architecture.sigmoid_router ? "sigmoid" : "softmax");
    moe.score = score == "sigmoid" ? RouterScore::sigmoid : RouterScore::softmax;
    const std::string method = config.text_or({"topk_method"}, architecture.expert_bias ? "noaux_tc" : "");
    moe.expert_bias = method == "noaux_tc";
    const std::int64_t groups = config.integer_or({"n_group"}, 0, 0, ModelLimits::experts);
    if (groups > 1 && method != "greedy") {
        moe.groups = groups;
        moe.group_top_k = config.integer({"topk_group"}, 1, ModelLimits::experts);
    }
    model.moe_layers = architecture.llama4 ? read_llama4_moe_layers(config, model.layers) : read_moe_layers(config, model.layers);
    if (std::find(model.moe_layers.begin(), model.moe_layers.end(), true) == model.moe_layers.end()) {
        model.moe_layers.clear();
        return;
    }
    model.moe = moe;
}

/// DeepSeek's attention; its latents are always normalised.
void read_mla(ConfigReader& config, ModelSpec& model) {
    if (!config.has({"kv_lora_rank"})) return;
    MlaSpec mla;
    mla.q_lora_rank = config.integer_or({"q_lora_rank"}, 0, 0, ModelLimits::hidden);
    mla.kv_lora_rank = config.integer({"kv_lora_rank"}, 1, ModelLimits::hidden);
    mla.qk_nope_head_dim = config.integer({"qk_nope_head_dim"}, 1, ModelLimits::head_dim);
    mla.qk_rope_head_dim = config.integer({"qk_rope_head_dim"}, 0, ModelLimits::head_dim);
    mla.v_head_dim = config.integer({"v_head_dim"}, 1, ModelLimits::head_dim);
    model.mla = mla;
    model.qk_norm = true;
    model.qkv_bias = false;
    model.kv_heads = model.heads;
    model.head_dim = 0;
}

void read_heads(ConfigReader& config, ModelSpec& model) {
    model.heads = config.integer({"num_attention_heads", "n_head"}, 1, ModelLimits::heads);
    model.kv_heads = config.integer_or({"num_key_value_heads"}, model.heads, 1, ModelLimits::heads);
    if (config.has({"kv_lora_rank"})) return;
    if (config.has({"head_dim", "kv_channels"})) {
        model.head_dim = config.integer({"head_dim", "kv_channels"}, 1, ModelLimits::head_dim);
        return;
    }
    // A missing or absurd size is a problem of its own.
    if (config.has({"hidden_size", "n_embd"}) && model.hidden > 1 && model.hidden % model.heads != 0)
        config.raw().problems().add("{}: attention heads = {} do not divide hidden size = {}; give head_dim, or use {}",
                                    config.raw().where(), model.heads, model.hidden, divisors_text(model.hidden, model.hidden));
    model.head_dim = std::max<std::int64_t>(1, model.hidden / model.heads);
}

void read_ffn(ConfigReader& config, const Architecture& architecture, ModelSpec& model) {
    const Aliases kFfn{"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"};
    if (architecture.llama4)  // intermediate_size is the experts'
        model.ffn = config.integer({"intermediate_size_mlp", "intermediate_size"}, 1, ModelLimits::ffn);
    else if (!config.has(kFfn) && !architecture.gated)
        model.ffn = 4 * model.hidden;  // GPT-2: n_inner absent or null
    else if (!config.has(kFfn) && config.has({"moe_intermediate_size"}))
        model.ffn = config.integer({"moe_intermediate_size"}, 1, ModelLimits::ffn);
    else
        model.ffn = config.integer(kFfn, 1, ModelLimits::ffn);
}

std::string known_architectures() {
    std::vector<std::string> names;
    for (const auto& architecture : kArchitectures) names.emplace_back(architecture.model_type);
    return any_of_text(names);
}

/// The traits behind model_type or architectures; nothing where neither is known.
const Architecture* find_architecture(std::string_view type, const std::vector<std::string>& classes) {
    for (const auto& [text_model, known] : kTextModels) {
        if (text_model == type) type = known;
    }
    for (const auto& architecture : kArchitectures) {
        if (architecture.model_type == type) return &architecture;
    }
    for (const auto& architecture : kArchitectures) {
        if (std::find(classes.begin(), classes.end(), architecture.class_name) != classes.end()) return &architecture;
    }
    return nullptr;
}

const Architecture& read_architecture(ConfigReader& config, std::vector<std::string>& assumptions) {
    const std::string type = config.text_or({"model_type"}, "");
    const std::vector<std::string> classes = config.raw().texts("architectures");
    Problems& problems = config.raw().problems();
    if (std::find(kOtherKinds.begin(), kOtherKinds.end(), type) != kOtherKinds.end() || config.boolean_or({"is_encoder_decoder"}, false))
        problems.add("{}: model_type '{}' is no decoder-only transformer; mgplan plans {}", config.raw().where(), type.substr(0, 40),
                     known_architectures());
    if (const Architecture* known = find_architecture(type, classes)) return *known;
    const std::string shown = !type.empty() ? type : classes.empty() ? "(none)" : classes.front();
    assumptions.push_back(fmt::format("architecture {} is not known, read like llama", shown.substr(0, 60)));
    return kLlama;
}

}  // namespace

bool looks_like_hugging_face(const Json& json) {
    if (!json.is_object()) return false;
    const Aliases kSigns{
        "model_type", "architectures",       "hidden_size",         "n_embd", "num_hidden_layers", "n_layer", "d_model", "text_config",
        "num_layers", "num_attention_heads", "transformers_version"};
    return std::any_of(kSigns.begin(), kSigns.end(), [&](std::string_view sign) { return json.contains(sign); });
}

Job read_hugging_face(const Json& json, const std::string& name, const std::string& where) {
    for (const auto* nested : {"text_config", "llm_config", "language_config"}) {
        if (json.is_object() && json.contains(nested) && json.at(nested).is_object()) {
            Json text = json.at(nested);
            // Some keep what is the language model's alone beside it.
            for (const auto* field : {"tie_word_embeddings", "vocab_size", "max_position_embeddings"}) {
                if (!text.contains(field) && json.contains(field)) text[field] = json.at(field);
            }
            Job job = read_hugging_face(text, name, fmt::format("{}: {}", where, nested));
            job.assumptions.push_back(fmt::format("only the language model ({}) of a larger model is planned", nested));
            return job;
        }
    }
    Problems problems;
    ConfigReader config(json, where, problems);
    Job job;
    ModelSpec& model = job.model;
    const Architecture& architecture = read_architecture(config, job.assumptions);
    model.name = name;
    model.source = config.text_or({"_source"}, where);
    model.layers = config.integer({"num_hidden_layers", "n_layer", "num_layers"}, 1, ModelLimits::layers);
    model.hidden = config.integer({"hidden_size", "n_embd", "d_model"}, 1, ModelLimits::hidden);
    model.vocab = config.integer({"vocab_size"}, 1, ModelLimits::vocab);
    const Aliases kPositions{"max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"};
    if (config.has(kPositions)) {
        model.max_positions = config.integer(kPositions, 1, ModelLimits::positions);
    } else {
        model.max_positions = architecture.learned_positions ? 1024 : 4096;
        job.assumptions.push_back(fmt::format("maximum positions not given, {} taken", model.max_positions));
    }
    read_heads(config, model);
    read_ffn(config, architecture, model);
    model.gated_mlp = architecture.gated;
    model.activation = read_activation(config, architecture.activation);
    read_normalization(config, architecture, model);
    read_positions(config, architecture, model);
    read_epsilon(config, model);
    read_window(config, architecture, model, job.assumptions);
    read_biases(config, architecture, model);
    model.tied_embeddings = config.boolean_or({"tie_word_embeddings"}, architecture.tied);
    model.qk_norm = config.boolean_or({"qk_norm", "use_qk_norm"}, architecture.qk_norm || architecture.llama4);
    if (architecture.llama4) read_llama4_notes(config, model, job.assumptions);
    model.attention_sinks = config.boolean_or({"attention_sinks"}, architecture.sinks);
    model.mtp_layers = config.integer_or({"num_nextn_predict_layers", "mtp_num_layers"}, 0, 0, ModelLimits::mtp_layers);
    model.attention_dropout = config.real_or({"attention_dropout", "attn_pdrop"}, 0, 0, 1);
    model.hidden_dropout = config.real_or({"resid_pdrop", "hidden_dropout", "residual_dropout"}, 0, 0, 1);
    read_mla(config, model);
    read_moe(config, architecture, model);
    if (config.has({"_sequence"})) model.default_sequence = config.integer({"_sequence"}, 1, ModelLimits::positions);
    if (config.has({"_global_batch"})) model.default_global_batch = config.integer({"_global_batch"}, 1, ModelLimits::positions);
    problems.throw_if_any();
    validate(model, where);
    return job;
}

}  // namespace mgplan::importers
