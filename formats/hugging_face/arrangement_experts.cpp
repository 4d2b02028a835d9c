// Mixtures whose fields are unlike those of others.

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
        const Json* rope = parts.config.member(field);
        if (rope == nullptr || !rope->is_object() || !rope->contains("alpha")) continue;
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
    const Json* stated = config.member(field);
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
    // modeling_hunyuan_v1_moe.py: a mixture in every layer, one shared expert, and one width for all.
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

}  // namespace mgplan::formats
