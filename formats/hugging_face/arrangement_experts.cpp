// MoE models whose fields are unlike those of others.

#include <algorithm>
#include <cmath>

#include "formats/hugging_face/arrangement.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

/// A fixed alpha stretches the base of the rotary positions whatever the length, though the file calls it "dynamic"
/// (modeling_hunyuan_v1_dense.py and _moe.py, compute_ntk_alpha_rope_parameters).
void stretch_rotary_base(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    if (model.rotary_scaling != "dynamic" || model.head_dim <= 2) return;
    for (const auto* field : {"rope_parameters", "rope_scaling"}) {
        const Json* rope = parts.config.object(field);
        if (rope == nullptr || !rope->contains("alpha")) continue;
        JsonReader nested(*rope, parts.config.where() + ": " + field, parts.config.problems());
        const double alpha = nested.real_or("alpha", 0, 0, ModelLimits::rotary_scaling);
        if (alpha == 0) continue;
        const auto width = static_cast<double>(model.head_dim);
        model.rotary_base *= std::pow(alpha, width / (width - 2));
        model.rotary_scaling.clear();
        model.rotary_scaling_values = {};
        return;
    }
}

/// A number, or a list of one for each layer, all equal.
std::int64_t same_in_all_layers(ConfigParts& parts, std::string_view field, std::int64_t fallback, std::int64_t high) {
    ConfigReader& config = parts.config;
    const Json* stated = config.member(field, {JsonKind::number, JsonKind::list});
    if (stated == nullptr || !stated->is_array()) return config.integer_or({field}, fallback, 1, high);
    const std::vector<std::int64_t> values = config.integers(field, 1, high);
    if (static_cast<std::int64_t>(values.size()) != parts.model.layers) {
        config.problem("{} has {} entries for {} layers; give one number, or one entry per layer", field, values.size(),
                       parts.model.layers);
        return fallback;
    }
    const auto other = std::find_if(values.begin(), values.end(), [&](std::int64_t value) { return value != values.front(); });
    if (other == values.end()) return values.front();
    config.problem("{} is {} in one layer and {} in another, and layers here have one number of it; give one number", field, values.front(),
                   *other);
    return fallback;
}

}  // namespace

void arrange_hunyuan(ConfigParts& parts) {
    parts.model.qk_norm_behind_rotary = true;
    stretch_rotary_base(parts);
}

void arrange_hunyuan_moe(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    arrange_hunyuan(parts);
    // modeling_hunyuan_v1_moe.py: experts in every layer, one shared expert, and one width for all.
    MoeSpec moe;
    moe.experts = same_in_all_layers(parts, "num_experts", 1, ModelLimits::experts);
    moe.top_k = same_in_all_layers(parts, "moe_topk", 1, ModelLimits::experts);
    moe.expert_ffn = moe.shared_ffn = model.ffn;
    for (const auto* field : {"moe_intermediate_size", "num_shared_expert"}) {
        const std::int64_t one = field == std::string_view("num_shared_expert") ? 1 : model.ffn;
        if (const std::int64_t stated = same_in_all_layers(parts, field, one, ModelLimits::ffn); stated != one)
            parts.config.problem("{} = {} is passed over by the class of model_type '{}', which has {}; give that", field, stated,
                                 parts.type.name, one);
    }
    model.moe = moe;
    model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
}

void arrange_hy_v3(ConfigParts& parts) {
    if (parts.model.mlp_bias)
        parts.config.problem("mlp_bias = true is not described by any layer of model_type '{}' here; give false", parts.type.name);
    if (parts.model.moe)
        parts.model.moe->routed_scaling = parts.config.real_or({"router_scaling_factor"}, 2.826, 0, ModelLimits::routed_scaling);
}

void arrange_dbrx(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    model.norm_bias = false;
    model.kv_heads = 1;
    if (const Json* nested = config.object("attn_config"); nested != nullptr) {
        JsonReader reader(*nested, config.where() + ": attn_config", config.problems());
        model.kv_heads = reader.integer_or("kv_n_heads", 1, 1, ModelLimits::heads);
        model.qkv_clip = reader.real_or("clip_qkv", 0, 0, ModelLimits::multiplier);
        model.attention_dropout = reader.real_or("attn_pdrop", 0, 0, 1);
        // Published files have the base here alone; transformers 5 writes another place, which counts where it is stated.
        const double base = reader.real_or("rope_theta", model.rotary_base, 0, ModelLimits::rotary_base);
        if (config.stated({"rope_parameters", "rope_theta"}).empty()) model.rotary_base = base;
    }
    (void)config.integer_or({"num_key_value_heads"}, model.kv_heads, 1, ModelLimits::heads);
    MoeSpec& moe = model.moe.emplace();
    moe.experts = 4;
    moe.top_k = 1;
    moe.auxiliary_loss = 0.01;
    model.ffn = 3584;
    if (const Json* nested = config.object("ffn_config"); nested != nullptr) {
        JsonReader reader(*nested, config.where() + ": ffn_config", config.problems());
        moe.experts = reader.integer_or("moe_num_experts", moe.experts, 1, ModelLimits::experts);
        moe.top_k = reader.integer_or("moe_top_k", moe.top_k, 1, ModelLimits::experts);
        model.ffn = reader.integer_or("ffn_hidden_size", model.ffn, 1, ModelLimits::ffn);
        moe.auxiliary_loss = reader.real_or("moe_loss_weight", moe.auxiliary_loss, 0, ModelLimits::auxiliary_loss);
        if (nested->contains("moe_normalize_expert_weights") && nested->at("moe_normalize_expert_weights").is_null())
            moe.normalize_top_k = false;
        else if (const double norm = reader.real_or("moe_normalize_expert_weights", 1, 0, ModelLimits::multiplier); norm != 1)
            config.problem("ffn_config: moe_normalize_expert_weights = {:g} is not computed; give 1 or null", norm);
        if (const auto given = nested->find("ffn_act_fn");
            given != nested->end() && given->is_object() && given->contains("name") && given->at("name") != "silu")
            config.problem("ffn_config: ffn_act_fn is another than silu, which is not computed for this type; give silu");
        if (reader.real_or("moe_jitter_eps", 0, 0, 1) > 0) model.left_out.emplace_back("jitter of what the router sees");
    }
    moe.expert_ffn = model.ffn;
    model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
}

void arrange_ernie_moe(ConfigParts& parts) {
    ModelSpec& model = parts.model;
    ConfigReader& config = parts.config;
    if (model.mlp_bias) config.problem("use_bias = true is not described by any layer of this type here; give false");
    if (!model.moe) return;
    const std::int64_t first = config.integer_or({"moe_layer_start_index"}, 1, 0, ModelLimits::layers),
                       last = config.integer_or({"moe_layer_end_index"}, model.layers - 1, -1, ModelLimits::layers),
                       every = config.integer_or({"moe_layer_interval"}, 1, 1, ModelLimits::layers);
    std::int64_t mixtures = 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const bool mixture = (layer + 1) % every == 0 && layer >= first && (layer <= last || last < 0);
        model.moe_layers[static_cast<std::size_t>(layer)] = mixture;
        mixtures += mixture ? 1 : 0;
    }
    if (mixtures == 0) {
        model.moe.reset();
        model.moe_layers.clear();
        return;
    }
    // Softmax scores, to which its biases are added for the choice alone; its class counts them as parameters.
    model.counted.push_back({std::string(kChoiceBias), {model.moe->experts}, mixtures, mixtures});
}

}  // namespace mgplan::formats
