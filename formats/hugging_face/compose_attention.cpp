// Layers of attention and an MLP whose norms, biases or sizes no field of ModelSpec describes.

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

void final_norm_has_bias(Composer& c) {
    c.model().normalization = Normalization::layer_norm;
}

}  // namespace

/// GPT-2 but for biases of q, k and v, which it has none of.
void compose_gpt_neo(Composer& c) {
    final_norm_has_bias(c);
    c.model().position = PositionEmbedding::learned;
    c.add_equal_layers("attention+mlp", {c.layer_norm(2), c.attention({.output_bias = true}),
                                         c.mlp(c.number_or({"intermediate_size"}, 4 * c.hidden()), false, true)});
}

/// Norms without weights, the final one included.
void compose_nanochat(Composer& c) {
    c.without_final_norm();
    c.add_equal_layers("attention+mlp", {c.attention_by_fields(), c.mlp(c.number({"intermediate_size"}), false)});
    c.leave_out("norms without weights");
}

void compose_persimmon(Composer& c) {
    final_norm_has_bias(c);
    const bool normed = c.flag({"qk_layernorm"}, true);
    c.add_equal_layers(
        "attention+mlp",
        {c.layer_norm(2),
         c.attention(
             {.qk_norm = normed ? QkNorm::shared_by_heads : QkNorm::none, .qk_norm_bias = normed, .qkv_bias = true, .output_bias = true}),
         c.mlp(c.number({"intermediate_size"}), false, true)});
}

/// A norm in front of the output projection, and one in front of the MLP's second matrix.
void compose_bitnet(Composer& c) {
    const std::int64_t width = c.number({"intermediate_size"});
    c.add_equal_layers("attention+mlp", {c.norm(3), c.attention_by_fields(), c.mlp(width), c.norm_over(width)});
}

/// Two softmaxes, one subtracted from the other, with four vectors that weigh it.
void compose_diffllama(Composer& c) {
    c.add_equal_layers("attention+mlp",
                       {c.norm(2), c.attention_by_fields(), c.values(4 * c.model().head_dim), c.mlp(c.number({"intermediate_size"}))});
}

void compose_xglm(Composer& c) {
    final_norm_has_bias(c);
    c.add_equal_layers("attention+mlp",
                       {c.layer_norm(2), c.attention({.qkv_bias = true, .output_bias = true}), c.mlp(c.number({"ffn_dim"}), false, true)});
}

/// A mask that follows from the values, trained factors of both residual paths, and, with is_moe, experts of one row each besides the MLP.
void compose_doge(Composer& c) {
    const bool biased = c.flag({"attention_bias"}, false);
    const std::int64_t groups = c.model().kv_heads;
    LayerPiece pieces{c.norm(2),
                      c.attention({.qk_norm = QkNorm::shared_by_heads, .qkv_bias = biased, .output_bias = biased}),
                      c.linear(groups * c.model().head_dim, groups, biased),
                      c.values(groups),  // the mask
                      c.mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false)),
                      c.values(2 * c.hidden())};
    (void)c.number_or({"keep_window_size"}, 0);
    const std::int64_t experts = c.number_or({"num_experts"}, 1), top_k = c.number_or({"num_experts_per_tok"}, 1);
    const bool mixture = c.flag({"is_moe"}, false);
    if (mixture) {
        // Each expert is the pair of two of sqrt(experts) keys, which the router scores.
        const auto keys = static_cast<std::int64_t>(std::floor(std::sqrt(static_cast<double>(experts))));
        pieces.add(c.experts({.experts = experts, .top_k = top_k, .width = 1, .gated = false, .router = false}));
        pieces.add(c.linear(c.hidden(), 2 * keys));
    }
    c.add_equal_layers(mixture ? "attention+mlp and moe" : "attention+mlp", pieces);
}

/// GPT-1: norms after attention and MLP, none after the last layer.
void compose_openai_gpt(Composer& c) {
    final_norm_has_bias(c);
    c.without_final_norm();
    c.model().position = PositionEmbedding::learned;
    c.add_equal_layers("attention+mlp",
                       {c.layer_norm(2), c.attention({.qkv_bias = true, .output_bias = true}), c.mlp(4 * c.hidden(), false, true)});
}

/// Llama 3.2 Vision: some layers attend to the picture alone, with norms of each head and a trained gate in front of both additions; eight
/// rows of words on top of the vocabulary.
void compose_mllama(Composer& c) {
    std::vector<std::int64_t> listed = c.config().integers("cross_attention_layers", 0, ModelLimits::layers);
    if (c.config().list("cross_attention_layers") == nullptr) listed = {3, 8, 13, 18, 23, 28, 33, 38};  // of its class
    const std::set<std::int64_t> crossing(listed.begin(), listed.end());
    const LayerPiece mlp = c.mlp(c.number({"intermediate_size"}));
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        if (crossing.contains(layer))
            c.add_layer("attention to pictures+mlp", {c.norm(2), c.attention({.qk_norm = QkNorm::shared_by_heads}), mlp, c.values(2)});
        else
            c.add_layer("attention+mlp", {c.norm(2), c.attention(), mlp});
    }
    constexpr std::int64_t kMoreWords = 8;
    c.add_beside(c.table(kMoreWords, c.hidden()));
}

/// A llama, but for a scale of the MLP's input that the delay of its transcription decides, through 32 values.
void compose_voxtral_realtime(Composer& c) {
    constexpr std::int64_t kDelayWidth = 32;  // modeling_voxtral_realtime.py, VoxtralRealtimeTextAdaRmsNorm
    c.add_equal_layers("attention+mlp", {c.norm(2), c.attention(), c.linear(c.hidden(), kDelayWidth), c.linear(kDelayWidth, c.hidden()),
                                         c.mlp(c.number({"intermediate_size"}))});
}

bool is_unlike_other_opt(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    return config.integer_or({"word_embed_proj_dim"}, parts.model.hidden, 1, ModelLimits::hidden) != parts.model.hidden ||
           !config.boolean_or({"do_layer_norm_before"}, true) || config.boolean_or({"_remove_final_layer_norm"}, false);
}

/// modeling_opt.py: a map from words to layers and one back, norms after the residual additions (x + f(x) is normed, not f(x)), no norm
/// after the last layer.
void compose_opt(Composer& c) {
    final_norm_has_bias(c);
    const std::int64_t words = c.number_or({"word_embed_proj_dim"}, c.hidden());
    if (words != c.hidden()) c.model().word_width = words;
    const bool in_front = c.flag({"do_layer_norm_before"}, true), removed = c.flag({"_remove_final_layer_norm"}, false);
    if (!in_front || removed) c.without_final_norm();
    const bool biased = c.flag({"enable_bias"}, true);
    c.model().ffn = std::clamp<std::int64_t>(c.number({"ffn_dim"}), 1, ModelLimits::ffn);
    c.add_equal_layers("attention+mlp",
                       {c.layer_norm(2), c.attention({.qkv_bias = biased, .output_bias = biased}), c.mlp(c.model().ffn, false, biased)});
}

/// ModernBERT's decoder: a norm of the embeddings in place of that of the first layer's attention, and a layer between the last norm and
/// the output.
void compose_modernbert_decoder(Composer& c) {
    const std::int64_t hidden = c.hidden();
    const bool norm_bias = c.flag({"norm_bias"}, false), mlp_bias = c.flag({"mlp_bias"}, false);
    const std::int64_t heads = c.model().heads;
    const bool classifier_bias = c.flag({"classifier_bias"}, false), decoder_bias = c.flag({"decoder_bias"}, true);
    (void)c.config().text_or({"classifier_activation"}, "");
    for (const auto* field : {"global_attn_every_n_layers", "local_attention"}) (void)c.number_or({field}, 0);
    (void)c.words_of_layers("layer_types", {"full_attention", "sliding_attention"});
    if (c.config().problems().empty() && hidden % heads != 0)
        c.config().problem("num_attention_heads = {} do not divide hidden_size = {}; give a divisor", heads, hidden);
    c.model().head_dim = std::max<std::int64_t>(1, hidden / heads);
    c.model().kv_heads = heads;  // its class has no other
    const LayerPiece layer{c.attention_by_fields(), c.mlp(c.number({"intermediate_size"}), true, mlp_bias)};
    for (std::int64_t i = 0; i < c.layers(); ++i)
        c.add_layer(i == 0 ? "attention+mlp, one norm" : "attention+mlp", {{c.norm_over(hidden, norm_bias, i == 0 ? 1 : 2)}, layer});
    c.model().normalization = Normalization::layer_norm;
    c.without_final_norm();
    c.add_beside(c.norm_over(hidden, norm_bias, 2));  // of the embeddings, after the last layer
    const auto labels = c.model().labels;
    if (labels != 0) {  // else nothing follows the last norm
        c.add_beside(c.linear(hidden, hidden, classifier_bias));
        c.add_beside(c.norm_over(hidden, norm_bias));
    }
    if (!labels && decoder_bias) c.add_beside(c.values(c.model().vocab));
    if (labels && *labels > 0 && classifier_bias) c.add_beside(c.values(*labels));
}

/// Chameleon: norms of each head of queries and keys, with biases; with swin_norm the norms of the stream follow the halves.
void compose_chameleon(Composer& c) {
    const std::int64_t heads = c.model().heads;
    const bool behind = c.flag({"swin_norm"}, false);
    (void)c.number_or({"model_parallel_size"}, 1);
    if (c.config().problems().empty() && c.hidden() % heads != 0)
        c.config().problem("num_attention_heads = {} do not divide hidden_size = {}; give a divisor", heads, c.hidden());
    c.model().head_dim = std::max<std::int64_t>(1, c.hidden() / heads);
    const LayerPiece layer{c.norm(2), c.attention_by_fields({.qk_norm = QkNorm::per_head, .qk_norm_bias = true}),
                           c.mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false))};
    c.add_equal_layers(behind ? "attention+mlp, norms of heads with biases and norms behind" : "attention+mlp, norms of heads with biases",
                       layer);
}

/// Kosmos-2 and Kosmos-2.5: sines of the position, a norm between the products of the MLP, and in the first one in front of attention's
/// output; the second has a table of what is a picture and what are words.
void compose_kosmos(Composer& c) {
    const bool second = c.model().type == "kosmos_2_5_text_model";
    const std::int64_t hidden = c.hidden(), heads = c.model().heads, width = c.number({"ffn_dim"});
    (void)c.flag({"scale_embedding"}, true);
    for (const auto* field : {"activation_dropout", "layerdrop"}) (void)c.config().real_or({field}, 0, 0, 1);
    if (c.config().problems().empty() && hidden % heads != 0)
        c.config().problem("attention_heads = {} do not divide embed_dim = {}; give a divisor", heads, hidden);
    c.model().head_dim = std::max<std::int64_t>(1, hidden / heads);
    c.model().kv_heads = heads;  // its class has no other
    const LayerPiece layer{c.norm_over(hidden, true, second ? 2 : 3), c.attention({.qkv_bias = true, .output_bias = true}),
                           c.mlp(width, false, true), c.norm_over(width, true)};
    c.add_equal_layers("attention+mlp, norms within", layer);
    c.model().position = PositionEmbedding::none;
    c.model().normalization = Normalization::layer_norm;
    c.without_final_norm();
    c.add_beside(c.norm_over(hidden, true));
    if (second) c.add_beside(c.table(2, hidden));
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
    const LayerPiece layer{c.attention({.kv_heads = heads, .qkv_bias = biased, .output_bias = biased}), c.linear(c.hidden(), width, biased),
                           c.mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false))};
    c.add_equal_layers("attention+mlp, several times", layer);
    c.without_final_norm();
    c.add_beside(c.values(c.hidden()));
    c.leave_out("layers that a token passes several times");
    c.leave_out("norms without weights");
}

}  // namespace mgplan::formats
