// Pieces of layers (LayerPiece): typed halves, and tensors that are counted.

#include <algorithm>
#include <utility>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {

LayerPiece::LayerPiece(std::initializer_list<LayerPiece> pieces) {
    for (const LayerPiece& piece : pieces) add(piece);
}

void LayerPiece::add(const LayerPiece& next) {
    if (next == LayerPiece()) return;
    const bool first = *this == LayerPiece();
    tensors.insert(tensors.end(), next.tensors.begin(), next.tensors.end());
    choices.insert(choices.end(), next.choices.begin(), next.choices.end());
    if (first) {
        typed = next.typed;
    } else if (!typed || !next.typed || (next.typed->mixer && (typed->mixer || typed->feed_forward)) ||
               (next.typed->feed_forward && typed->feed_forward)) {
        typed.reset();
    } else if (next.typed->mixer) {
        typed->mixer = next.typed->mixer;
        typed->window = next.typed->window;
    } else if (next.typed->feed_forward) {
        typed->feed_forward = next.typed->feed_forward;
    }
}

void LayerPiece::add_biases(std::initializer_list<std::string_view> maps) {
    for (const std::string_view map : maps) {
        const auto weight = std::find_if(tensors.begin(), tensors.end(), [&](const CountedTensor& tensor) {
            return tensor.name.starts_with(map) && tensor.name.substr(map.size()) == ".weight";
        });
        MGPLAN_ASSERT(weight != tensors.end(), map);
        tensors.push_back({std::string(map) + ".bias", {weight->shape.front()}});
    }
    typed.reset();
}

namespace {

/// Adds a weight and, for a map with one, its bias.
void add_map(LayerPiece& piece, const std::string& name, std::int64_t rows, std::int64_t columns, bool biased, std::int64_t copies = 1,
             std::int64_t used = 1) {
    piece.tensors.push_back({name + ".weight", {rows, columns}, copies, used});
    if (biased) piece.tensors.push_back({name + ".bias", {rows}, copies, used});
}

}  // namespace

LayerPiece Composer::norm_over(std::int64_t width, bool biased, std::int64_t copies, std::optional<Layer> typed) const {
    LayerPiece piece;
    piece.tensors.push_back({"norm.weight", {width}, copies, copies});
    if (biased) piece.tensors.push_back({"norm.bias", {width}, copies, copies});
    piece.typed = std::move(typed);
    return piece;
}

LayerPiece Composer::norm(std::int64_t copies, bool before, bool after) const {
    Layer layer;
    layer.norms.before = before;
    layer.norms.after = after;
    return norm_over(hidden(), false, copies, std::move(layer));
}

LayerPiece Composer::mixer(const Mixer& mixer, std::int64_t window) const {
    LayerPiece piece = std::visit([&](const auto& kind) { return listed(kind); }, mixer);
    piece.typed.emplace();
    piece.typed->mixer = mixer;
    piece.typed->window = window;
    return piece;
}

Attention Composer::plain_attention(bool rotary, bool biased) const {
    const ModelSpec& spec = parts_.model;
    Attention attention{.heads = spec.heads, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
    if (rotary) attention.rotary.emplace();
    attention.qkv_bias = attention.output_bias = biased;
    return attention;
}

LayerPiece Composer::latent_attention() {
    LatentAttention sizes{.heads = model().heads,
                          .q_lora_rank = number_or({"q_lora_rank"}, 0),
                          .kv_lora_rank = size({"kv_lora_rank"}),
                          .qk_nope_head_dim = number({"qk_nope_head_dim"}),
                          .qk_rope_head_dim = number({"qk_rope_head_dim"}),
                          .v_head_dim = number({"v_head_dim"}),
                          .rotary = {},
                          .latent_norms = true,
                          .output_bias = flag({"attention_bias"}, false)};
    LayerPiece piece = mixer(sizes);
    if (!sizes.output_bias) return piece;
    if (sizes.q_lora_rank > 0) piece.add_biases({"self_attention.linear_q_down_proj"});
    piece.add_biases({"self_attention.linear_kv_down_proj"});
    return piece;
}

Mamba2 Composer::mamba2_by_fields(std::int64_t inner, bool normed) {
    return {.inner_width = inner,
            .heads = size({"mamba_n_heads"}),
            .groups = size({"mamba_n_groups"}),
            .state_size = size({"mamba_d_state"}),
            .conv_taps = size({"mamba_d_conv"}),
            .norm = normed};
}

GatedDeltaNet Composer::gated_delta_net() {
    return {.key_heads = size({"linear_num_key_heads"}),
            .key_dim = size({"linear_key_head_dim"}),
            .value_heads = size({"linear_num_value_heads"}),
            .value_dim = size({"linear_value_head_dim"}),
            .conv_taps = size({"linear_conv_kernel_dim"})};
}

LayerPiece Composer::with_mamba2(const Mixer& mixer, bool conv_bias, bool proj_bias) const {
    LayerPiece piece = this->mixer(mixer);
    if (!conv_bias) {
        std::erase_if(piece.tensors, [](const CountedTensor& tensor) { return tensor.name == "mixer.conv1d_bias"; });
        piece.typed.reset();
    }
    if (proj_bias) piece.add_biases({"mixer.in_proj", "mixer.out_proj"});
    return piece;
}

LayerPiece Composer::short_convolution() {
    LayerPiece piece = mixer(ShortConvolution{.conv_taps = size({"conv_L_cache"})});
    if (flag({"conv_bias"}, false)) piece.add_biases({"mixer.in_proj", "mixer.conv", "mixer.out_proj"});
    return piece;
}

LayerPiece Composer::typed_mlp(std::int64_t width, bool gated, bool bias) const {
    LayerPiece piece = mlp(width, gated, bias);
    piece.typed.emplace();
    piece.typed->feed_forward = Mlp{.width = width, .activation = parts_.model.activation, .gated = gated, .bias = bias};
    return piece;
}

LayerPiece Composer::mixture(Mixture sizes) {
    LayerPiece piece = experts({.experts = sizes.experts,
                                .top_k = sizes.top_k,
                                .width = sizes.expert_ffn,
                                .gated = sizes.gated,
                                .bias = sizes.bias,
                                .in = sizes.latent,
                                .router_bias = sizes.router_bias});
    if (sizes.shared_ffn > 0) piece.add(mlp(sizes.shared_ffn, sizes.gated));
    if (sizes.shared_gate) piece.add(linear(hidden(), 1));
    if (sizes.latent > 0) piece.add({linear(hidden(), sizes.latent), linear(sizes.latent, hidden())});
    if (sizes.branch_norms) piece.add({norm(4), values(sizes.experts)});
    if (!config().problems().empty()) return piece;
    MoeSpec stated{.experts = sizes.experts, .top_k = sizes.top_k, .expert_ffn = sizes.expert_ffn};
    stated.latent = sizes.latent;
    stated.shared_ffn = sizes.shared_ffn;
    stated.shared_gate = sizes.shared_gate;
    stated.branch_norms = sizes.branch_norms;
    if (!model().moe) {
        read_router(config(), parts_.type, stated);
        stated.router_bias = sizes.router_bias;
        model().moe = stated;
    }
    if (model().moe->shared_ffn != sizes.shared_ffn) return piece;
    sizes.activation = model().activation;
    piece.typed.emplace();
    piece.typed->feed_forward = sizes;
    return piece;
}

LayerPiece Composer::attention(CountedAttention s) const {
    const auto stated = [](std::int64_t own, std::int64_t usual) { return own > 0 ? own : usual; };
    const std::int64_t in = stated(s.in, hidden()), heads = stated(s.heads, parts_.model.heads),
                       groups = stated(s.kv_heads, parts_.model.kv_heads), width = stated(s.head_dim, parts_.model.head_dim),
                       v_width = stated(s.v_head_dim, width);
    LayerPiece piece;
    add_map(piece, "q", heads * width * (s.output_gate ? 2 : 1), in, s.qkv_bias);
    add_map(piece, "k", groups * width, in, s.qkv_bias);
    add_map(piece, "v", groups * v_width, in, s.qkv_bias);
    add_map(piece, "output", hidden(), heads * v_width, s.output_bias);
    if (s.qk_norm != QkNorm::none) {
        for (const auto& [name, all] : {std::pair{"q_norm", heads}, std::pair{"k_norm", groups}}) {
            const std::vector<std::int64_t> shape{s.qk_norm == QkNorm::shared_by_heads ? width : all * width};
            piece.tensors.push_back({std::string(name) + ".weight", shape});
            if (s.qk_norm_bias) piece.tensors.push_back({std::string(name) + ".bias", shape});
        }
    }
    if (s.sinks) piece.tensors.push_back({"sinks", {heads}});
    return piece;
}

LayerPiece Composer::indexer() {
    const std::int64_t heads = number({"index_n_heads"}), width = number({"index_head_dim"});
    LayerPiece piece;
    add_map(piece, "indexer.q", heads * width, number({"q_lora_rank"}), false);
    add_map(piece, "indexer.k", width, hidden(), false);
    piece.tensors.push_back({"indexer.k_norm.weight", {width}});
    piece.tensors.push_back({"indexer.k_norm.bias", {width}});
    add_map(piece, "indexer.weights", heads, hidden(), false);
    return piece;
}

LayerPiece Composer::mlp(std::int64_t width, bool gated, bool bias) const {
    const std::int64_t first = gated ? 2 * width : width;
    LayerPiece piece;
    piece.tensors = {{"first.weight", {first, hidden()}}, {"second.weight", {hidden(), width}}};
    if (bias) piece.tensors.insert(piece.tensors.end(), {{"first.bias", {first}}, {"second.bias", {hidden()}}});
    return piece;
}

LayerPiece Composer::experts(const CountedExperts& s) const {
    const std::int64_t outer = s.in > 0 ? s.in : hidden(), first = s.gated ? 2 * s.width : s.width, scored = s.experts + s.zero_experts;
    const std::int64_t used = s.idle ? 0 : std::min(s.top_k, s.experts);
    LayerPiece piece;
    piece.choices.push_back({s.top_k, scored});
    if (s.router) piece.tensors.push_back({"router.weight", {scored, hidden()}});
    if (s.router_bias) piece.tensors.push_back({"router.bias", {scored}});
    add_map(piece, "experts.first", first, outer, s.bias, s.experts, used);
    if (s.idle_first > 0) piece.tensors.push_back({"experts.idle.weight", {first, outer}, s.idle_first, 0});
    add_map(piece, "experts.second", outer, s.width, s.bias, s.experts, used);
    return piece;
}

LayerPiece Composer::values(std::int64_t count) const {
    LayerPiece piece;
    piece.tensors.push_back({"values", {count}});
    return piece;
}

LayerPiece Composer::linear(std::int64_t in, std::int64_t out, bool bias, std::int64_t copies) const {
    LayerPiece piece;
    add_map(piece, "linear", out, in, bias, copies, copies);
    return piece;
}

LayerPiece Composer::table(std::int64_t rows, std::int64_t width, std::int64_t read) const {
    LayerPiece piece;
    if (read == 0)
        piece.tensors.push_back({"table.weight", {rows, width}});
    else
        piece.tensors.push_back({"table.weight", {width}, rows, std::min(read, rows)});
    return piece;
}

LayerPiece Composer::hyper_connection(std::int64_t streams, std::int64_t maps, std::int64_t scales, std::int64_t copies) const {
    LayerPiece piece;
    piece.tensors = {{"hyper.weight", {maps, streams * hidden()}, copies, copies},
                     {"hyper.bias", {maps}, copies, copies},
                     {"hyper.scale", {scales}, copies, copies}};
    return piece;
}

}  // namespace mgplan::formats
