// Attention of a Hugging Face config: heads, latents, biases, windows, positions.

#include <algorithm>

#include <fmt/core.h>

#include "formats/hugging_face/hugging_face_layers.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

/// sliding_window_pattern: a number, or letters of which the last is G ("LLLG"); 0: no layer sees all.
std::int64_t window_pattern(ConfigReader& config) {
    const Json* stated = config.member("sliding_window_pattern", {JsonKind::number, JsonKind::text});
    if (stated == nullptr || !stated->is_string()) return config.integer_or({"sliding_window_pattern"}, 4, 0, ModelLimits::layers);
    const auto text = stated->get<std::string>();
    if (text.empty() || text.find_first_not_of("LG") != std::string::npos || text.find('G') + 1 != text.size())
        config.problem("sliding_window_pattern = '{}' is no sequence of L that ends with its only G; give one, such as LLLG",
                       text.substr(0, 20));
    return static_cast<std::int64_t>(text.size());
}

/// True for each layer that sees only the window, by the rule of the type.
std::vector<bool> windows_by_rule(ConfigParts& parts) {
    const std::int64_t layers = parts.model.layers;
    std::vector<bool> windows(static_cast<std::size_t>(layers), false);
    const bool on = parts.config.boolean_or({"use_sliding_window"}, false);
    const std::int64_t from = parts.config.integer_or({"max_window_layers"}, 0, 0, ModelLimits::layers);
    const std::int64_t pattern = parts.type.windows == WindowRule::all_but_nth ? window_pattern(parts.config) : 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        bool window = false;
        switch (parts.type.windows) {
            case WindowRule::none:
            case WindowRule::listed:
                break;
            case WindowRule::every_layer:
                window = true;
                break;
            case WindowRule::every_second:
                window = layer % 2 == 0;
                break;
            case WindowRule::switched:
                window = on;
                break;
            case WindowRule::from_max_layers:
                window = layer >= from;
                break;
            case WindowRule::switched_from_max:
                window = on && layer >= from;
                break;
            case WindowRule::all_but_nth:
                window = pattern == 0 || (layer + 1) % pattern != 0;
                break;
            case WindowRule::all_but_first:
                window = layer % 4 != 0;
                break;
            case WindowRule::switched_alternate:
                window = on && layer % 2 == 0 && layer < from;
                break;
        }
        windows[static_cast<std::size_t>(layer)] = window;
    }
    return windows;
}

/// layer_types, an entry for each layer: whether it sees only the window.
std::vector<bool> listed_windows(ConfigParts& parts, const Json& types) {
    std::vector<bool> windows;
    if (!types.is_array() || std::ssize(types) != parts.model.layers) {
        parts.config.problem("layer_types has {} entries for {} layers; give one entry per layer",
                             types.is_array() ? fmt::format("{}", types.size()) : "no list of", parts.model.layers);
        return windows;
    }
    for (const auto& type : types) {
        const bool own = (parts.type.llama4 && type == "chunked_attention") || (parts.type.indexed && type == "indexed_attention");
        if (type != "full_attention" && type != "sliding_attention" && !own) {
            const std::string shown = type.dump(-1, ' ', true, Json::error_handler_t::replace);
            parts.config.problem("layer_types holds {}; the layers here are full_attention and sliding_attention", shown.substr(0, 60));
            return {};
        }
        windows.push_back(type == "sliding_attention");
    }
    return windows;
}

void read_scaling(ConfigParts& parts, std::string_view field) {
    const Json* scaling = parts.config.object(field);
    if (scaling == nullptr) return;
    ModelSpec& model = parts.model;
    JsonReader nested(*scaling, fmt::format("{}: {}", parts.config.where(), field), parts.config.problems());
    model.rotary_base = nested.real_or("rope_theta", model.rotary_base, 0, ModelLimits::rotary_base);
    const std::string name = lower_case(nested.text_or("rope_type", nested.text_or("type", "default")));
    if (name == "default") return;
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
    values.whole_pairs = nested.boolean_or("truncate", values.whole_pairs);
    values.original_positions = nested.integer_or("original_max_position_embeddings", values.original_positions, 0, ModelLimits::positions);
}

void read_position_kind(ConfigParts& parts) {
    const std::string position =
        lower_case(parts.config.text_or({"position_embedding"}, parts.type.learned_positions ? "learned_absolute" : "rope"));
    if (position == "none" || position == "nope")
        parts.model.position = PositionEmbedding::none;
    else if (position == "rope" || position == "rotary")
        parts.model.position = PositionEmbedding::rope;
    else if (position == "learned_absolute" || position == "learned" || position == "absolute")
        parts.model.position = PositionEmbedding::learned;
    else
        parts.config.problem("position_embedding = '{}' is not known; use rope, learned_absolute or none", position.substr(0, 40));
}

}  // namespace

void read_heads(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    model.heads = config.size({"num_attention_heads", "n_head", "n_heads"}, ModelLimits::heads);
    const bool one_head = parts.type.multi_query && config.boolean_or({"multi_query"}, true);
    model.kv_heads = one_head ? 1 : config.integer_or({"num_key_value_heads"}, model.heads, 1, ModelLimits::heads);
    if (config.has({"kv_lora_rank"})) return;
    if (config.has({"head_dim", "kv_channels"})) {
        model.head_dim = config.integer({"head_dim", "kv_channels"}, 1, ModelLimits::head_dim);
        return;
    }
    // A missing or absurd size is a problem of its own.
    if (config.has({"hidden_size", "n_embd"}) && model.hidden > 1 && model.hidden % model.heads != 0 && !parts.type.head_size_rounds)
        config.problem("attention heads = {} do not divide hidden size = {}; give head_dim, or use {}", model.heads, model.hidden,
                       divisors_text(model.hidden, model.hidden));
    model.head_dim = std::max<std::int64_t>(1, model.hidden / model.heads);
}

void read_mla(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    if (!config.has({"kv_lora_rank"})) return;
    MlaSpec mla;
    mla.q_lora_rank = config.integer_or({"q_lora_rank"}, 0, 0, ModelLimits::hidden);
    mla.kv_lora_rank = config.integer({"kv_lora_rank"}, 1, ModelLimits::hidden);
    mla.qk_nope_head_dim = config.integer({"qk_nope_head_dim"}, 1, ModelLimits::head_dim);
    mla.qk_rope_head_dim = config.integer({"qk_rope_head_dim"}, 0, ModelLimits::head_dim);
    mla.v_head_dim = config.integer({"v_head_dim"}, 1, ModelLimits::head_dim);
    for (const auto* field : {"head_dim", "qk_head_dim"}) (void)config.integer_or({field}, 0, 0, ModelLimits::head_dim);  // from the others
    // The norms of the latents have the default of their class, whatever rms_norm_eps says (modeling_deepseek_v2.py and _v3.py,
    // modeling_minicpm3.py, modeling_glm4_moe_lite.py, modeling_youtu.py).
    constexpr double kLatentEpsilon = 1e-6;
    mla.norm_epsilon = kLatentEpsilon;
    if (parts.type.indexed) {
        mla.index_heads = config.integer({"index_n_heads"}, 1, ModelLimits::heads);
        mla.index_head_dim = config.integer({"index_head_dim"}, 1, ModelLimits::head_dim);
        mla.index_top_k = config.integer({"index_topk"}, 1, ModelLimits::positions);
    }
    model.mla = mla;
    model.qk_norm = true;  // the latents are always normalised
    model.kv_heads = model.heads;
    model.head_dim = 0;
    if (model.qkv_bias)
        config.problem("attention_bias = true puts biases on the projections to the latents, which no layer here has; give false");
    model.qkv_bias = false;
}

void read_biases(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    const std::string_view field = parts.type.attention_bias_field;
    model.mlp_bias = config.boolean_or({parts.type.mlp_bias_field, "mlp_bias"}, false);
    switch (parts.type.biases) {
        case BiasRule::none:
            (void)config.boolean_or({"attention_bias"}, false);
            break;
        case BiasRule::attention:
            model.qkv_bias = model.attention_output_bias = config.boolean_or({field, "attention_bias"}, false);
            break;
        case BiasRule::qkv:
            model.qkv_bias = config.boolean_or({field, "attention_bias"}, false);
            model.attention_output_bias = config.boolean_or({"attention_out_bias"}, false);
            break;
        case BiasRule::qkv_always:
            model.qkv_bias = config.boolean_or({"qkv_bias", "attention_bias"}, true);
            break;
        case BiasRule::all:
            model.qkv_bias = model.attention_output_bias = model.mlp_bias =
                config.boolean_or({field == "attention_bias" ? std::string_view("use_bias") : field}, false);
            break;
    }
}

void read_windows(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    const bool knows_windows = parts.type.windows != WindowRule::none;
    const std::int64_t window = knows_windows ? config.integer_or({"sliding_window"}, 0, 0, ModelLimits::positions) : 0;
    std::vector<bool> windows = windows_by_rule(parts);
    if (const Json* types = config.member("layer_types"); types != nullptr) windows = listed_windows(parts, *types);
    if (window == 0 || std::find(windows.begin(), windows.end(), true) == windows.end()) return;
    model.sliding_window = window;
    // The first layer that sees all gives the period, where the list goes on like that.
    const std::int64_t every = std::find(windows.begin(), windows.end(), false) - windows.begin() + 1;
    if (every > model.layers) return;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        if (windows[static_cast<std::size_t>(layer)] == ((layer + 1) % every != 0)) continue;
        model.window_layers = windows;
        return;
    }
    model.full_attention_every = every;
}

void read_positions(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    read_position_kind(parts);
    const Aliases kPositions{"max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx",
                             "model_max_length",        "max_seq_len", "seq_length"};
    if (config.has(kPositions)) {
        const bool stated = !config.stated(kPositions).empty();
        model.max_positions = config.integer(kPositions, 1, ModelLimits::positions);
        if (!stated) parts.assumptions.push_back(fmt::format("maximum positions not given, {} of its class taken", model.max_positions));
    } else {
        model.max_positions = parts.type.learned_positions ? 1024 : 4096;
        parts.assumptions.push_back(fmt::format("maximum positions not given, {} taken", model.max_positions));
    }
    if (parts.type.unused_positions > 0) {
        model.max_positions = std::min(model.max_positions + parts.type.unused_positions, ModelLimits::positions);
        parts.assumptions.push_back(
            fmt::format("{} rows of the table of positions counted that no token uses", parts.type.unused_positions));
    }
    double fraction = config.real_or({"partial_rotary_factor", "rotary_pct", "rope_percent"}, 1, 0, 1);
    if (config.has({"rotary_dim"}) && model.head_dim > 0)
        fraction = std::min(
            1.0, static_cast<double>(config.integer({"rotary_dim"}, 1, ModelLimits::head_dim)) / static_cast<double>(model.head_dim));
    if (const Json* rope = config.object("rope_parameters");
        rope != nullptr && config.stated({"partial_rotary_factor", "rotary_pct", "rope_percent"}).empty()) {
        JsonReader nested(*rope, config.where() + ": rope_parameters", config.problems());
        fraction = nested.real_or("partial_rotary_factor", fraction, 0, 1);
    }
    model.rotary_fraction = fraction;
    model.rotary_interleaved = config.boolean_or({"rope_interleave"}, parts.type.rotary_interleaved);
    model.rotary_base = config.real_or({"rope_theta", "rotary_emb_base"}, model.rotary_base, 0, ModelLimits::rotary_base);
    // Where both are given, rope_parameters is the newer. A run refuses a scaling whose name it does not support.
    read_scaling(parts, "rope_parameters");
    read_scaling(parts, "rope_scaling");
}

}  // namespace mgplan::formats
