// Parts of typed layers.

#include <algorithm>
#include <map>
#include <utility>

#include "plan/parameters/model_adapter.hpp"
#include "plan/parts/model_parts.hpp"
#include "plan/parts/typed_parts.hpp"

namespace mgplan {
namespace {

LayerPart activated(LayerPart part, Activation activation) {
    part.sizes["activation"] = 1 + static_cast<std::int64_t>(activation);
    return part;
}

LayerPart norm_part(const Norm& norm, std::int64_t width, std::int64_t copies, std::int64_t behind) {
    LayerPart part{"norm", {{"width", width}, {"copies", copies}}};
    state_size(part, "weight", norm.weight ? 1 : 0);
    state_size(part, "bias", norm.bias ? 1 : 0);
    state_size(part, "behind", behind);
    return part;
}

void write(const Attention& attention, const Layer& /*layer*/, LayerPart& part) {
    part.sizes = {{"heads", attention.heads},
                  {"kv_heads", attention.kv_heads},
                  {"head_dim", attention.head_dim},
                  {"positions", attention.rotary ? 2 : 1}};
    // All of its switches or none.
    if (attention.qkv_bias || attention.output_bias || attention.output_gate || attention.qk_norm != QkNorm::none)
        part.sizes.insert({{"qkv_bias", attention.qkv_bias},
                           {"output_bias", attention.output_bias},
                           {"output_gate", attention.output_gate},
                           {"qk_norm", static_cast<std::int64_t>(attention.qk_norm)}});
}

void write(const LatentAttention& attention, const Layer& /*layer*/, LayerPart& part) {
    part.sizes = {{"heads", attention.heads},
                  {"q_lora_rank", attention.q_lora_rank},
                  {"kv_lora_rank", attention.kv_lora_rank},
                  {"qk_nope", attention.qk_nope_head_dim},
                  {"qk_rope", attention.qk_rope_head_dim},
                  {"v_head_dim", attention.v_head_dim},
                  {"down_bias", 0},
                  {"output_bias", attention.output_bias}};
    state_size(part, "latent_norms", attention.latent_norms ? 1 : 0);
}

template <class Kind>
void write(const Kind& mixer, const Layer& layer, LayerPart& part) {
    write_sizes(mixer, part);
    if (has_size(part, "window")) part.sizes["window"] = layer.window;
}

void write(const Gemma3nLayer& mixer, const Layer& layer, LayerPart& part) {
    write(mixer.attention, layer, part);
    write_sizes(mixer, part);
    part = activated(part, mixer.mlp.activation);
    part.sizes["width"] = mixer.mlp.width;
    part.sizes["cut_millionths"] = static_cast<std::int64_t>(std::min(mixer.mlp_zero_share, 1.0) * kMillion + 0.5);
}

void write(const Mamba& mamba, const Layer& /*layer*/, LayerPart& part) {
    write_sizes(mamba, part);
    part.sizes.insert({{"conv_bias", mamba.conv_bias}, {"proj_bias", 0}, {"inner_norms", static_cast<std::int64_t>(mamba.inner_norms)}});
}

void write(const Mamba2& mamba2, const Layer& /*layer*/, LayerPart& part) {
    write_sizes(mamba2, part);
    part.sizes.insert({{"conv_bias", 1}, {"proj_bias", 0}});
}

void write(const AttentionBesideMamba2& mixer, const Layer& layer, LayerPart& part) {
    write(mixer.mamba2, layer, part);
    part.sizes["query_heads"] = mixer.attention.heads;
    part.sizes["kv_heads"] = mixer.attention.kv_heads;
    part.sizes["head_dim"] = mixer.attention.head_dim;
    part.sizes["qkv_bias"] = mixer.attention.qkv_bias ? 1 : 0;
    part.sizes["output_bias"] = mixer.attention.output_bias ? 1 : 0;
}

void write(const SharedBlockMamba2& mixer, const Layer& layer, LayerPart& part) {
    write_sizes(mixer, part);
    write_sizes(mixer.block, part);
    write(mixer.mamba2, layer, part);
    part = activated(part, mixer.block.activation);
    part.sizes["positions"] = mixer.block.rotary ? 2 : 1;
}

void add_parts(const Mlp& mlp, std::int64_t /*hidden*/, const Norm& /*norm*/, std::vector<LayerPart>& parts) {
    parts.push_back(activated({"mlp", {{"width", mlp.width}, {"gated", mlp.gated}, {"bias", mlp.bias}}}, mlp.activation));
}

void add_parts(const Mixture& mixture, std::int64_t hidden, const Norm& norm, std::vector<LayerPart>& parts) {
    if (mixture.choosing_words > 0) parts.push_back({"word_choice", {{"words", mixture.choosing_words}, {"top_k", mixture.top_k}}});
    LayerPart experts{"experts",
                      {{"experts", mixture.experts}, {"top_k", mixture.top_k}, {"width", mixture.expert_ffn}, {"gated", mixture.gated}}};
    state_size(experts, "bias", mixture.bias ? 1 : 0);
    state_size(experts, "in", mixture.latent);
    state_size(experts, "router_bias", mixture.router_bias ? 1 : 0);
    parts.push_back(activated(std::move(experts), mixture.activation));
    const auto add_linear = [&](std::int64_t in, std::int64_t out) {
        parts.push_back({"linear", {{"in", in}, {"out", out}, {"bias", 0}, {"copies", 1}}});
    };
    if (mixture.shared_ffn > 0)
        parts.push_back({"mlp", {{"width", mixture.shared_ffn}, {"gated", mixture.gated}, {"bias", 0}}});  // with their activation
    if (mixture.shared_gate) add_linear(hidden, 1);
    if (mixture.latent > 0) {
        add_linear(hidden, mixture.latent);
        add_linear(mixture.latent, hidden);
    }
    if (mixture.branch_norms) {
        parts.push_back(norm_part(norm, hidden, 4, 0));
        parts.push_back({"values", {{"count", mixture.experts}}});
    }
}

/// The part that mixes streams around `halves` halves of a layer.
LayerPart stream_maps_part(const HyperConnections& streams, std::int64_t halves) {
    return {"hyper_connection", {{"streams", streams.streams}, {"maps", streams.maps()}, {"scales", 3}, {"copies", halves}}};
}

}  // namespace

LayerComposition composition_of(const Layer& layer, std::int64_t hidden) {
    LayerComposition composition{name_of_halves(layer), {}};
    const std::int64_t halves = (layer.mixer ? 1 : 0) + (layer.feed_forward ? 1 : 0);
    const bool both = layer.norms.before && layer.norms.after;
    composition.parts.push_back(norm_part(layer.norms.norm, hidden, halves * (both ? 2 : 1), both ? 2 : layer.norms.after ? 1 : 0));
    if (layer.mixer) {
        LayerPart part;
        std::visit(
            [&](const auto& mixer) {
                part.kind = std::decay_t<decltype(mixer)>::kKind;
                write(mixer, layer, part);
            },
            *layer.mixer);
        composition.parts.push_back(std::move(part));
    }
    if (layer.residual.hyper_connections) composition.parts.push_back(stream_maps_part(*layer.residual.hyper_connections, halves));
    if (layer.feed_forward) {
        std::visit([&](const auto& half) { add_parts(half, hidden, layer.norms.norm, composition.parts); }, *layer.feed_forward);
    }
    return composition;
}

std::vector<LayerPart> parts_beside(const std::vector<Layer>& kinds, const Norm& final_norm, const ModelSpec& spec) {
    std::map<std::int64_t, LayerPart> blocks;
    std::int64_t input = 0, streams = 1;
    const auto read_inputs = [&](const GemmaAttention& attention) { input = std::max(input, attention.layer_input_width); };
    for (const Layer& layer : kinds) {
        if (const auto* mixer = mixer_as<GemmaAttention>(layer)) read_inputs(*mixer);
        if (const auto* mixer = mixer_as<Gemma3nLayer>(layer)) {
            read_inputs(mixer->attention);
            streams = mixer->streams;
        }
        if (const auto* mixer = mixer_as<SharedBlockMamba2>(layer)) {
            LayerPart part{"shared_block", {}};
            write_sizes(mixer->block, part);
            part.sizes.erase("block");
            blocks.emplace(mixer->block.number, std::move(part));
        }
    }
    std::vector<LayerPart> parts;
    for (auto& [number, part] : blocks) parts.push_back(std::move(part));
    if (streams > 1) parts.push_back({"stream_ends", {{"streams", streams}}});
    if (input > 0) parts.push_back({"layer_input_norm", {{"width", input}}});
    if (const auto& mixed = spec.hyper_connections; mixed && mixed->learned_head)
        parts.push_back({"hyper_connection", {{"streams", mixed->streams}, {"maps", mixed->streams}, {"scales", 1}, {"copies", 1}}});
    parts.push_back(norm_part(final_norm, spec.hidden, 1, 0));
    return parts;
}

}  // namespace mgplan
