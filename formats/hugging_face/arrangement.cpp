#include "formats/hugging_face/arrangement.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

/// Rotary positions that differ between layers with a window and without one: {"full_attention": {…}, "sliding_attention": {…}}.
void read_rotary_by_layer(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    const Json* rope = parts.config.object("rope_parameters");
    if (rope != nullptr && rope->contains("full_attention")) {
        const std::string where = parts.config.where() + ": rope_parameters";
        if (const Json& full = rope->at("full_attention"); !full.is_null()) {
            JsonReader reader(full, where + ": full_attention", parts.config.problems());
            model.rotary_base = reader.real_or("rope_theta", model.rotary_base, 0, ModelLimits::rotary_base);
            const std::string kind = reader.text_or("rope_type", "default");
            if (kind != "default") {
                model.rotary_scaling = kind.substr(0, 40);
                model.rotary_scaling_values.factor = reader.real_or("factor", 1, 0, ModelLimits::rotary_scaling);
                model.rotary_scaling_values.original_positions =
                    reader.integer_or("original_max_position_embeddings", 0, 0, ModelLimits::positions);
                model.rotary_scaling_values.beta_fast =
                    reader.real_or("beta_fast", model.rotary_scaling_values.beta_fast, 0, ModelLimits::rotary_scaling);
                model.rotary_scaling_values.beta_slow =
                    reader.real_or("beta_slow", model.rotary_scaling_values.beta_slow, 0, ModelLimits::rotary_scaling);
            }
        }
        if (rope->contains("sliding_attention") && !rope->at("sliding_attention").is_null()) {
            JsonReader reader(rope->at("sliding_attention"), where + ": sliding_attention", parts.config.problems());
            model.window_rotary_base = reader.real_or("rope_theta", model.rotary_base, 0, ModelLimits::rotary_base);
        }
        return;
    }
    model.window_rotary_base = parts.config.real_or({"rope_local_base_freq"}, 0, 0, ModelLimits::rotary_base);
}

void drop_equal_window_base(ModelSpec& model) {
    if (model.sliding_window == 0 || (model.window_rotary_base == model.rotary_base && model.rotary_scaling.empty()))
        model.window_rotary_base = 0;
}

/// Rotary positions in layers with a window alone.
void rotate_windows_alone(ModelSpec& model) {
    if (model.sliding_window == 0) return;
    model.rotary_layers.clear();
    for (std::int64_t layer = 0; layer < model.layers; ++layer) model.rotary_layers.push_back(model.window_of_layer(layer) > 0);
    if (std::find(model.rotary_layers.begin(), model.rotary_layers.end(), false) == model.rotary_layers.end()) model.rotary_layers.clear();
}

/// Attention that subtracts from a score in proportion to the distance, by a slope for each head (ALiBi, arXiv 2108.12409).
void leave_out_slopes(ModelSpec& model) {
    model.position = PositionEmbedding::none;
    model.left_out.emplace_back("attention scores lowered by distance (ALiBi)");
}

double positive(ConfigParts& parts, Aliases names, double fallback) {
    return parts.config.real_or(names, fallback, 1e-9, ModelLimits::multiplier);
}

}  // namespace

void arrange_gemma(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    const std::string_view type = parts.type.name;
    // The factor is rounded to bf16 where the weights are.
    model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden));
    if (type == "gemma") return;
    model.post_norms = type != "vaultgemma";
    const double scalar = positive(parts, {"query_pre_attn_scalar"}, static_cast<double>(model.head_dim));
    if (scalar != static_cast<double>(model.head_dim)) model.attention_multiplier = 1 / std::sqrt(scalar);
    model.attention_softcap = parts.config.real_or({"attn_logit_softcapping"}, 0, 0, ModelLimits::multiplier);
    model.logit_softcap = parts.config.real_or({"final_logit_softcapping"}, 0, 0, ModelLimits::multiplier);
    if (type == "gemma3_text") {
        read_rotary_by_layer(parts);
        drop_equal_window_base(model);
    }
}

void arrange_glm4(ConfigParts& parts) {
    parts.model.post_norms = true;
}

void arrange_gpt_oss(ConfigParts& parts) {
    // modeling_gpt_oss.py, GptOssExperts: whatever hidden_act says.
    parts.model.activation = Activation::clamped_swish;
    constexpr double kLimit = 7;
    if (const double limit = parts.config.real_or({"swiglu_limit"}, kLimit, 0, ModelLimits::multiplier); limit != kLimit)
        parts.config.problem("swiglu_limit = {:g} is not computed; the experts' gate here is clamped at 7", limit);
}

void arrange_norms_behind(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.pre_norms = false;
    model.post_norms = true;
    if (parts.type.name == "exaone4") rotate_windows_alone(model);
    if (parts.type.name == "olmo3") {
        read_rotary_by_layer(parts);
        // A file with one base holds it for both; scaling is that of layers without a window.
        if (model.window_rotary_base == 0 && !model.rotary_scaling.empty()) model.window_rotary_base = model.rotary_base;
        drop_equal_window_base(model);
    }
}

void arrange_cohere(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.order = LayerOrder::parallel_shared_norm;
    model.norm_bias = false;
    model.logit_multiplier = positive(parts, {"logit_scale"}, 1);
    if (parts.type.name == "cohere2") rotate_windows_alone(model);
    if (parts.type.name == "cohere") model.qk_norm_per_head = model.qk_norm;
}

void arrange_cohere_compass(ConfigParts& parts) {
    arrange_cohere(parts);
    ModelSpec& model = parts.model;
    // modeling_cohere_compass.py: an entry for each kind of layer that there is, null where positions do not turn.
    const Json* rope = parts.config.object("rope_parameters");
    std::array<bool, 2> turns{};  // layers that see all, layers with a window
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const bool window = model.window_of_layer(layer) > 0;
        const auto* const kind = window ? "sliding_attention" : "full_attention";
        if (rope == nullptr || !rope->contains(kind)) {
            parts.config.problem("rope_parameters has no entry {}, which layers of that kind take their positions from; give one, or null",
                                 kind);
            return;
        }
        turns.at(window ? 1 : 0) = !rope->at(kind).is_null();
    }
    read_rotary_by_layer(parts);
    drop_equal_window_base(model);
    model.rotary_layers.clear();
    if (!turns[0] && !turns[1]) {
        model.position = PositionEmbedding::none;
        return;
    }
    if (turns[0] && !turns[1] && model.sliding_window == 0) return;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
        model.rotary_layers.push_back(turns.at(model.window_of_layer(layer) > 0 ? 1 : 0));
    if (std::find(model.rotary_layers.begin(), model.rotary_layers.end(), false) == model.rotary_layers.end()) model.rotary_layers.clear();
}

void arrange_muse_glimmer(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    if (!parts.model.kinds.empty()) return;
    model.post_norms = true;
    model.attention_output_gate = true;
    model.attention_multiplier = positive(parts, {"qk_scale_factor"}, 1) / std::sqrt(static_cast<double>(model.head_dim));
    model.logit_multiplier = positive(parts, {"output_multiplier"}, 1);
    model.logit_softcap = config.real_or({"final_logit_softcapping"}, 0, 0, ModelLimits::multiplier);
    model.left_out.emplace_back("a norm of the embeddings without weights");
    if (config.real_or({"post_norm_eps"}, 0, 0, 1) != model.norm_epsilon)
        model.left_out.emplace_back("an epsilon of the norms after both halves");
    // configuration_muse_glimmer.py: the last layer and every fourth before it see all, and positions turn in the others.
    const auto sees_all = [&](std::int64_t layer) { return (model.layers - 1 - layer) % 4 == 0; };
    const std::int64_t window = config.integer_or({"sliding_window"}, 0, 0, ModelLimits::positions);
    if (config.stated({"layer_types"}).empty() && window > 0) {
        model.sliding_window = window;
        model.window_layers.clear();
        for (std::int64_t layer = 0; layer < model.layers; ++layer) model.window_layers.push_back(!sees_all(layer));
        if (model.layers == 1) model.sliding_window = 0;
    }
    std::vector<bool> turns;
    if (const Json* listed = config.list("layer_rope_theta"); listed != nullptr) {
        const bool numbers = std::all_of(listed->begin(), listed->end(), [](const Json& one) { return one.is_number() && one >= 0; });
        if (!numbers || std::ssize(*listed) != model.layers) {
            config.problem("layer_rope_theta is no list of a number for each of {} layers; give one entry per layer, 0 for none",
                           model.layers);
            return;
        }
        for (const Json& base : *listed) turns.push_back(base > 0);  // which base, rope_parameters say for all
    } else {
        for (std::int64_t layer = 0; layer < model.layers; ++layer) turns.push_back(!sees_all(layer));
    }
    if (std::find(turns.begin(), turns.end(), true) == turns.end())
        model.position = PositionEmbedding::none;
    else if (std::find(turns.begin(), turns.end(), false) != turns.end())
        model.rotary_layers = std::move(turns);
}

void arrange_gpt_neox(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.order = parts.config.boolean_or({"use_parallel_residual"}, true) ? LayerOrder::parallel : LayerOrder::sequential;
    model.qkv_bias = model.attention_output_bias = parts.config.boolean_or({"attention_bias"}, true);
    model.mlp_bias = true;
    model.kv_heads = model.heads;  // its class has no other
}

void arrange_gpt_neox_japanese(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.ffn = std::min(model.hidden * parts.config.integer_or({"intermediate_multiple_size"}, 4, 1, 1024), ModelLimits::ffn);
    model.kv_heads = model.heads;  // its class has no other
    // The last layer's attention alone has a bias of its output.
    model.counted.push_back({"attention.output.bias", {model.hidden}});
}

void arrange_ctrl(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.ffn = parts.config.integer_or({"dff"}, 4 * model.hidden, 1, ModelLimits::ffn);
    model.output_bias = true;
    model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden));
    model.position = PositionEmbedding::none;
    model.left_out.emplace_back("sines of the position added to the embeddings");
}

void arrange_biogpt(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    // Layers here would multiply the positions too.
    if (parts.config.boolean_or({"scale_embedding"}, true)) model.left_out.emplace_back("words multiplied in front of the positions");
    model.hidden_dropout = parts.config.real_or({"hidden_dropout_prob"}, 0, 0, 1);
    model.attention_dropout = parts.config.real_or({"attention_probs_dropout_prob"}, 0, 0, 1);
}

void arrange_baichuan(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.kv_heads = model.heads;  // one matrix for queries, keys and values
    // The 7B models turn, the 13B models have slopes, and no field says which: serving engines use the width as well (vLLM,
    // models/baichuan.py).
    constexpr std::int64_t kWidthThatTurns = 4096;
    if (model.hidden != kWidthThatTurns) leave_out_slopes(model);
    // Baichuan 2, known by its vocabulary (the same file).
    constexpr std::int64_t kVocabularyOfTheSecond = 125'696;
    if (model.vocab == kVocabularyOfTheSecond) model.left_out.emplace_back("rows of the output layer scaled to length 1 (NormHead)");
}

void arrange_bailing(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    if (config.boolean_or({"use_bias"}, false))
        config.problem("use_bias = true is not described by any layer of model_type '{}' here; give false", parts.type.name);
    if (config.boolean_or({"multi_gate"}, false)) config.problem("multi_gate = true has routers that no layer here has; give false");
    if (config.boolean_or({"norm_head"}, false)) model.left_out.emplace_back("rows of the output layer scaled to length 1 (norm_head)");
    if (!model.moe) return;
    MoeSpec& moe = *model.moe;
    const std::int64_t shared = config.integer_or({"num_shared_experts"}, 0, 0, ModelLimits::experts);
    const std::int64_t width = config.integer_or({"moe_shared_expert_intermediate_size"}, moe.expert_ffn, 0, ModelLimits::ffn);
    moe.shared_ffn = std::min(shared * width, ModelLimits::ffn);
    moe.expert_bias = config.boolean_or({"moe_router_enable_expert_bias"}, moe.expert_bias);
    const std::string score = config.text_or({"score_function"}, moe.score == RouterScore::sigmoid ? "sigmoid" : "softmax");
    if (score != "sigmoid" && score != "softmax")
        config.problem("score_function = '{}' is not known; use softmax or sigmoid", score.substr(0, 40));
    moe.score = score == "sigmoid" ? RouterScore::sigmoid : RouterScore::softmax;
}

void arrange_molmo2(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.qk_norm_full_width = parts.config.text_or({"qk_norm_type"}, "qwen3") == "olmo";
    if (parts.config.boolean_or({"norm_after"}, false)) {
        model.pre_norms = false;
        model.post_norms = true;
    }
    // Words of the pictures' parts, which no output row stands for.
    const std::int64_t more = parts.config.integer_or({"additional_vocab_size"}, 0, 0, ModelLimits::vocab);
    if (more > 0) model.counted.push_back({"table.weight", {more, model.hidden}});
    (void)parts.config.integers("rope_scaling_layers", 0, ModelLimits::layers);
}

void arrange_phi(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.order = LayerOrder::parallel_shared_norm;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    model.qk_norm = parts.config.boolean_or({"qk_layernorm"}, false);
    model.output_bias = true;
}

void arrange_falcon(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    model.activation = read_activation(config, Activation::gelu_exact, {"activation"});
    const bool grouped = config.boolean_or({"new_decoder_architecture"}, false);
    const std::int64_t stated = config.integer_or({"num_kv_heads"}, model.heads, 1, ModelLimits::heads);
    const bool one_head = config.boolean_or({"multi_query"}, true);
    model.kv_heads = grouped ? stated : one_head ? 1 : model.heads;
    const bool beside = config.boolean_or({"parallel_attn"}, true);
    const bool two_norms = config.integer_or({"num_ln_in_parallel_attn"}, grouped ? 2 : 1, 1, 2) == 2;
    model.order = !beside ? LayerOrder::sequential : two_norms ? LayerOrder::parallel : LayerOrder::parallel_shared_norm;
    if (grouped && !beside) config.problem("parallel_attn = false with new_decoder_architecture has no layer here; give true");
    if (!grouped && beside && two_norms)
        config.problem("num_ln_in_parallel_attn = 2 without new_decoder_architecture has no layer here; give 1");
    if (config.boolean_or({"alibi"}, false)) leave_out_slopes(model);
}

void arrange_mpt(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    if (!config.boolean_or({"no_bias"}, true)) config.problem("no_bias = false is not described by any layer here; give true");
    bool slopes = true;
    if (const Json* nested = config.object("attn_config"); nested != nullptr) {
        JsonReader reader(*nested, config.where() + ": attn_config", config.problems());
        if (reader.text_or("attn_type", "multihead_attention") != "multihead_attention" || reader.boolean_or("qk_ln", false))
            config.problem("attn_config: only multihead_attention without qk_ln is described here; give these");
        slopes = reader.boolean_or("alibi", true);
        if (const double bound = reader.real_or("clip_qkv", 0, 0, ModelLimits::multiplier); bound > 0)
            model.left_out.push_back(fmt::format("queries, keys and values clipped at {:g}", bound));
    }
    // modeling_mpt.py: the width is four times the hidden size, whatever expansion_ratio says, and GELU is the one by erf.
    if (const double ratio = config.real_or({"expansion_ratio"}, 4, 0, 1e3); ratio != 4)
        model.left_out.emplace_back("an expansion_ratio that transformers does not follow");
    model.ffn = 4 * model.hidden;
    model.activation = Activation::gelu_exact;
    model.norm_bias = false;
    model.position = PositionEmbedding::none;
    if (slopes) leave_out_slopes(model);
}

void arrange_chatglm(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    if (config.boolean_or({"multi_query_attention"}, false))
        model.kv_heads = config.integer({"multi_query_group_num"}, 1, ModelLimits::heads);
    model.qkv_bias = config.boolean_or({"add_qkv_bias"}, false) || model.mlp_bias;
    // Half of a head is turned, by a base that rope_ratio stretches.
    model.rotary_fraction = 0.5;
    model.rotary_base *= positive(parts, {"rope_ratio"}, 1);
    for (const auto& [field, usual] :
         {std::pair{"rmsnorm", true}, {"post_layer_norm", true}, {"apply_residual_connection_post_layernorm", false}}) {
        if (config.boolean_or({field}, usual) != usual)
            config.problem("{} = {} is another network than any layer of this type here; give {}", field, !usual, usual);
    }
}

void arrange_olmo(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.norm_weight = model.norm_bias = false;
    model.norm_epsilon = 1e-5;  // modeling_olmo.py, OlmoLayerNorm: no field of the config
    model.qkv_clip = parts.config.real_or({"clip_qkv"}, 0, 0, ModelLimits::multiplier);
}

void arrange_apertus(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.mlp_bias = false;  // its class has none
    if (!parts.config.stated({"rope_parameters", "rope_scaling"}).empty()) return;
    // Fixed by the class, without a field (configuration_apertus.py).
    model.rotary_scaling = "llama3";
    model.rotary_scaling_values.factor = 8;
    model.rotary_scaling_values.original_positions = 8192;
}

void arrange_bloom(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    model.kv_heads = model.heads;  // its class has no other
    model.embedding_norm = true;
    leave_out_slopes(model);
}

void arrange_gptj(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.order = LayerOrder::parallel_shared_norm;
    model.mlp_bias = true;
    model.output_bias = true;
}

void arrange_stablelm(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    if (parts.config.boolean_or({"use_parallel_residual"}, false)) model.order = LayerOrder::parallel_shared_norm;
    // Norms of each head, without a bias, which those of the residual stream have.
    model.qk_norm = model.qk_norm_per_head = parts.config.boolean_or({"qk_layernorm"}, false);
}

void arrange_granite(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.embedding_multiplier = positive(parts, {"embedding_multiplier"}, 1);
    model.residual_multiplier = positive(parts, {"residual_multiplier"}, 1);
    model.logit_multiplier = 1 / positive(parts, {"logits_scaling"}, 1);
    const double usual = 1 / std::sqrt(static_cast<double>(model.head_dim)), scores = positive(parts, {"attention_multiplier"}, usual);
    if (std::abs(scores - usual) > 1e-9) model.attention_multiplier = scores;
}

void arrange_granite_swa(ConfigParts& parts) {
    arrange_granite(parts);
    ModelSpec& model = parts.model;
    const Json* listed = parts.config.list("layer_rope_theta");
    if (listed == nullptr) return;
    const bool numbers = std::all_of(listed->begin(), listed->end(), [](const Json& one) { return one.is_number() && one >= 0; });
    if (!numbers || std::ssize(*listed) != model.layers) {
        parts.config.problem("layer_rope_theta is no list of a number for each of {} layers; give one entry per layer, 0 for none",
                             model.layers);
        return;
    }
    // Layers of either kind have one base, or none.
    std::array<double, 2> bases{};  // of layers that see all, of those with a window
    std::vector<bool> rotated;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const double base = listed->at(static_cast<std::size_t>(layer)).get<double>();
        double& known = bases.at(model.window_of_layer(layer) > 0 ? 1 : 0);
        rotated.push_back(base > 0);
        if (base > 0 && known > 0 && known != base)
            parts.config.problem("layer_rope_theta has {:g} and {:g} in layers that are alike; layers here have one base for each kind",
                                 known, base);
        if (base > 0) known = base;
    }
    if (bases[0] > 0 || bases[1] > 0) model.rotary_base = bases[0] > 0 ? bases[0] : bases[1];
    if (bases[1] > 0) model.window_rotary_base = bases[1];
    drop_equal_window_base(model);
    if (bases[0] == 0 && bases[1] == 0)
        model.position = PositionEmbedding::none;
    else if (std::find(rotated.begin(), rotated.end(), false) != rotated.end())
        model.rotary_layers = std::move(rotated);
}

void arrange_exaone_moe(ConfigParts& parts) {
    rotate_windows_alone(parts.model);
}

void arrange_mellum(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    // Its class has these where the file gives none.
    if (parts.config.stated({"rope_parameters", "rope_theta"}).empty()) {
        model.rotary_base = 500'000;
        model.window_rotary_base = 10'000;
    } else {
        read_rotary_by_layer(parts);
    }
    drop_equal_window_base(model);
}

void arrange_flint(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    // configuration_flint.py: the first two layers, every fourth and the last see all; the first two have no experts.
    const std::int64_t window = config.integer_or({"sliding_window"}, 0, 0, ModelLimits::positions);
    if (config.stated({"layer_types"}).empty() && window > 0) {
        model.sliding_window = window;
        model.window_layers.clear();
        for (std::int64_t layer = 0; layer < model.layers; ++layer)
            model.window_layers.push_back(layer >= 2 && layer % 4 != 1 && layer != model.layers - 1);
    }
    rotate_windows_alone(model);
    if (!model.moe || !config.stated({"mlp_only_layers"}).empty()) return;
    for (std::size_t layer = 0; layer < 2 && layer < model.moe_layers.size(); ++layer) model.moe_layers[layer] = false;
}

void arrange_minicpm(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    model.embedding_multiplier = positive(parts, {"scale_emb"}, 1);
    model.residual_multiplier = positive(parts, {"scale_depth"}, 1) / std::sqrt(static_cast<double>(model.layers));
    const double base = positive(parts, {"dim_model_base"}, static_cast<double>(model.hidden));
    model.logit_multiplier = base / static_cast<double>(model.hidden);
}

void arrange_hyperclovax(ConfigParts& parts) {
    arrange_granite(parts);
    // modeling_hyperclovax.py multiplies the logits with what Granite divides them by.
    parts.model.logit_multiplier = positive(parts, {"logits_scaling"}, 1);
    parts.model.post_norms = parts.config.boolean_or({"use_post_norm"}, false);
}

void arrange_ernie(ConfigParts& parts) {
    // With biases the output layer has one too.
    if (parts.model.mlp_bias && !parts.model.labels) parts.model.counted.push_back({"output.bias", {parts.model.vocab}});
}

void arrange_smollm3(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    const std::vector<std::int64_t> listed = parts.config.integers("no_rope_layers", 0, 1);
    const std::int64_t every = parts.config.integer_or({"no_rope_layer_interval"}, 0, 0, ModelLimits::layers);
    std::vector<bool> rotated;
    for (const auto rotary : listed) rotated.push_back(rotary == 1);
    if (listed.empty() && every > 0) {
        for (std::int64_t layer = 0; layer < model.layers; ++layer) rotated.push_back((layer + 1) % every != 0);
    }
    if (!rotated.empty() && static_cast<std::int64_t>(rotated.size()) != model.layers) {
        parts.config.problem("no_rope_layers has {} entries for {} layers; give one entry per layer", rotated.size(), model.layers);
        return;
    }
    if (std::find(rotated.begin(), rotated.end(), false) != rotated.end()) model.rotary_layers = std::move(rotated);
}

}  // namespace mgplan::formats
