// Latent attention with gates, biases, indexers or experts that no field of ModelSpec describes.

#include <algorithm>

#include <fmt/core.h>

#include "formats/hugging_face/compose_mixtures.hpp"
#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

/// Two attentions and two MLPs alternate in each layer, and experts run in parallel with the last three of them; some experts return their
/// input. transformers' class (LongcatFlashExperts) holds first matrices for these too, which no token passes.
void compose_longcat_flash(Composer& c) {
    // Scales of the latents have no weights, and the class has them whatever these say.
    for (const auto* field : {"mla_scale_q_lora", "mla_scale_kv_lora"}) (void)c.flag({field}, true);
    const LayerPiece attention = c.latent_attention(), mlp = c.mlp(c.number({"ffn_hidden_size", "intermediate_size"}));
    const std::int64_t idle = c.number_or({"zero_expert_num"}, 0);
    const LayerPiece experts = c.experts({.experts = c.number({"n_routed_experts", "num_local_experts"}),
                                          .top_k = c.number({"moe_topk", "num_experts_per_tok"}),
                                          .width = c.number({"expert_ffn_hidden_size", "moe_intermediate_size"}),
                                          .router_bias = c.flag({"router_bias"}, false),
                                          .zero_experts = idle,
                                          .idle_first = idle});
    const std::int64_t head = c.number({"qk_nope_head_dim"}) + c.number({"qk_rope_head_dim"});
    if (const std::int64_t stated = c.number_or({"qk_head_dim"}, head); stated != head)
        c.config().problem("qk_head_dim = {} is not the sum of qk_nope_head_dim and qk_rope_head_dim, {}; give that", stated, head);
    if (idle > 0) c.assume(fmt::format("first matrices of {} experts a layer counted that no token uses, for its class holds them", idle));
    c.add_equal_layers("latent_attention+mlp, twice, beside moe", {c.norm(4), attention, mlp, attention, mlp, experts});
}

/// DeepSeek-V3, but for a norm of the output of each MoE layer's experts.
void compose_axk1(Composer& c) {
    const LayerPiece attention = c.latent_attention(), dense = c.mlp(c.number({"intermediate_size"}));
    const std::int64_t width = c.number({"moe_intermediate_size"});
    const LayerPiece mixture{c.experts(c.number({"n_routed_experts", "num_local_experts"}), c.number({"num_experts_per_tok"}), width),
                             c.mlp(width * c.number({"n_shared_experts"})), c.norm()};
    const std::int64_t every = std::max<std::int64_t>(1, c.number_or({"moe_layer_freq"}, 1));
    const bool listed = c.config().list("mlp_layer_types") != nullptr;
    const std::vector<bool> sparse = c.sparse_layers(c.number_or({"first_k_dense_replace"}, 1));
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool moe = sparse[static_cast<std::size_t>(layer)] && (listed || layer % every == 0);
        c.add_layer(moe ? "latent_attention+moe" : "latent_attention+mlp", {{c.norm(2), attention}, moe ? mixture : LayerPiece{dense}});
    }
}

/// Several residual streams, latent attention with a gate of its output and a trained logit for each head, whose keys an indexer chooses in
/// layers of their own (indexer_types; else in the first, the second and every fourth after it).
void compose_hy_v4(Composer& c) {
    const std::int64_t streams = c.number({"hc_mult"}), width = c.number({"moe_intermediate_size"});
    const LayerPiece attention = c.latent_attention();
    const LayerPiece mixer{c.norm(2), attention, c.linear(c.hidden(), c.model().heads * c.number({"v_head_dim"})),
                           c.values(c.model().heads), c.hyper_connection(streams, 2 * streams, 2, 2)};
    const LayerPiece mixture{c.experts(c.number({"n_routed_experts", "num_local_experts"}), c.number({"num_experts_per_tok"}), width),
                             c.mlp(width * c.number({"n_shared_experts"}))};
    const LayerPiece dense = c.mlp(c.number({"intermediate_size"}));
    const std::vector<std::string> indexers = c.words_of_layers("indexer_types", {"full", "shared"});
    (void)c.words_of_layers("layer_types");
    (void)c.number_or({"index_topk"}, 0);
    const std::vector<bool> sparse = c.sparse_layers(1);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool chooses = indexers.empty() ? layer == 0 || (layer - 1) % 4 == 0 : indexers[at] != "shared";
        c.add_layer(std::string(chooses ? "indexed latent_attention" : "latent_attention") + (sparse[at] ? "+moe" : "+mlp"),
                    LayerPiece{mixer, chooses ? LayerPiece{c.indexer()} : LayerPiece{}, sparse[at] ? mixture : LayerPiece{dense}});
    }
    c.add_beside(c.hyper_connection(streams, streams, 1, 1));
}

/// Latent attention with a gate of its output out of both forms of the queries' latent, whose keys an indexer chooses; norms that a small
/// MLP gates, all but those in front of dense MLPs.
void compose_axk2(Composer& c) {
    refuse_attention_bias(c);
    (void)c.number_or({"index_topk"}, 0);
    (void)c.words_of_layers("layer_types");
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, small = c.number({"gated_norm_rank"});
    const std::int64_t q_rank = c.number({"q_lora_rank"}), kv_rank = c.size({"kv_lora_rank"}), rope = c.number({"qk_rope_head_dim"});
    const std::int64_t nope = c.number({"qk_nope_head_dim"}), v = c.number({"v_head_dim"});
    const LayerPiece gate{c.linear(hidden, small), c.linear(small, hidden)};
    const LayerPiece attention{c.norm(2),
                               c.linear(hidden, q_rank),
                               c.norm_over(q_rank),
                               c.linear(2 * q_rank, heads * (nope + rope + v)),
                               c.linear(hidden, kv_rank + rope),
                               c.norm_over(kv_rank),
                               c.linear(kv_rank, heads * (nope + v)),
                               c.linear(heads * v, hidden),
                               c.indexer()};
    const LayerPiece mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts", "num_experts"}),
                                          c.number_or({"n_shared_experts"}, 0) * c.number({"moe_intermediate_size"}));
    add_layers(c, mixtures_of(c, 1), "latent attention", LayerPiece{attention, gate}, mixture, gate);
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
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, kv_rank = c.size({"kv_lora_rank"});
    const std::int64_t nope = c.number({"qk_nope_head_dim"}), rope = c.number({"qk_rope_head_dim"}), v = c.number({"v_head_dim"});
    const std::int64_t index_heads = c.number({"index_n_heads"}), index_dim = c.number({"index_head_dim"});
    const LayerPiece indexer{c.linear(hidden, index_heads * index_dim),
                             c.linear(hidden, index_dim),
                             c.norm_over(index_dim, true),
                             c.linear(hidden, index_heads),
                             c.norm_over(hidden, true),
                             c.values(2 * index_heads)};
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    const LayerPiece mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts", "num_experts"}),
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
        const LayerPiece attention{c.norm(2), c.linear(hidden, heads * (nope + rope)), c.linear(kv_rank, heads * (rest + v)),
                                   c.linear(heads * v, hidden), c.values(2 * heads)};
        const LayerPiece keys{c.linear(hidden, kv_rank + turned), c.norm_over(kv_rank)};
        const bool own = sources.empty() || sources[at] == layer;
        c.add_layer(std::string("latent attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    LayerPiece{attention, own ? keys : LayerPiece{}, chooses[at] ? indexer : LayerPiece{}, mixtures[at] ? mixture : dense});
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
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    const std::int64_t shared = c.number({"moe_shared_expert_intermediate_size", "shared_experts_intermediate_size"});
    const LayerPiece mixture =
        mixture_of(c, c.number({"n_routed_experts", "num_local_experts"}), shared * c.number_or({"n_shared_experts"}, 0));
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
        const LatentAttention attention{.heads = heads,
                                        .q_lora_rank = q_rank,
                                        .kv_lora_rank = kv_rank,
                                        .qk_nope_head_dim = nope,
                                        .qk_rope_head_dim = rope,
                                        .v_head_dim = v,
                                        .rotary = {},
                                        .latent_norms = true};
        c.add_layer(std::string(window ? "window attention" : "latent attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    LayerPiece{{c.norm(2), c.mixer(attention), c.norm_over(rope), c.linear(hidden, heads)},
                               chooses ? LayerPiece{c.indexer()} : LayerPiece{},
                               mixtures[at] ? mixture : dense});
    }
}

bool has_latent_biases(ConfigParts& parts) {
    return parts.config.boolean_or({"attention_bias"}, false) || parts.config.states_null(kExpertsOfToken);
}

/// DeepSeek V2 and V3 with attention_bias: biases of what leads to the latents and of the output. And V2 as its class has it, whose
/// num_experts_per_tok is None: its weights can be counted, and no token passes it.
void compose_biased_latent(Composer& c) {
    const std::int64_t shared = c.number_or({"n_shared_experts"}, 0), experts = c.number({"n_routed_experts", "num_local_experts"});
    const bool chosen = !c.config().states_null(kExpertsOfToken), biased = c.flag({"attention_bias"}, false);
    if (!chosen)
        c.assume(fmt::format("{} is null: no token can choose experts, and all count as active; give their number to plan the model",
                             kExpertsOfToken));
    LayerPiece mixture =
        mixture_of(c, experts, shared * c.number({"moe_intermediate_size"}), chosen ? c.number({kExpertsOfToken}) : experts);
    const std::string name = biased ? "latent attention with biases" : "latent attention, no choice of experts";
    add_layers(c, mixtures_of(c, 0), name, {c.norm(2), c.latent_attention()}, mixture);
}

}  // namespace mgplan::formats
