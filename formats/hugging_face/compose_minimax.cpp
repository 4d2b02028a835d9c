// MiniMax-01 and M1 (configuration_minimax.py, modeling_minimax.py, and the fields of MiniMax's own modeling_minimax_text_01.py): lightning
// attention with softmax attention in between, experts, and a residual path that carries what the norms give.

#include <string>
#include <vector>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

/// True for each layer with softmax attention: layer_types, else attn_type_list (1: softmax), else every second from the first on.
std::vector<bool> softmax_layers(Composer& c) {
    std::vector<bool> softmax;
    for (const std::string& word : c.mixers_of_layers()) softmax.push_back(!is_recurrent(word));
    const std::vector<std::int64_t> listed = c.config().integers("attn_type_list", 0, 1);
    if (!softmax.empty()) return softmax;
    if (!listed.empty() && static_cast<std::int64_t>(listed.size()) != c.layers())
        c.config().problem("attn_type_list has {} entries for {} layers; give one entry per layer", listed.size(), c.layers());
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        softmax.push_back(listed.empty() ? layer % 2 == 0 : at < listed.size() && listed[at] == 1);
    }
    return softmax;
}

PathFactors read_factors(Composer& c, Aliases path, Aliases branch) {
    return {.path = c.config().real_or(path, 1, 0, ModelLimits::multiplier),
            .branch = c.config().real_or(branch, 1, 0, ModelLimits::multiplier)};
}

}  // namespace

void compose_minimax(Composer& c) {
    ModelSpec& model = c.model();
    if (!c.flag({"postnorm"}, true))
        c.config().problem("postnorm = false is another residual path than any layer of this type here has; give true");
    if (c.number_or({"shared_intermediate_size"}, 0) > 0)
        c.config().problem("shared_intermediate_size is stated, and no layer here mixes shared experts as this type would; give 0");
    c.set_activation({"hidden_act"}, Activation::silu);
    if (model.activation != Activation::silu)
        c.config().problem("hidden_act is another than silu, which lightning attention here has behind its projection; give silu");
    const LayerPiece lightning = c.mixer(LightningAttention{.heads = model.heads, .head_dim = model.head_dim});
    const LayerPiece attention = c.mixer(c.plain_attention(true));
    const LayerPiece sparse = c.mixture({.experts = c.number({"num_local_experts"}),
                                         .top_k = c.number({"num_experts_per_tok"}),
                                         .expert_ffn = c.number({"intermediate_size"})});
    model.normed_residual =
        NormedResidual{.attention = read_factors(c, {"full_attn_alpha_factor", "layernorm_full_attention_alpha"},
                                                 {"full_attn_beta_factor", "layernorm_full_attention_beta"}),
                       .state = read_factors(c, {"linear_attn_alpha_factor", "layernorm_linear_attention_alpha"},
                                             {"linear_attn_beta_factor", "layernorm_linear_attention_beta"}),
                       .mlp = read_factors(c, {"mlp_alpha_factor", "layernorm_mlp_alpha"}, {"mlp_beta_factor", "layernorm_mlp_beta"})};
    const std::vector<bool> softmax = softmax_layers(c);
    if (!c.config().problems().empty()) return;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = softmax[static_cast<std::size_t>(layer)];
        c.add_layer(full ? "attention+moe" : "lightning_attention+moe", {c.norm(2), full ? attention : lightning, sparse});
    }
}

}  // namespace mgplan::formats
