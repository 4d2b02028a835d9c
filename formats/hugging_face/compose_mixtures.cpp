// MoE models with attention, convolutions or gates of their own: counted from their tensors.

#include "formats/hugging_face/compose_mixtures.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/core.h>

#include "formats/hugging_face/composer.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

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

/// Experts of queries and outputs with shared keys and values, and a bias of the output of both sets of experts.
void compose_jetmoe(Composer& c) {
    const std::int64_t hidden = c.hidden(), width = c.model().kv_heads * c.model().head_dim;
    const std::int64_t experts = c.number({"num_local_experts"}), top_k = c.number({"num_experts_per_tok"});
    c.model().heads = std::min(c.model().kv_heads * std::max<std::int64_t>(1, top_k), ModelLimits::heads);  // configuration_jetmoe.py
    const LayerPiece layer{c.norm(2),
                           c.linear(hidden, 2 * width),
                           c.experts(experts, top_k, width, false),
                           c.values(hidden),
                           c.experts(experts, top_k, c.number({"intermediate_size"})),
                           c.values(hidden)};
    c.add_equal_layers("attention of experts+moe", layer);
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
    // The router scores the shared experts too.
    const LayerPiece mixture{
        c.experts({.experts = experts, .top_k = c.number({"num_experts_per_tok"}), .width = width, .zero_experts = shared}),
        c.mlp(shared * width), c.values(1)};
    const LayerPiece dense{c.mlp(stated > 0 ? stated : c.number({"intermediate_size"})), c.values(1)};
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
            LayerPiece{
                {c.norm(2), c.attention({.heads = heads, .kv_heads = groups, .head_dim = dim, .qk_norm = QkNorm::shared_by_heads}),
                 c.linear(hidden, heads * distances), c.values(distances * extent), c.values((2 * groups * dim + 2 * hidden) * taps)},
                mixtures[at] ? mixture : dense});
    }
    c.add_beside(c.norm());
}

/// Inkling 2: what each half reads is chosen out of the outputs of blocks of layers before it; gates, logits of sinks and limits of queries
/// and of biases by distance, each of which is trained; in layers that see all convolutions whose weights follow from the input.
void compose_inkling2(Composer& c) {
    const std::int64_t hidden = c.hidden(), taps = c.number({"conv_kernel_size", "sconv_kernel_size"}), distances = c.number({"d_rel"});
    const std::vector<std::string> words = c.words_of_layers("layer_types", {"hybrid", "hybrid_sliding"});
    const LayerPiece mixture = c.experts(c.number({"n_routed_experts", "num_local_experts"}), c.number({"num_experts_per_tok"}),
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
        const LayerPiece gates{c.linear(hidden, heads * dim), c.linear(hidden, heads), c.linear(hidden, heads * distances),
                               c.values(heads * (dim + distances) + distances * extent + (2 * hidden + 2 * groups * dim) * taps)};
        const LayerPiece more = local ? LayerPiece{} : LayerPiece{c.linear(hidden, groups * taps, false, 2)};
        c.add_layer(local ? "window attention+moe" : "attention+moe",
                    LayerPiece{{c.norm(local ? 2 : 4), c.attention({.heads = heads, .kv_heads = groups, .head_dim = dim})},
                               gates,
                               more,
                               {c.values(queries * hidden), mixture}});
    }
    c.add_beside(c.norm());              // of the embeddings
    c.add_beside(c.values(c.hidden()));  // the query of what the output layer reads
}

/// ERNIE 4.5 VL: experts of words, and experts of pictures, which no word passes.
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
    const LayerPiece mixture{c.experts(experts, top_k, widths[0]), c.values(experts),
                             c.experts({.experts = experts, .top_k = top_k, .width = widths[1], .idle = true}), c.values(experts),
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
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    const LayerPiece mixture{c.experts(c.number({"n_routed_experts", "moe_num_experts", "num_local_experts"}),
                                       c.number({"num_experts_per_tok", "moe_top_k"}), c.number({"moe_intermediate_size"})),
                             c.mlp(c.number({"share_expert_dim", "share_expert_dims"}))};
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool window = !words.empty() && words[at] == "sliding_attention";
        const bool moe = !kinds.empty() ? kinds[at] == "sparse" : mixtures ? mixtures->contains(layer) : layer >= 3;
        const std::int64_t own = window ? window_heads : heads;
        c.add_layer(std::string(window ? "window attention" : "attention") + (moe ? "+moe" : "+mlp"),
                    LayerPiece{{c.norm(2), c.attention({.heads = own, .kv_heads = groups, .qk_norm = QkNorm::shared_by_heads}),
                                c.linear(hidden, own)},
                               moe ? mixture : dense});
    }
}

/// Queries and keys pass two convolutions, half of the values are those of the place before, scales and biases of the residual path, and a
/// router that is an MLP and sees that of the layer before.
void compose_zaya(Composer& c) {
    refuse_attention_bias(c);
    (void)c.config().texts("layer_types");
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, groups = c.model().kv_heads, dim = c.model().head_dim;
    const std::int64_t channels = (heads + groups) * dim, small = c.number({"router_hidden_size"}), experts = c.number({"num_experts"});
    const std::int64_t apart = c.number({"cca_time0"}), together = c.number({"cca_time1"});
    const LayerPiece routed = c.experts(
        {.experts = experts, .top_k = c.number({"num_experts_per_tok"}), .width = c.number({"moe_intermediate_size"}), .router = false});
    const LayerPiece layer{c.norm(2),
                           c.attention(),
                           c.values(channels * (apart + 1) + channels * (dim * together + 1) + groups),
                           c.values(8 * hidden),
                           c.linear(hidden, small, true),
                           c.norm_over(small),
                           c.linear(small, small, true, 2),
                           c.linear(small, experts + 1),
                           routed};
    for (std::int64_t i = 0; i < c.layers(); ++i) c.add_layer("attention+moe", i == 0 ? layer : LayerPiece{layer, {c.values(small)}});
    c.add_beside(c.values(2 * hidden));
    if (c.flag({"lm_head_bias"}, false) && !c.model().labels) c.add_beside(c.values(c.model().vocab));
}

namespace {

/// Muse's attention has a gate of its output next to queries, keys and values, without a bias where they have one.
LayerPiece muse_attention(Composer& c) {
    (void)c.words_of_layers("layer_types", {"full_attention", "sliding_attention"});
    if (const auto* bases = c.config().list("layer_rope_theta"); bases != nullptr && std::ssize(*bases) != c.layers())
        c.config().problem("layer_rope_theta has {} entries for {} layers; give one entry per layer, 0 for none", bases->size(),
                           c.layers());
    for (const auto* field : {"qk_scale_factor", "output_multiplier", "final_logit_softcapping", "post_norm_eps"})
        (void)c.config().real_or({field}, 0, 0, ModelLimits::multiplier);
    return {c.attention_by_fields(), c.linear(c.hidden(), c.model().heads * c.model().head_dim)};
}

}  // namespace

/// Muse Spark: experts of a width of their own between two maps, a norm of what each gives, and additions to the residual stream that
/// trained values weigh.
void compose_muse_spark(Composer& c) {
    const std::int64_t hidden = c.hidden(), narrow = c.number({"moe_hidden_size"});
    (void)c.config().real_or({"residual_gate_temperature"}, 0, 0, ModelLimits::multiplier);
    (void)c.config().real_or({"routed_scaling_factor"}, 1, 0, ModelLimits::routed_scaling);
    const LayerPiece attention{{c.norm(3), c.values(2 * hidden)}, muse_attention(c)};
    const LayerPiece experts = c.experts({.experts = c.number({"num_local_experts"}),
                                          .top_k = c.number({kExpertsOfToken}),
                                          .width = c.number({"moe_intermediate_size"}),
                                          .in = narrow});
    const LayerPiece mixture{experts, c.linear(hidden, narrow), c.norm_over(narrow, false, 2), c.linear(narrow, hidden)};
    const LayerPiece dense{c.mlp(c.number({"intermediate_size"}))};
    const std::vector<std::string> kinds = c.words_of_layers("mlp_layer_types", {"sparse", "dense"});
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool moe = kinds.empty() || kinds[static_cast<std::size_t>(layer)] == "sparse";
        c.add_layer(moe ? "attention+moe" : "attention+mlp", {attention, moe ? mixture : dense});
    }
}

bool has_attention_bias(ConfigParts& parts) {
    return parts.config.boolean_or({"attention_bias"}, false);
}

void compose_muse_glimmer(Composer& c) {
    const LayerPiece layer{{c.norm(4)}, muse_attention(c), {c.mlp(c.number({"intermediate_size"}))}};
    c.add_equal_layers("attention with biases but of its gate+mlp", layer);
}

}  // namespace mgplan::formats
