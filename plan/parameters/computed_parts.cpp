#include "plan/parameters/computed_parts.hpp"

#include <algorithm>
#include <array>

namespace mgplan {
namespace {

/// Sets the activation that the part names; returns false if it names none.
bool describe_activation(const PartSizes& s, ModelSpec& fields) {
    const std::int64_t stated = s["activation"];
    if (stated < 1 || stated > 1 + static_cast<std::int64_t>(Activation::xielu)) return false;
    fields.activation = static_cast<Activation>(stated - 1);
    return true;
}

bool describe_attention(const PartSizes& s, ModelSpec& fields) {
    if (s["qk_norm"] == 2 || s["qk_norm"] > 3 || s["positions"] < 1 || s["positions"] > 2) return false;
    if (s["positions"] == 1) fields.position = PositionEmbedding::none;
    fields.heads = s["heads"];
    fields.kv_heads = s["kv_heads"];
    fields.head_dim = s["head_dim"];
    fields.qkv_bias = s["qkv_bias"] != 0;
    fields.attention_output_bias = s["output_bias"] != 0;
    fields.attention_output_gate = s["output_gate"] == 1;
    fields.qk_norm = s["qk_norm"] != 0;
    fields.qk_norm_full_width = s["qk_norm"] == 3;
    return fields.heads % fields.kv_heads == 0;
}

/// Latent attention's sizes are in MlaSpec too, together with values that no size of the part holds.
bool describe_latent_attention(const PartSizes& s, ModelSpec& fields) {
    if (!fields.mla || s["output_bias"] != 0) return false;
    fields.heads = fields.kv_heads = s["heads"];
    fields.qk_norm = true;
    if (fields.position == PositionEmbedding::none) fields.rotary_fraction = 0;  // else it turns its part of the keys whatever else does
    return true;
}

bool describe_gemma_attention(const PartSizes& s, ModelSpec& fields) {
    return s["heads"] % s["kv_heads"] == 0 && s["head_dim"] % 2 == 0 && fields.normalization == Normalization::rms_norm &&
           fields.position == PositionEmbedding::rope && (s["input"] == 0) == (s["input_rows"] == 0);
}

bool describe_gemma3n(const PartSizes& s, ModelSpec& fields) {
    fields.ffn = s["width"];
    fields.gated_mlp = true;
    fields.mlp_bias = false;
    return s["streams"] > 1 && s["streams"] <= ModelLimits::residual_streams && s["cut_millionths"] < 1'000'000 &&
           describe_gemma_attention(s, fields) && describe_activation(s, fields) && fields.activation != Activation::xielu;
}

bool describe_compressed(const PartSizes& s, ModelSpec& fields) {
    const bool compresses = s["rate"] > 0, indexed = s["index_heads"] > 0;
    return fields.normalization == Normalization::rms_norm && fields.position == PositionEmbedding::rope && s["window"] > 0 &&
           s["rotated"] % 2 == 0 && s["rotated"] <= s["head_dim"] && s["heads"] * s["head_dim"] % s["groups"] == 0 &&
           s["overlaps"] <= (compresses ? 1 : 0) && indexed == (s["index_top_k"] > 0) && (!indexed || compresses) &&
           (!indexed || (s["overlaps"] == 1 && s["index_dim"] >= std::max<std::int64_t>(1, s["rotated"])));
}

bool has_rms_norms(const PartSizes& /*sizes*/, ModelSpec& fields) {
    return fields.normalization == Normalization::rms_norm;
}

bool describe_mamba(const PartSizes& s, ModelSpec& fields) {
    return s["inner_norms"] <= 2 && has_rms_norms(s, fields);
}

bool describe_recurrence(const PartSizes& s, ModelSpec& fields) {
    return s["width"] % s["heads"] == 0 && has_rms_norms(s, fields);
}

/// Megatron-core's mixer has neither biases of its projections nor a convolution without one (ssm/mamba_mixer.py), nor has the typed one.
bool describe_mamba2(const PartSizes& s, ModelSpec& /*fields*/) {
    return s["inner"] % s["heads"] == 0 && s["heads"] % s["groups"] == 0;
}

bool describe_attention_beside_mamba(const PartSizes& s, ModelSpec& fields) {
    fields.heads = s["query_heads"];
    fields.kv_heads = s["kv_heads"];
    fields.head_dim = s["head_dim"];
    fields.qkv_bias = s["qkv_bias"] != 0;
    fields.attention_output_bias = s["output_bias"] != 0;
    return describe_mamba2(s, fields) && fields.heads % fields.kv_heads == 0;
}

bool describe_shared_block(const PartSizes& s, ModelSpec& fields) {
    const bool turns = s["positions"] == 2;
    // An adapter of keys is as wide as that of queries.
    const bool alike = s["kv_heads"] == s["query_heads"] && s["query_heads"] * s["head_dim"] == 2 * fields.hidden;
    return s["query_heads"] % s["kv_heads"] == 0 && has_rms_norms(s, fields) && s["positions"] <= 2 && (!turns || s["head_dim"] % 2 == 0) &&
           (s["adapts_attention"] == 0 || alike) && describe_mamba2(s, fields) && describe_activation(s, fields) &&
           fields.activation != Activation::xielu;
}

bool describe_delta_net(const PartSizes& s, ModelSpec& fields) {
    return s["value_heads"] % s["key_heads"] == 0 && has_rms_norms(s, fields);
}

/// Copies its own factors of the residual path to where layers read those of attention.
bool describe_lightning(const PartSizes& s, ModelSpec& fields) {
    if (fields.normed_residual) fields.normed_residual->attention = fields.normed_residual->state;
    return has_rms_norms(s, fields);
}

bool describe_mlp(const PartSizes& s, ModelSpec& fields) {
    fields.ffn = s["width"];
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    // A bias of the second product would miss the MLP's multiplier, which comes before it; and without a gate there is none to scale.
    const BranchMultipliers& by = fields.branch_multipliers;
    if ((by.mlp_output != 1 && fields.mlp_bias) || (by.mlp_gate != 1 && !fields.gated_mlp)) return false;
    // xIELU has no gate.
    return describe_activation(s, fields) && !(fields.gated_mlp && fields.activation == Activation::xielu);
}

/// The part describes an MoE layer, and MoeSpec its values that no size of the part holds (scores, balancing).
bool describe_experts(const PartSizes& s, ModelSpec& fields) {
    if (!fields.moe || (fields.moe->branch_norms && fields.moe->shared_ffn == 0)) return false;
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    return describe_activation(s, fields) && fields.activation != Activation::xielu;  // its trained values belong to one MLP
}

constexpr std::array kComputed{ComputedPart{"attention", describe_attention},
                               ComputedPart{"latent_attention", describe_latent_attention},
                               ComputedPart{"gemma_attention", describe_gemma_attention},
                               ComputedPart{"gemma3n_layer", describe_gemma3n},
                               ComputedPart{"compressed_attention", describe_compressed},
                               ComputedPart{"mamba", describe_mamba},
                               ComputedPart{"mamba2", describe_mamba2},
                               ComputedPart{"attention_beside_mamba2", describe_attention_beside_mamba},
                               ComputedPart{"shared_block_mamba2", describe_shared_block},
                               ComputedPart{"gated_linear_recurrence", describe_recurrence},
                               ComputedPart{"gated_delta_net", describe_delta_net},
                               ComputedPart{"kimi_delta_attention", has_rms_norms},
                               ComputedPart{"lightning_attention", describe_lightning},
                               ComputedPart{"short_convolution", [](const PartSizes&, ModelSpec&) { return true; }},
                               ComputedPart{"mlp", describe_mlp},
                               ComputedPart{"experts", describe_experts}};

}  // namespace

const ComputedPart* find_computed_part(const LayerPart& part) {
    const auto found = std::find_if(kComputed.begin(), kComputed.end(), [&](const ComputedPart& one) { return one.kind == part.kind; });
    return found == kComputed.end() ? nullptr : &*found;
}

bool is_choice_bias(const LayerPart& part, const ModelSpec& model) {
    if (part.kind != "choice_biases") return false;
    return !model.moe || (model.moe->expert_bias && part_size(part, "experts") == model.moe->experts);
}

}  // namespace mgplan
