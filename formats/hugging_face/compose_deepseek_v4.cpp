// DeepSeek-V4 (configuration_deepseek_v4.py, modeling_deepseek_v4.py): compressed attention with experts between several residual streams.

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

}  // namespace mgplan::formats
