// MoE models with latent or compressed attention that no field of ModelSpec describes: LongCat-Flash, DeepSeek-V4, MiniMax M3, the language
// model of Unlimited-OCR, A.X K1, HY V4, Cohere 2 with experts.

#include <algorithm>

#include <fmt/core.h>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

/// A list of words that may go on after the last layer, as in a file that counts layers of multi-token prediction too.
std::vector<std::string> words_from_the_front(Composer& c, std::string_view field) {
    std::vector<std::string> words = c.config().texts(field);
    if (words.empty()) return words;
    if (static_cast<std::int64_t>(words.size()) < c.layers()) {
        c.config().problem("{} has {} entries for {} layers; give one entry per layer", field, words.size(), c.layers());
        return {};
    }
    words.resize(static_cast<std::size_t>(c.layers()));
    return words;
}

/// DeepSeek-V4's attention by layer: layer_types, else compress_ratios, else two layers of far compression and then both kinds in turn.
std::vector<std::string> attention_of_layers(Composer& c) {
    std::vector<std::string> words = words_from_the_front(c, "layer_types");
    const std::vector<std::int64_t> ratios = c.config().integers("compress_ratios", 0, ModelLimits::positions);
    if (words.empty() && !ratios.empty()) {
        if (static_cast<std::int64_t>(ratios.size()) < c.layers())
            c.config().problem("compress_ratios has {} entries for {} layers; give one entry per layer", ratios.size(), c.layers());
        for (const auto ratio : ratios) {
            if (static_cast<std::int64_t>(words.size()) == c.layers()) break;
            if (ratio != 0 && ratio != 4 && ratio != 128)
                c.config().problem("compress_ratios holds {}; the layers of this type have 0, 4 or 128", ratio);
            words.emplace_back(ratio == 0   ? "sliding_attention"
                               : ratio == 4 ? "compressed_sparse_attention"
                                            : "heavily_compressed_attention");
        }
    }
    for (const std::string& word : words) {
        if (word == "sliding_attention" || word == "compressed_sparse_attention" || word == "heavily_compressed_attention") continue;
        c.config().problem(
            "layer_types holds '{}', which no layer of this type is; write sliding_attention, compressed_sparse_attention or "
            "heavily_compressed_attention",
            word.substr(0, 40));
        return {};
    }
    if (!words.empty() || !c.config().problems().empty()) return words;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
        words.emplace_back(layer >= 2 && layer % 2 == 1 ? "compressed_sparse_attention" : "heavily_compressed_attention");
    return words;
}

/// Tokens that one compressed key stands for: compress_rates, in which older fields replace their entry.
std::int64_t rate_of(Composer& c, std::string_view kind, std::string_view older, std::int64_t fallback) {
    std::int64_t rate = fallback;
    if (const Json* rates = c.config().object("compress_rates"); rates != nullptr) {
        JsonReader reader(*rates, c.config().where() + ": compress_rates", c.config().problems());
        rate = reader.integer_or(kind, rate, 1, ModelLimits::positions);
    }
    return std::max<std::int64_t>(1, c.number_or({older}, rate));
}

/// Values of a head that rotary positions turn: partial_rotary_factor, else qk_rope_head_dim, else an eighth
/// (configuration_deepseek_v4.py).
std::int64_t turned_values(Composer& c) {
    const std::int64_t width = c.model().head_dim, stated = c.number_or({"qk_rope_head_dim"}, std::max<std::int64_t>(1, width / 8));
    if (c.config().stated({"partial_rotary_factor"}).empty()) return stated;
    return static_cast<std::int64_t>(static_cast<double>(width) * c.config().real_or({"partial_rotary_factor"}, 0, 0, 1));
}

/// Attention of DeepSeek-V4 for one word of its layer_types.
LayerPiece compressed_attention(Composer& c, const std::string& word) {
    const ModelSpec& model = c.model();
    const std::int64_t groups = c.size({"o_groups"}), width = model.heads * model.head_dim;
    if (groups > 0 && width % groups != 0)
        c.config().problem("o_groups = {} does not divide {} heads of {}; give a divisor of {}", groups, model.heads, model.head_dim,
                           width);
    CompressedAttention attention{.heads = model.heads,
                                  .head_dim = model.head_dim,
                                  .rotary_dim = turned_values(c),
                                  .q_lora_rank = c.size({"q_lora_rank"}),
                                  .output_groups = std::max<std::int64_t>(1, groups),
                                  .output_group_rank = c.size({"o_lora_rank"})};
    if (word == "heavily_compressed_attention") attention.compression_rate = rate_of(c, word, "compress_rate_hca", 128);
    if (word == "compressed_sparse_attention") {
        attention.compression_rate = rate_of(c, word, "compress_rate_csa", 4);
        attention.overlaps = true;
        attention.index_heads = c.size({"index_n_heads"});
        attention.index_head_dim = c.size({"index_head_dim"});
        attention.index_top_k = c.number({"index_topk"});
    }
    return c.mixer(attention, c.number_or({"sliding_window"}, 0));
}

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
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
        c.add_layer("latent_attention+mlp, twice, beside moe", {c.norm(4), attention, mlp, attention, mlp, experts});
}

/// Several residual streams, compressed keys, and experts that a table of words chooses in the first layers.
void compose_deepseek_v4(Composer& c) {
    const std::int64_t streams = c.number({"hc_mult"}), experts = c.number({"n_routed_experts", "num_local_experts"});
    const std::int64_t width = c.number({"moe_intermediate_size", "intermediate_size"});
    const std::int64_t rounds = c.number_or({"hc_sinkhorn_iters"}, 20), chosen = c.number({"num_experts_per_tok"});
    for (const auto* field : {"index_topk", "sliding_window", "n_shared_experts"}) (void)c.number_or({field}, 0);
    c.model().kv_heads = 1;
    c.set_activation({"hidden_act"}, Activation::silu);
    const bool mlp_bias = c.flag({"mlp_bias"}, false);
    const bool streamed =
        streams > 0 && streams <= ModelLimits::residual_streams && rounds > 0 && rounds <= ModelLimits::sinkhorn_iterations;
    if (streamed) c.model().hyper_connections = HyperConnections{.streams = streams, .sinkhorn_iterations = rounds, .learned_head = true};
    const std::vector<std::string> attentions = attention_of_layers(c), routers = words_from_the_front(c, "mlp_layer_types");
    const std::int64_t by_table = c.number_or({"num_hash_layers"}, 3);
    if (!c.config().problems().empty()) return;
    // Typed experts have no biases of shared experts alone.
    const Mixture sizes{.experts = experts, .top_k = chosen, .expert_ffn = width, .shared_ffn = width};
    LayerPiece mixture = c.mixture(sizes);
    if (mlp_bias) mixture = {c.experts(experts, chosen, width), c.mlp(width, true, true)};
    c.model().moe->expert_bias = true;  // in layers without a table that chooses experts (e_score_correction_bias)
    if (c.config().text_or({"scoring_func"}, "sqrtsoftplus") == "sqrtsoftplus")
        c.leave_out("scores of experts as roots of softplus (scoring_func)");
    if (const double limit = c.config().real_or({"swiglu_limit"}, 10, 0, ModelLimits::multiplier); limit > 0)
        c.leave_out(fmt::format("gates and values of MLPs cut at {:g} (swiglu_limit)", limit));
    // Both halves choose from and give to the streams: a weight of each for either way, and one for each pair.
    LayerPiece maps = c.hyper_connection(streams, (2 + streams) * streams, 3, 2), by_words = mixture;
    if (streamed) maps.typed.emplace();  // the model's hyper-connections
    if (by_words.typed) std::get<Mixture>(*by_words.typed->feed_forward).choosing_words = c.model().vocab;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool table = routers.empty() ? layer < by_table : routers[at] == "hash_moe";
        c.add_layer(attentions[at] + (table ? "+moe by words" : "+moe"),
                    {c.norm(2), compressed_attention(c, attentions[at]), maps, table ? by_words : mixture});
    }
    c.add_read_by_layers(c.hyper_connection(streams, streams, 1, 1));
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

/// Cohere 2 with experts: both halves after one norm without a bias.
void compose_cohere2_moe(Composer& c) {
    const bool biased = c.flag({"attention_bias"}, false);
    const std::int64_t width = c.number({"intermediate_size"});
    const std::int64_t shared = c.number_or({"num_shared_experts"}, 0), dense = c.number_or({"prefix_dense_intermediate_size"}, width);
    const LayerPiece mixer{c.norm(), c.attention({.qkv_bias = biased, .output_bias = biased})};
    LayerPiece mixture{c.experts(c.number({"num_experts"}), c.number({"num_experts_per_tok"}), width)};
    if (shared > 0) mixture.add(c.mlp(shared * width));
    (void)c.words_of_layers("layer_types");
    c.model().logit_multiplier = c.config().real_or({"logit_scale"}, 0.0625, 1e-9, ModelLimits::multiplier);  // of its class
    for (const bool sparse : c.sparse_layers(c.number_or({"first_k_dense_replace"}, 0)))
        c.add_layer(sparse ? "attention beside moe" : "attention beside mlp", {mixer, sparse ? mixture : LayerPiece{c.mlp(dense)}});
}

}  // namespace mgplan::formats
