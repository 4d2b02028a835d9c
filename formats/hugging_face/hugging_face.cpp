#include "formats/hugging_face/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/class_names.hpp"
#include "formats/hugging_face/composer.hpp"
#include "formats/hugging_face/hugging_face_layers.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

/// Words of a file for a message: at most 60 bytes, control and other bytes as '?'.
std::string printable(std::string_view text) {
    std::string shown;
    for (const char c : text.substr(0, 60)) shown += c >= ' ' && c <= '~' ? c : '?';
    return text.size() > 60 ? shown + "..." : shown;
}

/// Fields that every config may have and that say nothing of the network.
bool says_nothing_of_the_network(std::string_view field) {
    static const std::set<std::string_view> kFields{"architectures",
                                                    "auto_map",
                                                    "bos_token_id",
                                                    "chunk_size_feed_forward",
                                                    "cls_token_id",
                                                    "decoder_start_token_id",
                                                    "dtype",
                                                    "eos_token_id",
                                                    "forced_bos_token_id",
                                                    "gradient_checkpointing",
                                                    "head_dim",
                                                    "id2label",
                                                    "initializer_range",
                                                    "is_decoder",
                                                    "is_encoder_decoder",
                                                    "label2id",
                                                    "mask_token_id",
                                                    "model_type",
                                                    "output_attentions",
                                                    "output_hidden_states",
                                                    "output_router_logits",
                                                    "pad_token_id",
                                                    "pretraining_tp",
                                                    "problem_type",
                                                    "quantization_config",
                                                    "return_dict",
                                                    "sep_token_id",
                                                    "tokenizer_class",
                                                    "torch_dtype",
                                                    "transformers_version",
                                                    "use_cache",
                                                    "use_return_dict"};
    return kFields.contains(field);
}

void read_normalization(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.normalization = parts.type.layer_norm ? Normalization::layer_norm : Normalization::rms_norm;
    const std::string norm = lower_case(parts.config.text_or({"norm"}, ""));
    if (norm == "layernorm" || norm == "layernorm1p" || norm == "layer_norm")
        model.normalization = Normalization::layer_norm;
    else if (norm == "rmsnorm" || norm == "rms_norm")
        model.normalization = Normalization::rms_norm;
    else if (!norm.empty())
        parts.config.problem("norm = '{}' is not known; use rmsnorm, layernorm or layernorm1p", norm.substr(0, 40));
    model.norm_epsilon =
        parts.config.real_or({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps", "layernorm_epsilon"},
                             model.norm_epsilon, 0, 1);
    // Rows whose class has the field follow it; the others have what their layers have.
    const bool by_field = parts.config.boolean_or({"qk_norm", "use_qk_norm"}, false) && !parts.type.llama4;
    model.qk_norm_full_width = parts.type.qk_norm_width;
    model.qk_norm = parts.type.qk_norm || parts.type.qk_norm_width || by_field;
}

/// LongCat-Flash's: num_layers, of two attentions each, which its class counts again as num_hidden_layers.
std::int64_t read_double_layers(ConfigReader& config) {
    const bool stated = !config.stated({"num_layers"}).empty(), attentions_stated = !config.stated({"num_hidden_layers"}).empty();
    const std::int64_t attentions = config.integer_or({"num_hidden_layers"}, 2, 1, ModelLimits::layers);
    if (attentions_stated && !stated) {
        if (attentions % 2 != 0)
            config.problem("num_hidden_layers = {} is odd, and each layer of this type has two attentions", attentions);
        return std::max<std::int64_t>(1, attentions / 2);
    }
    const std::int64_t layers = config.size({"num_layers"}, ModelLimits::layers);
    if (attentions_stated && attentions != 2 * layers)
        config.problem("num_hidden_layers = {} is not twice num_layers = {}; give one of them", attentions, layers);
    return layers;
}

void read_sizes(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    const Aliases kLayers{"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    const bool kosmos = parts.type.compose == compose_kosmos, xlstm = parts.type.compose == compose_xlstm;
    // Nemotron-H's follow from its list of layers.
    if (parts.type.name == "longcat_flash")
        model.layers = read_double_layers(config);
    else if (kosmos)
        model.layers = config.size({"layers", "num_hidden_layers"}, ModelLimits::layers);
    else if (xlstm)
        model.layers = config.size({"num_hidden_layers", "num_blocks"}, ModelLimits::layers);
    else if (parts.type.name != "nemotron_h" || !config.stated(kLayers).empty())
        model.layers = config.size(kLayers, ModelLimits::layers);
    model.hidden = parts.type.name == "bloom" ? config.size({"hidden_size", "n_embed"}, ModelLimits::hidden)
                   : kosmos                   ? config.size({"embed_dim", "hidden_size"}, ModelLimits::hidden)
                   : xlstm                    ? config.size({"hidden_size", "embedding_dim"}, ModelLimits::hidden)
                                              : config.size({"hidden_size", "n_embd", "d_model"}, ModelLimits::hidden);
    model.vocab = config.size({"vocab_size", "padded_vocab_size"}, ModelLimits::vocab);
    model.mtp_layers = config.integer_or({"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_layers"}, 0, 0, ModelLimits::mtp_layers);
    model.attention_dropout = config.real_or({"attention_dropout", "attn_pdrop"}, 0, 0, 1);
    model.hidden_dropout = config.real_or({"resid_pdrop", "hidden_dropout", "residual_dropout", "dropout"}, 0, 0, 1);
    model.init_deviation = config.real_or({"initializer_range"}, model.init_deviation, 0, ModelLimits::init_deviation);
}

/// Labels of a class that has as many as the file says: those of id2label, else num_labels, else two (configuration_utils.py).
std::int64_t stated_labels(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    constexpr std::int64_t kUsual = 2;
    std::int64_t labels = config.integer_or({"num_labels"}, kUsual, 1, ModelLimits::vocab);
    const Json* names = config.object("id2label");
    const bool named = names != nullptr && !names->empty();
    if (named) labels = std::min(static_cast<std::int64_t>(names->size()), ModelLimits::vocab);
    if (!named && config.stated({"num_labels"}).empty())
        parts.assumptions.push_back(fmt::format("labels not given, {} of the class's defaults taken", labels));
    return labels;
}

/// Qwen's reward models (Qwen2.5-Math-RM, modeling_qwen2_rm.py): a linear layer, ReLU, and another to one value, or to two where each step
/// is judged; both with biases. Others have one value without a bias.
void read_reward(ConfigParts& parts, std::string_view class_name) {
    ModelSpec& model = parts.model;
    model.labels = class_name.ends_with("ProcessRewardModel") ? 2 : 1;
    if (class_name.starts_with("Qwen"))
        model.counted.insert(model.counted.end(), {{"score.weight", {model.hidden, model.hidden}}, {"score.bias", {model.hidden}}});
    else
        parts.assumptions.push_back(fmt::format("a head of {} without a bias, for transformers has no class {}",
                                                counted(*model.labels, "value"), printable(class_name)));
}

/// The labels that the class named first with a head of its own has; 0 for a model that ends in none. The sizes are there.
void read_head(ConfigParts& parts, const std::vector<std::string>& classes) {
    const auto own =
        std::find_if(classes.begin(), classes.end(), [](const std::string& name) { return head_of(name) != Head::output_layer; });
    if (own == classes.end()) return;
    ModelSpec& model = parts.model;
    switch (head_of(*own)) {
        case Head::output_layer:
            return;
        case Head::texts:
        case Head::tokens:
            model.labels = stated_labels(parts);
            return;
        case Head::spans:
            model.labels = 2;
            return;
        case Head::reward:
            read_reward(parts, *own);
            return;
        case Head::none:
            model.labels = 0;
            return;
    }
}

/// True if the head in place of the output layer has a bias.
bool head_has_bias(ConfigParts& parts, const std::vector<std::string>& classes) {
    const auto is = [&](Head head) {
        return std::any_of(classes.begin(), classes.end(), [&](const std::string& name) { return head_of(name) == head; });
    };
    const bool tokens = parts.config.boolean_or({"token_classification_bias"}, true);
    const bool qwen = std::any_of(classes.begin(), classes.end(), [](const std::string& name) { return name.starts_with("Qwen"); });
    return (is(Head::tokens) && tokens) || is(Head::spans) || (is(Head::reward) && qwen);
}

/// Resets the fields that belong to the output layer alone.
void drop_output_layer(ConfigParts& parts, const std::vector<std::string>& classes) {
    ModelSpec& model = parts.model;
    if (!model.labels) return;
    model.tied_embeddings = false;
    model.output_bias = head_has_bias(parts, classes);
    model.logit_multiplier = 1;
    model.logit_softcap = 0;
    model.mtp_layers = 0;
}

struct Reading {
    const ModelType* type;
    std::string stated;  ///< model_type or class, for messages
    bool assumed = false;
};

/// Fields of an unknown type that nothing here reads, for its refusal.
std::string unexplained_fields(const Json& json) {
    Problems ignored;
    std::vector<std::string> assumptions, fields;
    static const Json kNone = Json::object();
    ConfigReader config(json, kNone, "", ignored, SparseSizes::allowed);
    ModelSpec model;
    ConfigParts parts{config, assumed_model_type(), model, assumptions};
    read_sizes(parts);
    read_heads(parts);
    read_biases(parts);
    read_mla(parts);
    if (model.layers < 1024) read_windows(parts);
    read_positions(parts);
    read_normalization(parts);
    read_mlp(parts);
    if (model.layers < 1024) read_mixture(parts);
    (void)config.boolean_or({"tie_word_embeddings"}, false);
    for (const auto& field : config.unused()) {
        if (!says_nothing_of_the_network(field) && field.find("token_id") == std::string::npos) fields.push_back(printable(field));
    }
    constexpr std::size_t kShown = 8;
    const std::size_t count = fields.size();
    if (count > kShown) fields.resize(kShown);
    std::string text = fmt::format("{}", fmt::join(fields, ", "));
    if (count > kShown) text += fmt::format(" and {} more", count - kShown);
    return text;
}

/// "nearest: llama, llama4_text"; of names that are like none, some of those that are known.
std::string nearest_known(const std::string& stated, const std::vector<std::string>& known) {
    const std::vector<std::string> nearest = nearest_names(stated, known);
    if (!nearest.empty()) return fmt::format("nearest: {}", fmt::join(nearest, ", "));
    return fmt::format("known are llama, mixtral, qwen3, deepseek_v3 and {} more", known.size() - 4);
}

/// The row to read with. Throws for types that are none or not known, unless they are assumed to be another.
Reading find_reading(const Json& json, const std::string& where, const std::string& assume) {
    Problems problems;
    JsonReader reader(json, where, problems);
    const std::string name = reader.text_or("model_type", "");
    const std::vector<std::string> classes = reader.texts("architectures");
    const bool encoder_decoder = reader.boolean_or("is_encoder_decoder", false);
    problems.throw_if_any();
    if (const auto other = other_kind(name); !other.empty() || encoder_decoder)
        throw ConfigError(
            fmt::format("{}: model_type '{}' {}, so no layer here describes it; mgplan plans decoders, such as llama, qwen3 or deepseek_v3",
                        where, printable(name), other.empty() ? "is no decoder-only transformer" : other));
    const ModelType* type = find_model_type(name);
    if (type == nullptr && name.empty()) {
        for (const auto& class_name : classes) {
            if (type == nullptr) type = find_model_class(class_name);
        }
    }
    if (type != nullptr) return {type, std::string(type->name)};
    const std::string stated = printable(!name.empty() ? name : classes.empty() ? "" : classes.front());
    if (!assume.empty()) return {&assumed_model_type(), stated.empty() ? "(none)" : stated, true};
    const std::vector<std::string> known = known_model_types();
    if (stated.empty())
        throw ConfigError(fmt::format(
            "{}: field 'model_type' is missing; give it, such as llama or qwen3, or read the file as a llama with --assume llama", where));
    const auto known_class =
        std::find_if(classes.begin(), classes.end(), [](const std::string& class_name) { return find_model_class(class_name) != nullptr; });
    if (known_class != classes.end() && !name.empty())
        throw ConfigError(
            fmt::format("{}: model_type '{}' is not known, and architectures names {}, the class of model_type '{}'; give the "
                        "file of that type, whose fields may have other names",
                        where, stated, printable(*known_class), find_model_class(*known_class)->name));
    const std::string fields = unexplained_fields(json);
    throw ConfigError(fmt::format(
        "{}: model_type '{}' is not known ({}){}; --assume llama reads it as a llama all the same, and says so "
        "in what it prints",
        where, stated, nearest_known(stated, known), fields.empty() ? "" : fmt::format(" and no layer here explains {}", fields)));
}

/// The language model of a multimodal file, and its place there; nothing where the file is a language model.
const Json* text_part(const Json& json, std::string& place, const std::string& where) {
    if (!json.is_object()) return nullptr;
    for (const auto* nested : {"text_config", "llm_config", "language_config", "thinker_config"}) {
        const auto found = json.find(nested);
        if (found == json.end() || found->is_null()) continue;
        if (!found->is_object())
            throw ConfigError(fmt::format("{}: {} = {} is not an object; give the fields of the language model there, or leave it out",
                                          where, nested, shown_json(*found)));
        place = nested;
        return &*found;
    }
    return nullptr;
}

/// Qwen's Omni models hold two language models, a thinker and a talker, and neither is the model.
void refuse_two_language_models(const Json& json, const std::string& place, const std::string& where) {
    if (place != "thinker_config") return;
    const auto stated = json.find("model_type");
    const std::string name = stated != json.end() && stated->is_string() ? stated->get<std::string>() : "";
    throw ConfigError(
        fmt::format("{}: model_type '{}' holds two language models, a thinker and a talker, which are trained apart; give what stands in "
                    "its thinker_config as a file of its own",
                    where, printable(name)));
}

/// Throws for a class that is no network of the type.
void refuse_other_classes(const std::vector<std::string>& classes, const Reading& reading, const std::string& stated,
                          const std::string& where) {
    if (reading.assumed) return;
    for (const std::string& name : classes) {
        if (name.empty()) continue;  // states nothing
        if (const std::string other = other_network_of_class(name, *reading.type, stated); !other.empty())
            throw ConfigError(fmt::format("{}: architectures names {}, which {}", where, printable(name), other));
    }
}

/// Returns true if the larger model shares embeddings and output layer, if its own field or class decides: transformers ties by the
/// outer field, which some classes take over from the text part.
std::optional<bool> outer_tie(const Json& json, const Json& text, const std::string& outer_type) {
    const auto flag = [](const Json& object) -> std::optional<bool> {
        const auto found = object.find("tie_word_embeddings");
        if (found == object.end() || !found->is_boolean()) return std::nullopt;
        return found->get<bool>();
    };
    const auto outer = flag(json), inner = flag(text);
    if (outer && !*outer && inner && *inner && ties_as_its_text_part(outer_type)) return true;
    // Both Kosmos (modeling_kosmos2.py, modeling_kosmos2_5.py): either field ties the first, which both classes have true, and that of the
    // text part alone the second.
    if (outer_type == "kosmos-2") return outer.value_or(true) || inner.value_or(true);
    if (outer_type == "kosmos-2.5") return inner.value_or(true);
    if (outer) return outer;
    if (ties_by_itself(outer_type)) return false;
    if (!inner && ties_by_default(outer_type)) return true;
    return std::nullopt;
}

Job read_text_part(const Json& json, const Json& part, const std::string& place, const std::string& name, const std::string& where,
                   const std::string& assume);

/// Layers that the fields of ModelSpec describe; the sizes are there.
void read_layers(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    read_heads(parts);
    read_biases(parts);
    read_mla(parts);
    if (config.problems().empty()) read_windows(parts);
    read_positions(parts);
    read_mlp(parts);
    const bool latent_norm = model.qk_norm;
    read_normalization(parts);
    model.qk_norm = model.qk_norm || latent_norm;
    if (model.mla && model.mla->norm_epsilon == model.norm_epsilon) model.mla->norm_epsilon = 0;
    model.attention_sinks = config.boolean_or({"attention_sinks"}, parts.type.sinks);
    if (config.problems().empty()) read_mixture(parts);
}

/// Reads sizes that models of composed layers have in common with all others: heads where there are any, the norms' epsilon.
void read_sizes_of_composed(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    const Aliases kHeads{"num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"};
    if (config.has(kHeads)) model.heads = config.integer(kHeads, 1, ModelLimits::heads);
    model.heads = std::max<std::int64_t>(1, model.heads);
    model.kv_heads = config.integer_or({"num_key_value_heads"}, model.heads, 1, ModelLimits::heads);
    // With latent attention it is what positions turn, which may be nothing.
    const std::int64_t least = config.has({"kv_lora_rank"}) ? 0 : 1, usual = std::max<std::int64_t>(1, model.hidden / model.heads);
    model.head_dim = std::max<std::int64_t>(1, config.integer_or({"head_dim", "kv_channels"}, usual, least, ModelLimits::head_dim));
    // Gemma 3n's may be a list.
    const bool listed =
        parts.type.compose == compose_gemma3n && config.member("intermediate_size", {JsonKind::number, JsonKind::list}) != nullptr;
    if (!listed) model.ffn = config.integer_or({"intermediate_size", "ffn_hidden_size"}, 1, 1, ModelLimits::ffn);
    model.norm_epsilon =
        config.real_or({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps", "layernorm_epsilon"},
                       model.norm_epsilon, 0, 1);
}

Job read_one(const Json& json, const std::string& name, const std::string& where, const std::string& assume, bool nested) {
    std::string place;
    if (const Json* part = text_part(json, place, where); part != nullptr) return read_text_part(json, *part, place, name, where, assume);
    const Reading reading = find_reading(json, where, assume);
    const Json defaults = Json::parse(reading.type->defaults);
    static const Json kNoDefaults = Json::object();
    Problems problems;
    ConfigReader config(json, reading.assumed ? kNoDefaults : defaults, where, problems,
                        nested ? SparseSizes::allowed : SparseSizes::refused);
    Job job;
    ModelSpec& model = job.model;
    ConfigParts parts{config, *reading.type, model, job.assumptions};
    model.name = name;
    model.source = json.contains("_source") ? config.text_or({"_source"}, where) : where;
    model.type = reading.stated;
    if (reading.assumed) {
        model.assumed_architecture = reading.type->name;
        job.assumptions.push_back(fmt::format("architecture {} is not known, read like {}", reading.stated, reading.type->name));
        job.notes.push_back(fmt::format("model_type {} is not known and read as {} (--assume), so this may be another network",
                                        reading.stated, reading.type->name));
    }
    const std::string stated = config.text_or({"model_type"}, "");
    const std::vector<std::string> classes = nested ? std::vector<std::string>{} : config.texts("architectures");
    refuse_other_classes(classes, reading, stated, where);
    (void)config.boolean_or({"is_encoder_decoder"}, false);
    read_sizes(parts);
    read_head(parts, classes);
    const bool composed = reading.type->compose != nullptr && (reading.type->composed == nullptr || reading.type->composed(parts));
    if (composed) {
        read_sizes_of_composed(parts);
        read_positions(parts);
        read_composed(parts);
    } else {
        read_layers(parts);
    }
    model.tied_embeddings = config.boolean_or({"tie_word_embeddings"}, false);
    if (model.tied_embeddings && reading.type->never_tied) {
        model.tied_embeddings = false;
        job.assumptions.push_back(
            fmt::format("untied embeddings, for the class of {} passes over tie_word_embeddings", reading.type->name));
    }
    if (problems.empty() && reading.type->arrange != nullptr) reading.type->arrange(parts);
    drop_output_layer(parts, classes);
    read_left_out(parts);
    if (problems.empty()) refuse_other_networks(parts);  // else what is left to read says nothing
    if (config.has({"_sequence"})) model.default_sequence = config.integer({"_sequence"}, 1, ModelLimits::positions);
    if (config.has({"_global_batch"})) model.default_global_batch = config.integer({"_global_batch"}, 1, ModelLimits::positions);
    problems.throw_if_any();
    validate(model, where);
    model = by_fields_if_possible(std::move(model));
    job.unused_fields = config.unused();
    if (!config.defaulted_sizes().empty())
        job.assumptions.push_back(fmt::format("class defaults of {} where the file is silent: {}", reading.type->name,
                                              fmt::join(config.defaulted_sizes(), ", ")));
    return job;
}

/// Reads the text part. Of a larger type that no table here has, the message or the notes say so: its class may give the text part other
/// layers.
Job read_known_text(const Json& text, const std::string& name, const std::string& where, const std::string& assume,
                    const std::string& outer_type) {
    const bool known = outer_type.empty() || is_known_around_text(outer_type) || find_model_type(outer_type) != nullptr;
    const std::string doubt =
        fmt::format("the model around the text part is of type '{}', which is not known, so its layers may differ", printable(outer_type));
    try {
        Job job = read_one(text, name, where, assume, true);
        if (!known) job.notes.push_back(fmt::format("{}: {}", where, doubt));
        return job;
    } catch (const ConfigError& error) {
        if (known) throw;
        Problems problems;
        problems.absorb(error);
        problems.add("{}: {}", where, doubt);
        problems.throw_if_any();
        throw;
    }
}

Job read_text_part(const Json& json, const Json& part, const std::string& place, const std::string& name, const std::string& where,
                   const std::string& assume) {
    refuse_two_language_models(json, place, where);
    for (const Json* const object : {&json, &part}) {
        if (const auto tie = object->find("tie_word_embeddings"); tie != object->end() && !tie->is_null() && !tie->is_boolean())
            throw ConfigError(fmt::format("{}{}: tie_word_embeddings = {} is not true or false", where, object == &part ? ": " + place : "",
                                          shown_json(*tie)));
    }
    Json text = part;
    // Some files keep fields of the language model outside it.
    for (const auto* field : {"vocab_size", "max_position_embeddings"}) {
        if (!text.contains(field) && json.contains(field)) text[field] = json.at(field);
    }
    const auto stated = json.find("model_type");
    const std::string outer_type = stated != json.end() && stated->is_string() ? stated->get<std::string>() : "";
    if (!text.contains("model_type") && !text_type_of(outer_type).empty()) text["model_type"] = text_type_of(outer_type);
    const auto tie = outer_tie(json, part, outer_type);
    const bool conflict = tie && part.contains("tie_word_embeddings") && part.at("tie_word_embeddings") != *tie;
    if (tie) text["tie_word_embeddings"] = *tie;
    Job job = read_known_text(text, name, fmt::format("{}: {}", where, place), assume, outer_type);
    job.assumptions.push_back(fmt::format("only the language model ({}) of a larger model is planned", place));
    if (conflict)
        job.notes.push_back(fmt::format("{}: tie_word_embeddings of {} differs from the outer one; {} is taken, as transformers does",
                                        where, place, *tie ? "tied" : "untied"));
    return job;
}

}  // namespace

bool looks_like_hugging_face(const Json& json) {
    if (!json.is_object()) return false;
    const Aliases kSigns{
        "model_type", "architectures",       "hidden_size",         "n_embd", "num_hidden_layers", "n_layer", "d_model", "text_config",
        "num_layers", "num_attention_heads", "transformers_version"};
    return std::any_of(kSigns.begin(), kSigns.end(), [&](std::string_view sign) { return json.contains(sign); });
}

Job read_hugging_face(const Json& json, const std::string& name, const std::string& where, const std::string& assume) {
    if (!assume.empty() && assume != assumed_model_type().name)
        throw ConfigError(fmt::format("--assume = '{}' is not known; use {}", printable(assume), assumed_model_type().name));
    return read_one(json, name, where, assume, false);
}

}  // namespace mgplan::formats
