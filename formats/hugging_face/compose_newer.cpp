// Mixtures of transformers 5 whose attention, norms or routers no field describes: counted from their parts.

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/core.h>

#include "formats/hugging_face/composer.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChosen = "num_experts_per_tok";

LayerPart norm_of(std::int64_t width, bool biased = false) {
    return Composer::part("norm", {{"width", width}, {"bias", biased ? 1 : 0}});
}

void refuse_attention_bias(Composer& c) {
    if (c.flag({"attention_bias"}, false))
        c.config().problem("attention_bias = true is not described by any layer of model_type '{}' here; give false", c.model().type);
}

/// Which layers are mixtures: mlp_layer_types, else from first_k_dense_replace on, of which moe_layer_freq takes every n-th, or lists them.
std::vector<bool> mixtures_of(Composer& c, std::int64_t first_fallback) {
    const std::int64_t first = c.number_or({"first_k_dense_replace"}, first_fallback);
    if (const Json* stated = c.config().list("mlp_layer_types"); stated != nullptr) return c.sparse_layers(first);
    const Json* frequency = c.config().member("moe_layer_freq", {JsonKind::number, JsonKind::list});
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

/// Routed experts and shared ones as one MLP.
Parts mixture_of(Composer& c, std::int64_t experts, std::int64_t shared_width, std::int64_t chosen) {
    Parts parts{c.experts(experts, chosen, c.number({"moe_intermediate_size"}))};
    if (shared_width > 0) parts.push_back(c.mlp(shared_width));
    return parts;
}
Parts mixture_of(Composer& c, std::int64_t experts, std::int64_t shared_width) {
    return mixture_of(c, experts, shared_width, c.number({kChosen}));
}

void add_layers(Composer& c, const std::vector<bool>& mixtures, const std::string& name, const Parts& mixer, const Parts& mixture,
                const Parts& beside_mixture = {}) {
    const Parts dense{c.mlp(c.number({"intermediate_size"}))};
    for (const bool moe : mixtures)
        c.add_layer(name + (moe ? "+moe" : "+mlp"), joined({mixer, moe ? joined({beside_mixture, mixture}) : dense}));
}

}  // namespace

/// Latent attention with a gate of its output out of both forms of the queries' latent, whose keys an indexer chooses; norms that a small
/// MLP gates, all but those in front of dense MLPs.
void compose_axk2(Composer& c) {
    refuse_attention_bias(c);
    (void)c.number_or({"index_topk"}, 0);
    (void)c.words_of_layers("layer_types");
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, small = c.number({"gated_norm_rank"});
    const std::int64_t q_rank = c.number({"q_lora_rank"}), kv_rank = c.number({"kv_lora_rank"}), rope = c.number({"qk_rope_head_dim"});
    const std::int64_t nope = c.number({"qk_nope_head_dim"}), v = c.number({"v_head_dim"});
    const Parts gate{c.linear(hidden, small), c.linear(small, hidden)};
    const Parts attention{c.norm(2),
                          c.linear(hidden, q_rank),
                          norm_of(q_rank),
                          c.linear(2 * q_rank, heads * (nope + rope + v)),
                          c.linear(hidden, kv_rank + rope),
                          norm_of(kv_rank),
                          c.linear(kv_rank, heads * (nope + v)),
                          c.linear(heads * v, hidden),
                          c.indexer()};
    const Parts mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts", "num_experts"}),
                                     c.number_or({"n_shared_experts"}, 0) * c.number({"moe_intermediate_size"}));
    add_layers(c, mixtures_of(c, 1), "latent attention", joined({attention, gate}), mixture, gate);
}

/// Experts of queries and outputs beside shared keys and values, and a bias of what either mixture gives.
void compose_jetmoe(Composer& c) {
    const std::int64_t hidden = c.hidden(), width = c.model().kv_heads * c.model().head_dim;
    const std::int64_t experts = c.number({"num_local_experts"}), top_k = c.number({"num_experts_per_tok"});
    c.model().heads = std::min(c.model().kv_heads * std::max<std::int64_t>(1, top_k), ModelLimits::heads);  // configuration_jetmoe.py
    const Parts layer{c.norm(2),
                      c.linear(hidden, 2 * width),
                      c.experts(experts, top_k, width, false),
                      c.values(hidden),
                      c.experts(experts, top_k, c.number({"intermediate_size"})),
                      c.values(hidden)};
    for (std::int64_t i = 0; i < c.layers(); ++i) c.add_layer("attention of experts+moe", layer);
}

/// Ling 2.5: Kimi delta attention whose gates are whole matrices, and latent attention with a gate for each head.
void compose_bailing_hybrid(Composer& c) {
    refuse_attention_bias(c);
    const std::int64_t hidden = c.hidden(), heads = c.model().heads;
    // The class gives head_dim the width of what is turned once it has taken it for its delta attention.
    const std::int64_t dim = c.number_or({"linear_head_dim"}, c.number({"head_dim"})), width = heads * dim;
    const std::int64_t taps = c.number({"linear_conv_kernel_dim", "short_conv_kernel_size"});
    const Parts delta{c.norm(2),
                      c.linear(hidden, width, false, 5),  // q, k, v, decays, gates
                      c.values(3 * width * taps),
                      c.values(heads + width),
                      c.linear(hidden, heads),
                      norm_of(dim),
                      c.linear(width, hidden)};
    const Parts latent{c.norm(2), c.latent_attention(), c.linear(hidden, heads)};
    const Parts dense{c.mlp(c.number({"intermediate_size"}))};
    const Parts mixture = mixture_of(c, c.number({"num_experts", "num_local_experts"}),
                                     c.number_or({"num_shared_experts", "n_shared_experts"}, 0) * c.number({"moe_intermediate_size"}));
    const std::int64_t group = std::max<std::int64_t>(1, c.number({"layer_group_size"}));
    const std::vector<std::string> words = c.mixers_of_layers();
    const std::vector<bool> mixtures = mixtures_of(c, 2);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool full = words.empty() ? (layer + 1) % group == 0 : !is_recurrent(words[at]);
        c.add_layer(std::string(full ? "latent attention" : "delta attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    joined({full ? latent : delta, mixtures[at] ? mixture : dense}));
    }
}

namespace {

/// no_rope_layers: 1 where positions turn a part of each head, 0 where they do not (every no_rope_layer_interval-th).
std::vector<bool> turning_layers(Composer& c) {
    std::vector<std::int64_t> listed = c.config().integers("no_rope_layers", 0, 1);
    if (!listed.empty() && static_cast<std::int64_t>(listed.size()) != c.layers()) {
        c.config().problem("no_rope_layers has {} entries for {} layers; give one entry per layer", listed.size(), c.layers());
        listed.clear();
    }
    const std::int64_t every = std::max<std::int64_t>(1, c.number_or({"no_rope_layer_interval"}, 4));
    std::vector<bool> turns;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
        turns.push_back(listed.empty() ? (layer + 1) % every != 0 : listed[static_cast<std::size_t>(layer)] == 1);
    return turns;
}

}  // namespace

/// Latent attention whose queries have no latent, with scores scaled by trained values of each head and position, an indexer in some
/// layers, and keys that some layers take over. Without positions what they turn elsewhere is a part like the rest.
void compose_mistral_large4(Composer& c) {
    refuse_attention_bias(c);
    (void)c.number_or({"index_topk"}, 0);
    (void)c.words_of_layers("layer_types");
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, kv_rank = c.number({"kv_lora_rank"});
    const std::int64_t nope = c.number({"qk_nope_head_dim"}), rope = c.number({"qk_rope_head_dim"}), v = c.number({"v_head_dim"});
    const std::int64_t index_heads = c.number({"index_n_heads"}), index_dim = c.number({"index_head_dim"});
    const Parts indexer{c.linear(hidden, index_heads * index_dim),
                        c.linear(hidden, index_dim),
                        norm_of(index_dim, true),
                        c.linear(hidden, index_heads),
                        norm_of(hidden, true),
                        c.values(2 * index_heads)};
    const Parts dense{c.mlp(c.number({"intermediate_size"}))};
    const Parts mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts", "num_experts"}),
                                     c.number_or({"n_shared_experts"}, 0) * c.number({"moe_intermediate_size"}));
    const std::vector<bool> mixtures = mixtures_of(c, 1), chooses = layers_with_indexers(c.config(), c.layers()), turns = turning_layers(c);
    std::vector<std::int64_t> sources = c.config().integers("kv_source_layers", 0, ModelLimits::layers);
    if (!sources.empty() && static_cast<std::int64_t>(sources.size()) != c.layers()) {
        c.config().problem("kv_source_layers has {} entries for {} layers; give one entry per layer", sources.size(), c.layers());
        sources.clear();
    }
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const std::int64_t turned = turns[at] ? rope : 0, rest = nope + rope - turned;
        const Parts attention{c.norm(2), c.linear(hidden, heads * (nope + rope)), c.linear(kv_rank, heads * (rest + v)),
                              c.linear(heads * v, hidden), c.values(2 * heads)};
        const Parts keys{c.linear(hidden, kv_rank + turned), norm_of(kv_rank)};
        const bool own = sources.empty() || sources[at] == layer;
        c.add_layer(std::string("latent attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    joined({attention, own ? keys : Parts{}, chooses[at] ? indexer : Parts{}, mixtures[at] ? mixture : dense}));
    }
}

namespace {

/// A size of one layer of dots.note: of per_layer_config; in layers with a window also swa_NAME, with a default of its own.
std::int64_t size_of_layer(Composer& c, std::int64_t layer, bool window, const std::string& name, std::int64_t window_default) {
    if (const Json* const own = c.config_of_layer(layer); own != nullptr && own->contains(name)) {
        JsonReader reader(*own, fmt::format("{}: per_layer_config: {}", c.config().where(), layer), c.config().problems());
        return reader.integer(name, 0, ModelLimits::part_size);
    }
    return window ? c.number_or({"swa_" + name}, window_default) : c.number({name});
}

}  // namespace

/// Latent attention with a gate for each head and a norm of the part of keys that is turned; heads and ranks of their own in layers with a
/// window; an indexer in the others.
void compose_dots3_note(Composer& c) {
    refuse_attention_bias(c);
    (void)c.number_or({"index_topk"}, 0);
    const std::int64_t hidden = c.hidden();
    const bool canonical = c.config().object("per_layer_config") != nullptr;
    const bool windows = c.flag({"use_sliding_window"}, true);
    const bool stated = !c.config().stated({"use_dsa"}).empty();
    const bool sparse = c.flag({"use_dsa"}, true);
    const std::vector<std::string> words =
        c.words_of_layers("layer_types", {"full_attention", "sliding_attention", "indexed_attention", "deepseek_sparse_attention"});
    const std::vector<bool> mixtures = mixtures_of(c, 1);
    const Parts dense{c.mlp(c.number({"intermediate_size"}))};
    const std::int64_t shared = c.number({"moe_shared_expert_intermediate_size", "shared_experts_intermediate_size"});
    const Parts mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts"}), shared * c.number_or({"n_shared_experts"}, 0));
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool window = words.empty() ? windows && layer >= 2 && layer % 4 != 1 : words[at] == "sliding_attention";
        const bool by_word = !words.empty() && canonical && !stated;  // else use_dsa says what the other layers are
        const bool chooses = !window && (by_word ? words[at] != "full_attention" : sparse);
        const auto size = [&](const std::string& name, std::int64_t fallback) { return size_of_layer(c, layer, window, name, fallback); };
        const std::int64_t heads = size("num_attention_heads", 64), q_rank = size("q_lora_rank", 1024),
                           kv_rank = size("kv_lora_rank", 1024);
        const std::int64_t nope = size("qk_nope_head_dim", 192), v = size("v_head_dim", 128), width = window ? size("head_dim", 256) : 0;
        const std::int64_t rope = size("qk_rope_head_dim", width - nope);
        LayerPart attention = Composer::part("latent_attention", {{"heads", heads},
                                                                  {"q_lora_rank", q_rank},
                                                                  {"kv_lora_rank", kv_rank},
                                                                  {"qk_nope", nope},
                                                                  {"qk_rope", rope},
                                                                  {"v_head_dim", v}});
        c.add_layer(std::string(window ? "window attention" : "latent attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    joined({{c.norm(2), std::move(attention), norm_of(rope), c.linear(hidden, heads)},
                            chooses ? Parts{c.indexer()} : Parts{},
                            mixtures[at] ? mixture : dense}));
    }
}

/// Short convolutions of keys, values and both halves' outputs, biases by distance in place of positions, a norm of the embeddings, and
/// scales of what MLPs and routers give.
void compose_inkling(Composer& c) {
    const std::int64_t hidden = c.hidden(), taps = c.number({"conv_kernel_size", "sconv_kernel_size"}), distances = c.number({"d_rel"});
    std::vector<std::int64_t> listed = c.config().integers("local_layer_ids", 0, ModelLimits::layers);
    const bool by_list = c.config().list("local_layer_ids") != nullptr;
    const std::vector<std::string> words = c.words_of_layers("layer_types", {"hybrid", "hybrid_sliding"});
    const std::int64_t first = c.number_or({"dense_mlp_idx"}, 0), experts = c.number({"n_routed_experts", "num_local_experts"});
    const std::vector<bool> mixtures = c.config().list("mlp_layer_types") != nullptr ? c.sparse_layers(0) : mixtures_of(c, first);
    // With dense_intermediate_size the other width is the experts'.
    const std::int64_t stated = c.number_or({"dense_intermediate_size"}, 0);
    const std::int64_t width = stated > 0 ? c.number({"intermediate_size"}) : c.number({"moe_intermediate_size"});
    const std::int64_t shared = c.number({"n_shared_experts"});
    LayerPart routed = c.experts(experts, c.number({"num_experts_per_tok"}), width);
    routed.sizes["zero_experts"] = shared;  // the router scores them too
    const Parts mixture{std::move(routed), c.mlp(shared * width), c.values(1)};
    const Parts dense{c.mlp(stated > 0 ? stated : c.number({"intermediate_size"})), c.values(1)};
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool local = !words.empty() ? words[at] == "hybrid_sliding"
                           : by_list      ? std::find(listed.begin(), listed.end(), layer) != listed.end()
                                          : (layer + 1) % 6 != 0;
        const auto size = [&](std::string_view own, std::string_view of_window) { return c.number({local ? of_window : own}); };
        const std::int64_t heads = size("num_attention_heads", "swa_num_attention_heads"), dim = size("head_dim", "swa_head_dim");
        const std::int64_t groups = size("num_key_value_heads", "swa_num_key_value_heads");
        const std::int64_t extent = local ? c.number({"sliding_window_size", "sliding_window"}) : c.number({"rel_extent"});
        c.add_layer(
            std::string(local ? "window attention" : "attention") + (mixtures[at] ? "+moe" : "+mlp"),
            joined({{c.norm(2), c.attention({{"heads", heads}, {"kv_heads", groups}, {"head_dim", dim}, {"qk_norm", 1}}),
                     c.linear(hidden, heads * distances), c.values(distances * extent), c.values((2 * groups * dim + 2 * hidden) * taps)},
                    mixtures[at] ? mixture : dense}));
    }
    c.add_beside(c.norm());
}

/// ERNIE 4.5 VL: beside the experts of words those of pictures, which no word passes.
void compose_ernie_vl(Composer& c) {
    if (c.flag({"use_bias"}, false))
        c.config().problem("use_bias = true is not described by any layer of model_type '{}' here; give false", c.model().type);
    std::vector<std::int64_t> widths = c.config().integers("moe_intermediate_size", 1, ModelLimits::ffn);
    if (widths.empty()) widths = {1536, 512};  // of its class
    if (widths.size() != 2) {
        c.config().problem("moe_intermediate_size has {} entries; give two, for words and for pictures", widths.size());
        return;
    }
    const std::int64_t experts = c.number({"moe_num_experts"}), top_k = c.number({"moe_k"});
    LayerPart pictures = c.experts(experts, top_k, widths[1]);
    pictures.sizes["idle"] = 1;
    const Parts mixture{c.experts(experts, top_k, widths[0]), c.values(experts), std::move(pictures), c.values(experts),
                        c.mlp(c.number({"moe_num_shared_experts"}) * widths[0])};
    add_layers(c, c.sparse_layers(1), "attention", {c.norm(2), c.attention()}, mixture);
}

namespace {

/// moe_layers_enum: numbers of layers as a list, or as one text with commas between them; nothing: not stated.
std::optional<std::set<std::int64_t>> layers_listed(ConfigReader& config, std::string_view field) {
    const Json* const stated = config.member(field, {JsonKind::text, JsonKind::list});
    if (stated == nullptr) return std::nullopt;
    const std::vector<std::int64_t> numbers = stated->is_string()
                                                  ? read_integer_list(config.problems(), fmt::format("{}: {}", config.where(), field),
                                                                      stated->get_ref<const std::string&>(), 0, ModelLimits::layers)
                                                  : config.integers(field, 0, ModelLimits::layers);
    const std::set<std::int64_t> layers(numbers.begin(), numbers.end());
    return layers;
}

}  // namespace

/// Step 3.5: norms of queries and keys, a gate for each head, more heads in layers with a window.
void compose_step35(Composer& c) {
    refuse_attention_bias(c);
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, layers = c.layers();
    const std::int64_t groups = c.number_or({"num_attention_groups"}, c.model().kv_heads);
    // Lists go on for the layers of multi-token prediction.
    std::vector<std::string> words = c.config().texts("layer_types"), kinds = c.config().texts("mlp_layer_types");
    for (auto* const list : {&words, &kinds}) {
        if (!list->empty() && static_cast<std::int64_t>(list->size()) < layers) {
            c.config().problem("layer_types or mlp_layer_types has {} entries for {} layers; give one entry per layer", list->size(),
                               layers);
            return;
        }
    }
    std::int64_t window_heads = c.number_or({"num_sliding_attention_heads"}, heads);
    if (const Json* other = c.config().object("attention_other_setting"); other != nullptr) {
        JsonReader reader(*other, c.config().where() + ": attention_other_setting", c.config().problems());
        window_heads = reader.integer_or("num_attention_heads", heads, 1, ModelLimits::heads);
    }
    const auto mixtures = layers_listed(c.config(), "moe_layers_enum");
    (void)c.number_or({"query_pre_attn_scalar"}, 0);
    const Parts dense{c.mlp(c.number({"intermediate_size"}))};
    const Parts mixture{c.experts(c.number({"n_routed_experts", "moe_num_experts", "num_local_experts"}),
                                  c.number({"num_experts_per_tok", "moe_top_k"}), c.number({"moe_intermediate_size"})),
                        c.mlp(c.number({"share_expert_dim", "share_expert_dims"}))};
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool window = !words.empty() && words[at] == "sliding_attention";
        const bool moe = !kinds.empty() ? kinds[at] == "sparse" : mixtures ? mixtures->contains(layer) : layer >= 3;
        const std::int64_t own = window ? window_heads : heads;
        c.add_layer(std::string(window ? "window attention" : "attention") + (moe ? "+moe" : "+mlp"),
                    joined({{c.norm(2), c.attention({{"heads", own}, {"kv_heads", groups}, {"qk_norm", 1}}), c.linear(hidden, own)},
                            moe ? mixture : dense}));
    }
}

/// Queries and keys behind two convolutions, values of which half are those of the place before, scales and biases of the residual path,
/// and a router that is an MLP and sees that of the layer before.
void compose_zaya(Composer& c) {
    refuse_attention_bias(c);
    (void)c.config().texts("layer_types");
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, groups = c.model().kv_heads, dim = c.model().head_dim;
    const std::int64_t channels = (heads + groups) * dim, small = c.number({"router_hidden_size"}), experts = c.number({"num_experts"});
    const std::int64_t apart = c.number({"cca_time0"}), together = c.number({"cca_time1"});
    LayerPart routed = c.experts(experts, c.number({"num_experts_per_tok"}), c.number({"moe_intermediate_size"}));
    routed.sizes["router"] = 0;
    const Parts layer{c.norm(2),
                      c.attention(),
                      c.values(channels * (apart + 1) + channels * (dim * together + 1) + groups),
                      c.values(8 * hidden),
                      c.linear(hidden, small, true),
                      norm_of(small),
                      c.linear(small, small, true, 2),
                      c.linear(small, experts + 1),
                      std::move(routed)};
    for (std::int64_t i = 0; i < c.layers(); ++i) c.add_layer("attention+moe", i == 0 ? layer : joined({layer, {c.values(small)}}));
    c.add_beside(c.values(2 * hidden));
    if (c.flag({"lm_head_bias"}, false) && !c.model().labels) c.add_beside(c.values(c.model().vocab));
}

bool has_latent_biases(ConfigParts& parts) {
    return parts.config.boolean_or({"attention_bias"}, false) || parts.config.states_null(kChosen);
}

/// DeepSeek V2 and V3 with attention_bias: biases of what leads to the latents and of the output. And V2 as its class has it, whose
/// num_experts_per_tok is None: its weights can be counted, and no token passes it.
void compose_biased_latent(Composer& c) {
    const std::int64_t shared = c.number_or({"n_shared_experts"}, 0), experts = c.number({"n_routed_experts", "num_local_experts"});
    const bool chosen = !c.config().states_null(kChosen), biased = c.flag({"attention_bias"}, false);
    if (!chosen)
        c.assume(
            fmt::format("{} is null: no token can choose experts, and all count as active; give their number to plan the model", kChosen));
    Parts mixture = mixture_of(c, experts, shared * c.number({"moe_intermediate_size"}), chosen ? c.number({kChosen}) : experts);
    const std::string name = biased ? "latent attention with biases" : "latent attention, no choice of experts";
    add_layers(c, mixtures_of(c, 0), name, {c.norm(2), c.latent_attention()}, mixture);
}

/// GLM-5.3 Flash: Kimi delta attention, and latent attention without positions whose keys an indexer chooses out of means of several,
/// between several residual streams that no weights bring together at the end.
void compose_glm5_next(Composer& c) {
    refuse_attention_bias(c);
    for (const auto* field : {"index_topk", "hc_sinkhorn_iters"}) (void)c.number_or({field}, 0);
    std::int64_t heads = c.number({"linear_num_heads"}), dim = c.number({"linear_head_dim"}), taps = c.number({"linear_conv_kernel_dim"});
    if (const Json* nested = c.config().object("linear_attn_config"); nested != nullptr) {
        JsonReader reader(*nested, c.config().where() + ": linear_attn_config", c.config().problems());
        heads = reader.integer_or("num_heads", heads, 1, ModelLimits::heads);
        dim = reader.integer_or("head_dim", dim, 1, ModelLimits::head_dim);
        taps = reader.integer_or("short_conv_kernel_size", taps, 1, ModelLimits::head_dim);
    }
    const std::int64_t hidden = c.hidden(), streams = c.number({"hc_mult"}), width = c.number({"index_head_dim"});
    const LayerPart connections =
        Composer::part("hyper_connection", {{"streams", streams}, {"maps", (2 + streams) * streams}, {"scales", 3}, {"copies", 2}});
    const Parts delta{Composer::part("kimi_delta_attention", {{"heads", heads}, {"head_dim", dim}, {"conv", taps}})};
    const Parts latent{c.latent_attention()};
    const Parts indexer{c.indexer(), c.values(c.number({"index_kpool"}) * width), c.linear(hidden, width)};
    const Parts dense{c.mlp(c.number({"intermediate_size"}))};
    const Parts mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts"}),
                                     c.number({"n_shared_experts"}) * c.number({"moe_intermediate_size"}));
    const std::vector<std::string> words =
        c.words_of_layers("layer_types", {"linear_attention", "indexed_attention", "full_attention", "deepseek_sparse_attention"});
    const std::vector<bool> chooses = layers_with_indexers(c.config(), c.layers()), mixtures = mixtures_of(c, 3);
    if (!c.config().problems().empty()) return;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool linear = words.empty() ? layer % 4 != 3 : words[at] == "linear_attention";
        const Parts mixer = linear ? delta : joined({latent, chooses[at] ? indexer : Parts{}});
        c.add_layer(std::string(linear ? "kimi_delta_attention" : "latent_attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    joined({{c.norm(2), connections}, mixer, mixtures[at] ? mixture : dense}));
    }
}

/// Inkling 2: what each half reads is chosen out of the outputs of blocks of layers before it; gates, logits of sinks and limits of queries
/// and of biases by distance, each of which is trained; in layers that see all convolutions whose weights follow from the input.
void compose_inkling2(Composer& c) {
    const std::int64_t hidden = c.hidden(), taps = c.number({"conv_kernel_size", "sconv_kernel_size"}), distances = c.number({"d_rel"});
    const std::vector<std::string> words = c.words_of_layers("layer_types", {"hybrid", "hybrid_sliding"});
    const LayerPart mixture = c.experts(c.number({"n_routed_experts", "num_local_experts"}), c.number({"num_experts_per_tok"}),
                                        c.number({"moe_intermediate_size"}));
    (void)c.number_or({"n_layers_per_attn_res_block"}, 0);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool local = words.empty() ? (layer + 1) % 6 != 0 : words[static_cast<std::size_t>(layer)] == "hybrid_sliding";
        const auto size = [&](std::string_view own, std::string_view of_window) { return c.number({local ? of_window : own}); };
        const std::int64_t heads = size("num_attention_heads", "swa_num_attention_heads"), dim = size("head_dim", "swa_head_dim");
        const std::int64_t groups = size("num_key_value_heads", "swa_num_key_value_heads");
        const std::int64_t extent = size("rel_extent", "sliding_window_size");
        // Queries over the outputs of blocks: one for each half, and in layers that see all one each for queries, keys and values.
        const std::int64_t queries = 1 + (layer == 0 ? 0 : local ? 1 : 3);
        const Parts gates{c.linear(hidden, heads * dim), c.linear(hidden, heads), c.linear(hidden, heads * distances),
                          c.values(heads * (dim + distances) + distances * extent + (2 * hidden + 2 * groups * dim) * taps)};
        const Parts more = local ? Parts{} : Parts{c.linear(hidden, groups * taps, false, 2)};
        c.add_layer(local ? "window attention+moe" : "attention+moe",
                    joined({{c.norm(local ? 2 : 4), c.attention({{"heads", heads}, {"kv_heads", groups}, {"head_dim", dim}})},
                            gates,
                            more,
                            {c.values(queries * hidden), mixture}}));
    }
    c.add_beside(c.norm());              // of the embeddings
    c.add_beside(c.values(c.hidden()));  // the query of what the output layer reads
}

/// HRM: two stacks of layers that take turns several times, so that a token passes each layer more than once; norms without weights, a gate
/// of attention's output, and the state that the second stack begins with.
void compose_hrm_text(Composer& c) {
    // num_hidden_layers counts each pass through a stack where num_layers_per_stack is stated (configuration_hrm_text.py).
    const std::int64_t stack = std::min(c.number_or({"num_layers_per_stack"}, c.layers()), ModelLimits::layers / 2);
    c.model().layers = 2 * stack;
    for (const auto* field : {"H_cycles", "L_cycles"}) (void)c.number_or({field}, 0);
    (void)c.config().integers("L_bp_cycles", 0, ModelLimits::layers);
    (void)c.config().real_or({"embedding_scale"}, 0, 0, ModelLimits::multiplier);
    (void)c.flag({"prefix_lm"}, true);
    const bool biased = c.flag({"attention_bias"}, false);
    const std::int64_t heads = c.model().heads, width = heads * c.model().head_dim;
    const Parts layer{c.attention({{"kv_heads", heads}, {"qkv_bias", biased ? 1 : 0}, {"output_bias", biased ? 1 : 0}}),
                      c.linear(c.hidden(), width, biased), c.mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false))};
    for (std::int64_t i = 0; i < c.layers(); ++i) c.add_layer("attention+mlp, several times", layer);
    c.without_final_norm();
    c.add_beside(c.values(c.hidden()));
    c.leave_out("layers that a token passes several times");
    c.leave_out("norms without weights");
}

}  // namespace mgplan::formats
