// MoE models whose routers, norms or attention no field of ModelSpec describes.

#include <algorithm>

#include <fmt/core.h>

#include "formats/hugging_face/compose_mixtures.hpp"
#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t experts_of(Composer& c) {
    return c.number({"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"});
}

std::int64_t top_k_of(Composer& c) {
    return c.number({"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"});
}

std::int64_t shared_experts_of(Composer& c) {
    return c.number_or({"num_shared_experts", "n_shared_experts", "moe_num_shared_experts"}, 0);
}

/// Layers of `mixer` and norms, with an MLP or with experts and shared ones; `router_values`: values on top of each router's map. Layers of
/// `chosen` have `more` after their mixer.
void add_sparse_layers(Composer& c, const LayerPiece& mixer, const std::string& name, const std::vector<bool>& sparse,
                       std::int64_t router_values, const std::vector<bool>& chosen = {}, const LayerPiece& more = {}) {
    const Aliases kOwnWidth{"moe_intermediate_size"}, kDenseWidth{"intermediate_size"};
    const std::int64_t experts = experts_of(c), width = c.number(c.config().has(kOwnWidth) ? kOwnWidth : kDenseWidth);
    const std::int64_t shared = c.number_or({"shared_expert_intermediate_size", "shared_intermediate_size"}, shared_experts_of(c) * width);
    LayerPiece mixture{c.experts(experts, top_k_of(c), width)};
    if (shared > 0) mixture.add(c.mlp(shared));
    if (router_values > 0) mixture.add(c.values(router_values));
    for (std::size_t layer = 0; layer < sparse.size(); ++layer) {
        const bool moe = sparse[layer], adds = layer < chosen.size() && chosen[layer];
        const LayerPiece feed_forward = moe ? mixture : LayerPiece{c.mlp(c.number({"intermediate_size"}))};
        c.add_layer(name + (moe ? "+moe" : "+mlp"), {mixer, adds ? more : LayerPiece{}, feed_forward});
    }
}

std::vector<bool> every_layer(Composer& c) {
    return std::vector<bool>(static_cast<std::size_t>(c.layers()), true);
}

}  // namespace

/// AfMoE, Laguna, BEAM and Kolibri: attention with norms of queries and keys, gates and norms as the
/// type has them.
void compose_sparse_decoder(Composer& c) {
    const std::string_view type = c.model().type;
    const std::int64_t heads = c.model().heads, experts = experts_of(c), hidden = c.hidden();
    const bool biased = c.flag({"attention_bias"}, false);
    const bool four_norms = type == "afmoe" || type == "beam" || type == "kolibri1";
    const CountedAttention sizes{.qk_norm = QkNorm::shared_by_heads, .qkv_bias = biased, .output_bias = biased};
    LayerPiece mixer{c.norm(four_norms ? 4 : 2), c.attention(sizes)};
    if (type == "afmoe" || type == "beam") mixer.add(c.linear(hidden, heads * c.model().head_dim));  // gate of the output
    if (type == "beam") mixer.add(c.values(heads));
    if (type == "laguna") mixer.add(c.linear(hidden, c.flag({"gating"}, true) ? heads : heads * c.model().head_dim));
    if (c.flag({"mlp_bias"}, false))
        c.config().problem("mlp_bias = true is not described by any layer of model_type '{}' here; give false", type);
    const bool counts_bias = type == "afmoe" || type == "laguna";
    const std::int64_t first = c.number_or({"num_dense_layers", "first_k_dense_replace"}, 0);
    add_sparse_layers(c, mixer, "attention", c.sparse_layers(first), counts_bias ? experts : 0);
}

/// LayerNorm with biases, and an output layer that may have one.
void compose_phimoe(Composer& c) {
    c.model().normalization = Normalization::layer_norm;
    if (c.flag({"lm_head_bias"}, false) && !c.model().labels) c.add_beside(c.values(c.model().vocab));
    add_sparse_layers(c, {c.layer_norm(2), c.attention_by_fields()}, "attention", every_layer(c), 0);
}

// configuration_glm_moe_dsa.py; Mistral Large 4 has the same fields.
std::vector<bool> layers_with_indexers(ConfigReader& config, std::int64_t layers) {
    std::vector<std::string> words = config.texts("indexer_types");
    const auto* const pattern = config.member("index_topk_pattern", {JsonKind::text, JsonKind::list});
    if (words.empty() && pattern != nullptr && pattern->is_array()) words = config.texts("index_topk_pattern");
    if (words.empty() && pattern != nullptr && pattern->is_string()) {
        for (const char letter : config.text_or({"index_topk_pattern"}, ""))
            words.push_back(letter == 'S' ? "shared" : letter == 'F' ? "full" : std::string(1, letter));
    }
    for (std::size_t at = 0; at < words.size(); ++at) {
        if (words[at] == "full" || (words[at] == "shared" && at > 0)) continue;
        config.problem("indexer_types: entry {} is '{}'; write full, or shared after a layer that is full", at, words[at]);
        words.clear();
    }
    if (!words.empty() && static_cast<std::int64_t>(words.size()) != layers) {
        config.problem("indexer_types has {} entries for {} layers; give one entry per layer", words.size(), layers);
        words.clear();
    }
    const std::int64_t every = config.integer_or({"index_topk_freq"}, 1, 1, ModelLimits::layers);
    const std::int64_t offset = config.integer_or({"index_skip_topk_offset"}, 2, 0, ModelLimits::layers);
    std::vector<bool> own;
    for (std::int64_t layer = 0; layer < layers; ++layer)
        own.push_back(words.empty() ? std::max<std::int64_t>(0, layer - offset + 1) % every == 0
                                    : words[static_cast<std::size_t>(layer)] != "shared");
    return own;
}

bool shares_indexers(ConfigParts& parts) {
    if (parts.config.boolean_or({"attention_bias"}, false)) return true;
    const std::vector<bool> own = layers_with_indexers(parts.config, parts.model.layers);
    return std::find(own.begin(), own.end(), false) != own.end();
}

/// DeepSeek V3.2 and GLM-5: latent attention whose keys an indexer chooses.
void compose_indexed_latent(Composer& c) {
    (void)c.number_or({"index_topk"}, 0);
    (void)c.words_of_layers("layer_types");
    const std::vector<bool> own = layers_with_indexers(c.config(), c.layers());
    const std::vector<bool> sparse = c.sparse_layers(c.number_or({"first_k_dense_replace"}, 3));
    const LayerPiece alone{c.norm(2), c.latent_attention()};
    add_sparse_layers(c, alone, "latent_attention", sparse, 0, own, LayerPiece{c.indexer()});
}

/// Windows with heads, sinks and a base of their own; values narrower than keys.
void compose_mimo_flash(Composer& c) {
    const std::int64_t groups = c.model().kv_heads, v_dim = c.number({"v_head_dim"});
    const std::int64_t window_groups = c.number_or({"swa_num_key_value_heads"}, 2 * groups);
    const bool biased = c.flag({"attention_bias"}, false);
    const std::vector<std::string> types = c.words_of_layers("layer_types", {"full_attention", "sliding_attention"});
    const std::vector<bool> sparse = c.sparse_layers(c.number_or({"first_k_dense_replace"}, 1));
    const std::int64_t width = c.number({"moe_intermediate_size"});
    const LayerPiece mixture = c.experts(experts_of(c), top_k_of(c), width), dense = c.mlp(c.number({"intermediate_size"}));
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool window = !types.empty() && types[at] == "sliding_attention";
        const LayerPiece attention =
            c.attention({.kv_heads = window ? window_groups : groups, .v_head_dim = v_dim, .sinks = window, .qkv_bias = biased});
        c.add_layer(std::string(window ? "window attention" : "attention") + (sparse[at] ? "+moe" : "+mlp"),
                    {c.norm(2), attention, sparse[at] ? mixture : dense});
    }
}

/// Attention with norms of each head, in some layers over blocks of keys that an indexer chooses; experts with one shared expert.
void compose_minimax_m3(Composer& c) {
    std::int64_t heads = c.number({"index_n_heads"}), width = c.number({"index_head_dim"});
    std::vector<std::string> types = c.words_of_layers("layer_types", {"minimax_m3_sparse", "full_attention"});
    if (const Json* nested = c.config().object("sparse_attention_config"); nested != nullptr) {
        JsonReader reader(*nested, c.config().where() + ": sparse_attention_config", c.config().problems());
        heads = reader.integer_or("sparse_num_index_heads", heads, 1, ModelLimits::heads);
        width = reader.integer_or("sparse_index_dim", width, 1, ModelLimits::head_dim);
        const std::vector<std::int64_t> sparse = reader.integers("sparse_attention_freq", 0, 1);
        if (types.empty() && !sparse.empty() && static_cast<std::int64_t>(sparse.size()) != c.layers())
            c.config().problem("sparse_attention_config: sparse_attention_freq has {} entries for {} layers; give one entry per layer",
                               sparse.size(), c.layers());
        for (std::size_t at = 0; c.config().problems().empty() && types.size() < sparse.size(); ++at)
            types.emplace_back(sparse[at] == 1 ? "minimax_m3_sparse" : "full_attention");
    }
    const std::vector<std::int64_t> mixtures = c.config().integers("moe_layer_freq", 0, 1);
    if (!mixtures.empty() && static_cast<std::int64_t>(mixtures.size()) != c.layers())
        c.config().problem("moe_layer_freq has {} entries for {} layers; give one entry per layer", mixtures.size(), c.layers());
    std::vector<std::string> feed_forwards = c.words_of_layers("mlp_layer_types", {"sparse", "dense"});
    const LayerPiece attention = c.attention({.qk_norm = QkNorm::shared_by_heads});
    const LayerPiece indexer{c.linear(c.hidden(), heads * width), c.linear(c.hidden(), width), c.norm_over(width, false, 2)};
    const LayerPiece dense = c.mlp(c.number({"dense_intermediate_size"}));
    const LayerPiece mixture{
        c.experts(c.number({"num_local_experts", "num_experts"}), c.number({"num_experts_per_tok"}), c.number({"intermediate_size"})),
        c.mlp(c.number({"shared_intermediate_size"}))};
    if (!c.config().problems().empty()) return;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool chooses = !types.empty() && types[at] == "minimax_m3_sparse";
        const bool moe = !feed_forwards.empty() ? feed_forwards[at] == "sparse" : mixtures.empty() || mixtures[at] == 1;
        c.add_layer(std::string(chooses ? "block-sparse attention" : "attention") + (moe ? "+moe" : "+mlp"),
                    LayerPiece{{c.norm(2), attention}, chooses ? indexer : LayerPiece{}, moe ? mixture : LayerPiece{dense}});
    }
}

/// DeepSeek-V2's experts with attention that sees a window and also all of the image and the prompt.
void compose_unlimited_ocr(Composer& c) {
    ModelSpec& model = c.model();
    model.head_dim = std::max<std::int64_t>(1, model.hidden / model.heads);  // whatever a file states
    const bool biased = c.flag({"attention_bias"}, false), mlp_biased = c.flag({"mlp_bias"}, false);
    const LayerPiece attention = c.attention({.qkv_bias = biased, .output_bias = biased});
    const std::int64_t width = c.number({"moe_intermediate_size"});
    const std::vector<std::string> types =
        c.words_of_layers("layer_types", {"full_attention", "sliding_attention", "reference_sliding_attention"});
    const std::vector<bool> sparse = c.sparse_layers(c.number_or({"first_k_dense_replace"}, 1));
    const LayerPiece dense = c.mlp(c.number({"intermediate_size"}), true, mlp_biased);
    const LayerPiece mixture{c.experts(c.number({"n_routed_experts", "num_experts"}), c.number({"num_experts_per_tok"}), width),
                             c.mlp(width * c.number({"n_shared_experts"}), true, mlp_biased)};
    if (!c.config().problems().empty()) return;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool full = !types.empty() && types[at] == "full_attention";
        c.add_layer(std::string(full ? "attention" : "window and prompt attention") + (sparse[at] ? "+moe" : "+mlp"),
                    LayerPiece{{c.norm(2), attention}, sparse[at] ? mixture : LayerPiece{dense}});
    }
}

bool has_biased_experts_or_none_chosen(ConfigParts& parts) {
    return !parts.config.has({kExpertsOfToken}) || parts.config.boolean_or({"mlp_bias"}, false);
}

/// DeepSeek-OCR 2 with biases of its MLPs and shared experts, which the routed ones have not; and as its class has it, whose
/// num_experts_per_tok is None, so that no token passes its experts.
void compose_deepseek_ocr2(Composer& c) {
    const bool chosen = c.config().has({kExpertsOfToken}), mlp_bias = c.flag({"mlp_bias"}, false);
    if (!chosen)
        c.assume(fmt::format("{} is not given: no token can choose experts, and all count as active; give their number to plan the model",
                             kExpertsOfToken));
    const std::int64_t experts = c.number({"n_routed_experts", "num_experts"});
    const std::int64_t width = c.number({"moe_intermediate_size"}), shared = c.number({"n_shared_experts"}) * width;
    const LayerPiece attention{c.norm(2), c.attention_by_fields()};
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}), true, mlp_bias)};
    const LayerPiece mixture{{c.experts(experts, chosen ? c.number({kExpertsOfToken}) : experts, width)},
                             shared > 0 ? LayerPiece{c.mlp(shared, true, mlp_bias)} : LayerPiece{}};
    const std::string name = chosen ? "attention+moe, biases of shared experts alone" : "attention+moe, no choice of experts";
    for (const bool moe : c.sparse_layers(c.number_or({"first_k_dense_replace"}, 0)))
        c.add_layer(moe ? name : "attention+mlp", {attention, moe ? mixture : dense});
}

/// Cohere 2 with experts: both halves after one norm without a bias.
void compose_cohere2_moe(Composer& c) {
    const std::int64_t width = c.number({"intermediate_size"});
    const std::int64_t shared = c.number_or({"num_shared_experts"}, 0), dense = c.number_or({"prefix_dense_intermediate_size"}, width);
    const LayerPiece mixer{c.norm(), c.attention_by_fields()};
    LayerPiece mixture{c.experts(c.number({"num_experts"}), c.number({"num_experts_per_tok"}), width)};
    if (shared > 0) mixture.add(c.mlp(shared * width));
    (void)c.words_of_layers("layer_types");
    c.model().logit_multiplier = c.config().real_or({"logit_scale"}, 0.0625, 1e-9, ModelLimits::multiplier);  // of its class
    for (const bool sparse : c.sparse_layers(c.number_or({"first_k_dense_replace"}, 0)))
        c.add_layer(sparse ? "attention beside moe" : "attention beside mlp", {mixer, sparse ? mixture : LayerPiece{c.mlp(dense)}});
}

}  // namespace mgplan::formats
