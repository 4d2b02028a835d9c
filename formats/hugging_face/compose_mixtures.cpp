#include "formats/hugging_face/compose_mixtures.hpp"

#include <algorithm>

namespace mgplan::formats {

void refuse_attention_bias(Composer& c) {
    if (c.flag({"attention_bias"}, false))
        c.config().problem("attention_bias = true is not described by any layer of model_type '{}' here; give false", c.model().type);
}

std::vector<bool> mixtures_of(Composer& c, std::int64_t first_fallback) {
    const std::int64_t first = c.number_or({"first_k_dense_replace"}, first_fallback);
    if (const nlohmann::ordered_json* stated = c.config().list("mlp_layer_types"); stated != nullptr) return c.sparse_layers(first);
    const nlohmann::ordered_json* frequency = c.config().member("moe_layer_freq", {JsonKind::number, JsonKind::list});
    std::vector<std::int64_t> listed;
    if (frequency != nullptr && frequency->is_array()) listed = c.config().integers("moe_layer_freq", 0, 1);
    if (!listed.empty() && static_cast<std::int64_t>(listed.size()) != c.layers()) {
        c.config().problem("moe_layer_freq has {} entries for {} layers; give one entry per layer", listed.size(), c.layers());
        listed.clear();
    }
    const std::int64_t every =
        frequency != nullptr && frequency->is_array() ? 1 : std::max<std::int64_t>(1, c.number_or({"moe_layer_freq"}, 1));
    std::vector<bool> mixtures;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
        mixtures.push_back(layer >= first && (listed.empty() ? layer % every == 0 : listed[static_cast<std::size_t>(layer)] == 1));
    return mixtures;
}

LayerPiece mixture_of(Composer& c, std::int64_t experts, std::int64_t shared_width, std::int64_t chosen) {
    LayerPiece mixture{c.experts(experts, chosen, c.number({"moe_intermediate_size"}))};
    if (shared_width > 0) mixture.add(c.mlp(shared_width));
    return mixture;
}

LayerPiece mixture_of(Composer& c, std::int64_t experts, std::int64_t shared_width) {
    return mixture_of(c, experts, shared_width, c.number({kExpertsOfToken}));
}

void add_layers(Composer& c, const std::vector<bool>& mixtures, const std::string& name, const LayerPiece& mixer, const LayerPiece& mixture,
                const LayerPiece& beside_mixture) {
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    for (const bool moe : mixtures) c.add_layer(name + (moe ? "+moe" : "+mlp"), {mixer, moe ? LayerPiece{beside_mixture, mixture} : dense});
}

}  // namespace mgplan::formats
