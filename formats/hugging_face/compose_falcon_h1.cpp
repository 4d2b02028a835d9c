// Falcon-H1 (configuration_falcon_h1.py, modeling_falcon_h1.py): attention and Mamba-2 in parallel after one norm, and multipliers of the
// outputs of both, of the MLP, the embeddings and the output layer.

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

double multiplier(Composer& c, std::string_view field) {
    const double value = c.config().real_or({field}, 1, 0, ModelLimits::multiplier);
    if (value == 0) c.config().problem("{} = 0 leaves nothing of what it multiplies; give a number above 0", field);
    return value;
}

/// A list of N numbers; all 1 where the file leaves it out (FalconH1Config.__post_init__).
template <std::size_t N>
std::array<double, N> multipliers(Composer& c, std::string_view field) {
    std::array<double, N> values;
    values.fill(1);
    const auto* stated = c.config().list(field);
    if (stated == nullptr) return values;
    const auto fits = [](const auto& value) {
        return value.is_number() && value.template get<double>() > 0 && value.template get<double>() <= ModelLimits::multiplier;
    };
    if (stated->size() != N || !std::all_of(stated->begin(), stated->end(), fits)) {
        c.config().problem("{} is no list of {} numbers above 0; give one, or leave it out", field, N);
        return values;
    }
    for (std::size_t i = 0; i < N; ++i) values[i] = stated->at(i).template get<double>();
    return values;
}

/// Factors of inputs become factors of outputs: no projection that has one here has a bias. Queries, keys and values of attention all
/// carry that of its input, so that scores carry its square.
void read_multipliers(Composer& c) {
    ModelSpec& model = c.model();
    BranchMultipliers& by = model.branch_multipliers;
    model.embedding_multiplier = multiplier(c, "embedding_multiplier");
    model.logit_multiplier = multiplier(c, "lm_head_multiplier");
    const double into = multiplier(c, "attention_in_multiplier"), scores = into * into * multiplier(c, "key_multiplier");
    if (scores != 1) model.attention_multiplier = scores / std::sqrt(static_cast<double>(model.head_dim));
    by.attention_output = into * multiplier(c, "attention_out_multiplier");
    by.state_output = multiplier(c, "ssm_out_multiplier");
    const double state = multiplier(c, "ssm_in_multiplier");
    const auto blocks = multipliers<5>(c, "ssm_multipliers");
    by.state_gate = state * blocks[0];
    by.state_input = state * blocks[1];
    by.state_write = state * blocks[2];
    by.state_read = state * blocks[3];
    by.state_step = state * blocks[4];
    const auto of_mlp = multipliers<2>(c, "mlp_multipliers");
    by.mlp_gate = of_mlp[0];
    by.mlp_output = of_mlp[1];
    if (into != 1 && c.flag({"attention_bias"}, false)) c.leave_out("a multiplier in front of projections with biases (attention_bias)");
}

}  // namespace

void compose_falcon_h1(Composer& c) {
    const std::int64_t inner = c.number_or({"mamba_d_ssm"}, c.number_or({"mamba_expand"}, 2) * c.hidden());
    const bool normed = c.flag({"mamba_rms_norm"}, false), norm_first = c.flag({"mamba_norm_before_gate"}, true);
    AttentionBesideMamba2 both{.attention = c.plain_attention(true, c.flag({"attention_bias"}, false)),
                               .mamba2 = c.mamba2_by_fields(inner, normed)};
    const bool conv_bias = c.flag({"mamba_conv_bias"}, true), proj_bias = c.flag({"mamba_proj_bias"}, false);
    if (c.flag({"projectors_bias"}, false)) c.config().problem("projectors_bias = true is not described by any layer here; give false");
    // Its fused kernel gates first whatever the field says (FalconH1Mixer.forward), its plain form as the field says.
    if (normed && norm_first) c.leave_out("a norm in front of Mamba-2's gate (mamba_norm_before_gate)");
    c.set_activation({"hidden_act"}, Activation::silu);
    read_multipliers(c);
    c.leave_out_step_limits();
    const LayerPiece mlp = c.typed_mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false));
    c.add_equal_layers("attention and mamba2+mlp", {c.norm(2), c.with_mamba2(both, conv_bias, proj_bias), mlp});
}

}  // namespace mgplan::formats
