// Features in a Hugging Face config that no layer here has: named where they have no weights, refused otherwise.

#include <array>
#include <set>

#include <fmt/core.h>

#include "formats/hugging_face/hugging_face_layers.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

void leave_out(ConfigParts& parts, std::string what) {
    parts.model.left_out.push_back(std::move(what));
}

constexpr std::string_view kScaledByPosition = "attention scores scaled by position";

/// Layers without rotary positions (no_rope_layers: 0; or every no_rope_layer_interval-th).
void leave_out_positions(ConfigParts& parts) {
    std::int64_t without = 0;
    const std::vector<std::int64_t> listed = parts.config.integers("no_rope_layers", 0, 1);
    const std::int64_t every = parts.config.integer_or({"no_rope_layer_interval"}, 0, 0, ModelLimits::layers);
    if (!listed.empty()) {
        for (const auto rotary : listed) without += rotary == 0 ? 1 : 0;
    } else if (every > 0) {
        without = parts.model.layers / every;
    }
    if (without > 0) leave_out(parts, fmt::format("{} without rotary positions", counted(without, "layer")));
}

/// Features of Llama 4's layers that Llama's lack (modeling_llama4.py).
void leave_out_llama4(ConfigParts& parts) {
    if (parts.config.boolean_or({"use_qk_norm"}, true)) leave_out(parts, "norms of queries and keys without weights");
    const std::int64_t chunk = parts.config.integer_or({"attention_chunk_size"}, 0, 0, ModelLimits::positions);
    if (chunk > 0) leave_out(parts, fmt::format("attention in chunks of {}", counted(chunk, "token")));
    if (parts.config.boolean_or({"attn_temperature_tuning"}, true)) leave_out(parts, std::string(kScaledByPosition));
    leave_out(parts, "router weights multiplied with the experts' input");
}

/// A field by which some class changes its network, and the values that change nothing. Others state them so as well.
struct Changing {
    std::string_view field;
    std::string_view neutral;  ///< JSON; null, false and "" are neutral everywhere
};

constexpr std::array<Changing, 39> kChanging{{{"use_parallel_residual", "false"},
                                              {"parallel_attn", "false"},
                                              {"qk_layernorm", "false"},
                                              {"use_qk_norm", "false"},
                                              {"qk_norm", "false"},
                                              {"clip_qkv", "0"},
                                              {"attn_logit_softcapping", "0"},
                                              {"final_logit_softcapping", "0"},
                                              {"logit_scale", "1"},
                                              {"logits_scaling", "1"},
                                              {"embedding_multiplier", "1"},
                                              {"residual_multiplier", "1"},
                                              {"scale_emb", "1"},
                                              {"alibi", "false"},
                                              {"use_alibi", "false"},
                                              {"scale_attn_weights", "true"},
                                              {"scale_attn_by_inverse_layer_idx", "false"},
                                              {"add_cross_attention", "false"},
                                              {"cross_attention_layers", "[]"},
                                              {"do_layer_norm_before", "true"},
                                              {"layer_norm_elementwise_affine", "true"},
                                              {"_remove_final_layer_norm", "false"},
                                              {"lm_head_bias", "false"},
                                              {"use_post_norm", "false"},
                                              {"num_kv_shared_layers", "0"},
                                              {"hidden_size_per_layer_input", "0"},
                                              {"index_topk", "0"},
                                              {"linear_num_value_heads", "0"},
                                              {"mamba_d_state", "0"},
                                              {"ssm_state_size", "0"},
                                              {"hybrid_override_pattern", "\"\""},
                                              {"query_pre_attn_scalar", "0"},
                                              {"mla_scale_q_lora", "false"},
                                              {"zero_expert_num", "0"},
                                              {"apply_residual_connection_post_layernorm", "false"},
                                              {"routed_expert_hidden_size", "0"},
                                              {"mla_use_output_gate", "false"},
                                              {"attn_res_block_size", "0"},
                                              {"latent_moe_use_norm", "false"}}};

bool is_neutral(const Json& value, std::string_view neutral) {
    if (value.is_null() || value == false || (value.is_string() && value.get_ref<const std::string&>().empty())) return true;
    const Json none = Json::parse(neutral);
    return value.is_number() && none.is_number() ? value.get<double>() == none.get<double>() : value == none;
}

}  // namespace

void read_left_out(ConfigParts& parts) {
    if (!parts.type.left_out.empty()) leave_out(parts, std::string(parts.type.left_out));
    if (parts.type.llama4) leave_out_positions(parts);
    if (parts.type.llama4) leave_out_llama4(parts);
    // Ministral 3 scales queries of later positions (modeling_ministral3.py, get_llama_4_attn_scale).
    for (const auto* field : {"rope_parameters", "rope_scaling"}) {
        const Json* rope = parts.config.object(field);
        const bool scaled = rope != nullptr && rope->contains("llama_4_scaling_beta");
        if (scaled && parts.type.left_out != kScaledByPosition) leave_out(parts, std::string(kScaledByPosition));
    }
}

void refuse_other_networks(ConfigParts& parts) {
    const Json defaults = Json::parse(parts.type.defaults);
    for (const auto& field : parts.config.unused()) {
        for (const auto& [name, neutral] : kChanging) {
            if (field != name) continue;
            const Json* value = parts.config.member(field);
            if (value == nullptr || is_neutral(*value, neutral)) continue;
            if (defaults.contains(field) && defaults.at(field) == *value) continue;  // as its class has it without the field
            const std::string shown = value->is_structured() ? "…" : value->dump(-1, ' ', true, Json::error_handler_t::replace);
            parts.config.problem(
                "{} = {} changes the network, and no layer of model_type '{}' here has it; remove it where it means nothing", field,
                shown.substr(0, 40), parts.type.name);
        }
    }
    // compose_opt() has taken it for OPT, which has such maps.
    const Json* const width = parts.config.member("word_embed_proj_dim");
    if (width != nullptr && *width != parts.model.hidden && parts.model.word_width == 0)
        parts.config.problem("word_embed_proj_dim differs from hidden_size = {}; no embedding here is projected", parts.model.hidden);
}

}  // namespace mgplan::formats
