// Layers with a state along the sequence, of which no layer here computes all: counted from their tensors.

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/hugging_face/compose_mixtures.hpp"
#include "formats/hugging_face/composer.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

bool is_prime(std::int64_t value) {
    if (value < 4) return value > 1;
    if (value % 2 == 0) return false;
    for (std::int64_t divisor = 3; divisor * divisor <= value; divisor += 2) {
        if (value % divisor == 0) return false;
    }
    return true;
}

/// The n-gram tables of Qwen4-Exp (modeling_qwen4_exp.py, Qwen4ExpTextNGramEmbedding): for each layer that has one, numbered from 0, as
/// many tables as heads, each with the next larger prime of rows, together rounded up.
struct NgramTables {
    std::int64_t heads = 0;  ///< in one layer: rows that a token reads
    std::int64_t width = 0;  ///< of a row
    std::vector<std::int64_t> rows;
};

NgramTables ngram_tables(Composer& c, std::int64_t layers, std::int64_t width) {
    // No larger: the search for primes takes their square root.
    constexpr std::int64_t kMostRows = std::int64_t{1} << 31, kMostTables = 4096;
    const std::int64_t size = c.config().integer({"ngram_size"}, 2, 64), each = c.config().integer({"heads_per_ngram"}, 1, kMostTables);
    const std::int64_t base = c.config().integer({"ngram_vocab_size_base"}, 2, kMostRows);
    const std::int64_t divisor = c.config().integer({"make_ngram_vocab_size_divisible_by"}, 1, kMostRows);
    NgramTables tables;
    tables.heads = (size - 1) * each;
    if (!c.config().problems().empty()) return tables;
    if (tables.heads * layers > kMostTables) {
        c.config().problem("ngram_size = {} and heads_per_ngram = {} give {} tables in {}; give fewer than {} in all", size, each,
                           tables.heads, counted(layers, "layer"), kMostTables);
        return tables;
    }
    if (width % tables.heads != 0) {
        c.config().problem("ple_embed_dim = {} is no multiple of {} n-gram heads (ngram_size less one, times heads_per_ngram)", width,
                           tables.heads);
        return tables;
    }
    tables.width = width / tables.heads;
    std::int64_t prime = base - 1;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        std::int64_t rows = 0;
        for (std::int64_t head = 0; head < tables.heads; ++head) {
            do ++prime;
            while (!is_prime(prime));
            rows += prime;
        }
        tables.rows.push_back((rows + divisor - 1) / divisor * divisor);
    }
    return tables;
}

/// Layers that have embeddings of their own, of which the file counts the first as 1.
std::set<std::int64_t> ngram_layers(Composer& c, const std::vector<bool>& delta) {
    std::set<std::int64_t> layers;
    for (const auto number : c.config().integers("ple_layer_ids", 1, ModelLimits::layers)) {
        if (number > c.layers())
            c.config().problem("ple_layer_ids holds {}, which is no layer; give numbers from 1 to {}", number, c.layers());
        else if (!delta[static_cast<std::size_t>(number - 1)])
            c.config().problem("ple_layer_ids holds {}, whose layer is no linear_attention; give such layers alone", number);
        else
            layers.insert(number - 1);
    }
    return layers;
}

/// The indexer of Qwen4-Exp's attention, without which the class cannot be built.
LayerPiece qwen4_indexer(Composer& c) {
    for (const std::string_view field :
         {"indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio"}) {
        if (!c.config().has({field}))
            c.config().problem("{} is not given, and attention of this type always has an indexer; give a whole number", field);
    }
    if (!c.config().problems().empty()) return {};
    const std::int64_t heads = c.config().integer({"indexer_n_heads"}, 1, ModelLimits::heads);
    const std::int64_t keys = c.config().integer({"indexer_kv_heads"}, 1, ModelLimits::heads);
    const std::int64_t width = c.config().integer({"indexer_head_dim"}, 1, ModelLimits::head_dim);
    const std::int64_t budget = c.config().integer({"indexer_budget"}, 1, ModelLimits::positions);
    const std::int64_t ratio = c.config().integer({"indexer_compress_ratio"}, 1, ModelLimits::positions);
    if (!c.config().problems().empty()) return {};
    if (keys != 1) c.config().problem("indexer_kv_heads = {} is another network than this type has; give 1", keys);
    if (budget % ratio != 0)
        c.config().problem("indexer_budget = {} is no multiple of indexer_compress_ratio = {}; give one that is", budget, ratio);
    return {c.linear(c.hidden(), (heads + keys) * width), c.norm_over(width, false, 2)};
}

}  // namespace

/// Qwen4-Exp: gated delta nets and attention whose keys an indexer chooses, between several residual streams that a small MLP mixes, and
/// embeddings of words in a row in some layers.
void compose_qwen4_exp(Composer& c) {
    const std::int64_t hidden = c.hidden(), streams = c.config().integer({"hc_count"}, 2, ModelLimits::residual_streams);
    const std::int64_t wide = streams * hidden, rank = c.number({"hc_lowrank"});
    for (const auto* field : {"seed", "split_ngram_parts"}) (void)c.number_or({field}, 0);
    const std::string gate = c.config().text_or({"output_gate_type"}, "silu");
    if (gate != "silu" && gate != "sigmoid")
        c.config().problem("output_gate_type = '{}' is not known; use silu or sigmoid", gate.substr(0, 40));
    const std::vector<std::string> words = c.words_of_layers("layer_types", {"linear_attention", "indexed_attention", "full_attention"});
    const std::int64_t every = std::max<std::int64_t>(1, c.number_or({"full_attention_interval"}, 4));
    std::vector<bool> delta;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
        delta.push_back(words.empty() ? (layer + 1) % every != 0 : words[static_cast<std::size_t>(layer)] == "linear_attention");
    const std::set<std::int64_t> spelled = ngram_layers(c, delta);
    const std::int64_t width = c.number_or({"ple_embed_dim"}, hidden), taps = c.number({"ple_conv_kernel_size"});
    const NgramTables tables = spelled.empty() ? NgramTables{} : ngram_tables(c, std::ssize(spelled), width);
    const bool attends = std::find(delta.begin(), delta.end(), false) != delta.end();
    const LayerPiece indexer = attends ? qwen4_indexer(c) : LayerPiece{};
    const LayerPiece connections{c.norm_over(wide, false, 2), c.linear(wide, rank, false, 2), c.linear(rank, wide, false, 2),
                                 c.linear(wide, streams, false, 2)};
    const LayerPiece recurrent = c.mixer(c.gated_delta_net());
    const LayerPiece attention{c.attention_by_fields({.qk_norm = QkNorm::shared_by_heads, .output_gate = true})};
    const LayerPiece mixture{c.experts(c.number({"num_experts"}), c.number({kExpertsOfToken}), c.number({"moe_intermediate_size"})),
                             c.mlp(c.number({"shared_expert_intermediate_size"})), c.linear(hidden, 1)};
    if (!c.config().problems().empty()) return;
    auto rows = tables.rows.begin();
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool mixes = delta[static_cast<std::size_t>(layer)];
        LayerPiece own;
        if (spelled.contains(layer))
            own = {c.table(*rows++, tables.width, tables.heads), c.linear(width, wide), c.linear(width, hidden),
                   c.norm_over(wide, false, 3), c.values(wide * taps)};
        c.add_layer(std::string(mixes ? "gated_delta_net" : "indexed attention") + (own.tensors.empty() ? "+moe" : "+moe, rows of words"),
                    LayerPiece{own, connections, mixes ? recurrent : LayerPiece{attention, indexer}, mixture});
    }
    c.without_final_norm();
    c.add_beside({c.norm_over(wide), c.linear(wide, rank), c.linear(rank, wide)});
}

/// Ling 2.5: Kimi delta attention whose gates are whole matrices, and latent attention with a gate for each head.
void compose_bailing_hybrid(Composer& c) {
    refuse_attention_bias(c);
    const std::int64_t hidden = c.hidden(), heads = c.model().heads;
    // The class gives head_dim the width of what is turned once it has taken it for its delta attention.
    const std::int64_t dim = c.number_or({"linear_head_dim"}, c.number({"head_dim"})), width = heads * dim;
    const std::int64_t taps = c.number({"linear_conv_kernel_dim", "short_conv_kernel_size"});
    const LayerPiece delta{c.norm(2),
                           c.linear(hidden, width, false, 5),  // q, k, v, decays, gates
                           c.values(3 * width * taps),
                           c.values(heads + width),
                           c.linear(hidden, heads),
                           c.norm_over(dim),
                           c.linear(width, hidden)};
    const LayerPiece latent{c.norm(2), c.latent_attention(), c.linear(hidden, heads)};
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    const LayerPiece mixture = mixture_of(c, c.number({"num_experts", "num_local_experts"}),
                                          c.number_or({"num_shared_experts", "n_shared_experts"}, 0) * c.number({"moe_intermediate_size"}));
    const std::int64_t group = std::max<std::int64_t>(1, c.number({"layer_group_size"}));
    const std::vector<std::string> words = c.mixers_of_layers();
    const std::vector<bool> mixtures = mixtures_of(c, 2);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool full = words.empty() ? (layer + 1) % group == 0 : !is_recurrent(words[at]);
        c.add_layer(std::string(full ? "latent attention" : "delta attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    LayerPiece{full ? latent : delta, mixtures[at] ? mixture : dense});
    }
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
    const LayerPiece connections = c.hyper_connection(streams, (2 + streams) * streams, 3, 2);
    const LayerPiece delta{c.mixer(KimiDeltaAttention{.heads = heads, .head_dim = dim, .conv_taps = taps})};
    const LayerPiece latent{c.latent_attention()};
    const LayerPiece indexer{c.indexer(), c.values(c.number({"index_kpool"}) * width), c.linear(hidden, width)};
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    const LayerPiece mixture = mixture_of(c, c.number({"n_routed_experts", "num_local_experts"}),
                                          c.number({"n_shared_experts"}) * c.number({"moe_intermediate_size"}));
    const std::vector<std::string> words =
        c.words_of_layers("layer_types", {"linear_attention", "indexed_attention", "full_attention", "deepseek_sparse_attention"});
    const std::vector<bool> chooses = layers_with_indexers(c.config(), c.layers()), mixtures = mixtures_of(c, 3);
    if (!c.config().problems().empty()) return;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool linear = words.empty() ? layer % 4 != 3 : words[at] == "linear_attention";
        const LayerPiece mixer = linear ? delta : LayerPiece{latent, chooses[at] ? indexer : LayerPiece{}};
        c.add_layer(std::string(linear ? "kimi_delta_attention" : "latent_attention") + (mixtures[at] ? "+moe" : "+mlp"),
                    LayerPiece{{c.norm(2), connections}, mixer, mixtures[at] ? mixture : dense});
    }
}

/// Zamba: Mamba whose heads have maps of the state each, and one block of attention and an MLP over stream and embeddings joined, whose
/// weights several layers share.
void compose_zamba(Composer& c) {
    const std::int64_t hidden = c.hidden(), inner = c.number({"mamba_expand"}) * hidden, state = c.number({"mamba_d_state"});
    const std::int64_t taps = c.number({"mamba_d_conv"}), heads = c.config().integer({"n_mamba_heads"}, 1, ModelLimits::heads);
    if (c.config().problems().empty() && inner % heads != 0)
        c.config().problem("n_mamba_heads = {} do not divide mamba_expand * hidden_size = {}; give a divisor", heads, inner);
    const std::int64_t rank = step_rank(c, "mamba_dt_rank");
    const bool conv_bias = c.flag({"mamba_conv_bias"}, true), biased = c.flag({"mamba_proj_bias"}, false);
    // Maps of the state and of steps are divided in equal parts over the heads.
    const LayerPiece mamba{c.norm(),
                           c.linear(hidden, 2 * inner, biased),
                           c.values(inner * (taps + (conv_bias ? 1 : 0))),
                           c.linear(inner, rank + 2 * state),
                           c.linear(rank, inner, true),
                           c.values(inner * (state + 1)),
                           c.linear(inner, hidden, biased)};
    const std::int64_t period = c.config().integer({"attn_layer_period"}, 1, ModelLimits::layers);
    const std::int64_t offset = c.number({"attn_layer_offset"});
    std::vector<std::string> words = c.words_of_layers("layers_block_type", {"mamba", "linear_attention", "hybrid"});
    if (words.empty()) words = c.words_of_layers("layer_types", {"mamba", "linear_attention", "hybrid"});
    constexpr std::int64_t kFirst = 2;  // layer with the block, from which its class counts on
    if (words.empty() && c.layers() <= kFirst)
        c.config().problem(
            "layers_block_type is missing, and the class's own has three layers or more; give one entry per layer, mamba or hybrid");
    const std::int64_t wide = c.number_or({"attention_hidden_size"}, 2 * hidden), queries = c.model().heads, keys = c.model().kv_heads;
    const std::int64_t head_dim = c.number_or({"attention_head_dim", "head_dim"}, 2 * hidden / queries);
    if (!c.config().problems().empty()) return;
    const LayerPiece block{c.norm_over(wide), c.attention({.heads = queries, .kv_heads = keys, .head_dim = head_dim, .in = wide}), c.norm(),
                           c.mlp(c.number({"intermediate_size"}))};
    // transformers shares the block's weights where it shares those of words, and not elsewhere (get_expanded_tied_weights_keys).
    const bool tied = c.flag({"tie_word_embeddings"}, true);
    bool shares = false;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool hybrid = !words.empty()    ? words[static_cast<std::size_t>(layer)] == "hybrid"
                            : layer <= kFirst ? layer == kFirst
                                              : (layer - kFirst - 1) % period == offset;
        shares = shares || hybrid;
        c.add_layer(hybrid ? "mamba of several heads behind a shared block" : "mamba of several heads",
                    hybrid ? LayerPiece{mamba, {c.linear(hidden, hidden)}, tied ? LayerPiece{} : block} : mamba);
    }
    c.model().position = PositionEmbedding::none;
    if (shares && !tied)
        c.assume("a block of attention of its own for each layer that has one, as transformers builds them without tied embeddings");
    if (!shares || !tied) return;
    c.add_beside(block);
}

namespace {

/// Python's round-up of hidden * factor (configuration_xlstm.py), and without `multiple` its int().
std::int64_t xlstm_width(Composer& c, std::string_view field, double usual, std::int64_t multiple) {
    const double width = static_cast<double>(c.hidden()) * c.config().real_or({field}, usual, 0, 1e3);
    const auto step = static_cast<double>(multiple);
    const double rounded = multiple > 0 ? std::floor((width + step - 1) / step) * step : width;
    if (rounded < 1) c.config().problem("{} makes {:g} columns out of hidden_size = {}; give a larger one", field, rounded, c.hidden());
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(rounded));
}

}  // namespace

/// xLSTM (arXiv 2405.04517): cells with a matrix of memory for each head, a norm of each head, a gate of the output.
void compose_xlstm(Composer& c) {
    const std::int64_t hidden = c.hidden(), heads = c.config().integer({"num_heads"}, 1, ModelLimits::heads);
    const bool biased = c.flag({"use_bias"}, false);
    if (const std::int64_t width = c.number_or({"embedding_dim"}, hidden); width != hidden)
        c.config().problem("embedding_dim = {} differs from hidden_size = {}; no layer here has embeddings of another width", width,
                           hidden);
    if (const std::int64_t blocks = c.number_or({"num_blocks"}, c.layers()); blocks != c.layers())
        c.config().problem("num_blocks = {} differs from num_hidden_layers = {}; give one of them", blocks, c.layers());
    (void)c.flag({"add_out_norm"}, true);  // transformers has the norm whatever it says
    for (const auto* field : {"gate_soft_cap", "output_logit_soft_cap", "eps"})
        (void)c.config().real_or({field}, 0, 0, ModelLimits::multiplier);
    if (const std::string mode = c.config().text_or({"weight_mode"}, "single"); mode != "single" && mode != "fused")
        c.config().problem("weight_mode = '{}' is not known; use single or fused", mode.substr(0, 40));
    const std::int64_t multiple = c.config().integer({"ffn_round_up_to_multiple_of"}, 1, ModelLimits::ffn);
    const std::int64_t keys = xlstm_width(c, "qk_dim_factor", 0.5, 0), values = xlstm_width(c, "v_dim_factor", 1, 0);
    const std::int64_t width = xlstm_width(c, "ffn_proj_factor", 2.667, multiple);
    if (c.config().problems().empty() && values % heads != 0)
        c.config().problem("num_heads = {} do not divide {} values of v_dim_factor; give a divisor", heads, values);
    const LayerPiece layer{c.norm_over(hidden, biased, 2),   c.linear(hidden, keys, biased, 2), c.linear(hidden, values, biased, 2),
                           c.linear(hidden, heads, true, 2), c.norm_over(values, biased),       c.linear(values, hidden, biased),
                           c.mlp(width, true, biased)};
    c.add_equal_layers("mLSTM+mlp", layer);
    c.model().position = PositionEmbedding::none;
}

}  // namespace mgplan::formats
