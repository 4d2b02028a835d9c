#include "plan/layers/layer.hpp"

#include <algorithm>
#include <map>

#include <fmt/core.h>

namespace mgplan {
namespace {

/// The tensors that mix residual streams around one half; whole on every tp rank. A module's own parameters come before its children's,
/// each in the order in which the constructor makes them.
void list_stream_maps(const HyperConnections& streams, TensorLister list) {
    for (const char* scale : {"alpha_pre", "alpha_post", "alpha_res"}) list.replicated(scale, {1});
    list.replicated("bias", {streams.maps()});
    list.replicated("mapping_proj.weight", {streams.maps(), streams.streams * list.hidden()});
}

/// Tensors outside the layers that some mixers read.
struct SharedByLayers {
    std::map<std::int64_t, SharedBlock> blocks;
    std::int64_t layer_input_width = 0;
    std::int64_t unmixed_streams = 1;  ///< residual streams that no maps mix
    std::optional<HyperConnections> learned_head;
};

SharedByLayers shared_by_layers(const Model& model) {
    SharedByLayers shared;
    for (const Layer& layer : model.kinds) {
        if (layer.residual.hyper_connections && layer.residual.hyper_connections->learned_head)
            shared.learned_head = layer.residual.hyper_connections;
        if (!layer.mixer) continue;
        if (const auto* mamba2 = std::get_if<SharedBlockMamba2>(&*layer.mixer)) shared.blocks.emplace(mamba2->block.number, mamba2->block);
        if (const auto* gemma = std::get_if<GemmaAttention>(&*layer.mixer)) shared.layer_input_width = gemma->layer_input_width;
        if (const auto* gemma3n = std::get_if<Gemma3nLayer>(&*layer.mixer)) {
            shared.layer_input_width = gemma3n->attention.layer_input_width;
            shared.unmixed_streams = gemma3n->streams;
        }
    }
    return shared;
}

}  // namespace

std::uint16_t LayerKindIndex::index_of(const Layer& layer) {
    const auto [found, is_new] = known_.try_emplace(layer, static_cast<std::uint16_t>(kinds_.size()));
    if (is_new) kinds_.push_back(layer);
    return found->second;
}

std::vector<LayerTensor> tensors(const Layer& layer, std::int64_t hidden) {
    std::vector<LayerTensor> all;
    TensorLister list(all, layer.norms, hidden);
    const auto add_half = [&](const auto& half, std::string_view norm_after) {
        if (!half) return;
        std::visit([&](const auto& kind) { list_tensors(kind, list); }, *half);
        if (layer.norms.after) list.norm(norm_after, hidden);
    };
    add_half(layer.mixer, "post_self_attn_layernorm.");
    add_half(layer.feed_forward, "post_mlp_layernorm.");
    if (const auto& streams = layer.residual.hyper_connections) {
        if (layer.mixer) list_stream_maps(*streams, list.within("self_attention_hyper_connection."));
        if (layer.feed_forward) list_stream_maps(*streams, list.within("mlp_hyper_connection."));
    }
    if (layer.adapters) add_adapters(*layer.adapters, all);
    return all;
}

namespace {

void list_embedding(const Model& model, TensorLister list, std::int64_t rows) {
    const Embedding& embedding = model.embedding;
    const std::int64_t hidden = model.hidden, width = embedding.word_width;
    list.sharded("word_embeddings.weight", {rows, width > 0 ? width : hidden}, 0);
    if (width > 0) {
        list.replicated("project_in.weight", {hidden, width});
        list.replicated("project_out.weight", {width, hidden});
    }
    if (embedding.learned_positions > 0)
        list.replicated("position_embeddings.weight", {embedding.learned_positions, hidden}, PartialGradient::never);
    if (embedding.token_types > 0) list.replicated("tokentype_embeddings.weight", {embedding.token_types, hidden}, PartialGradient::never);
    if (embedding.norm) list.norm("norm.", hidden);
}

void list_shared_by_layers(const Model& model, TensorLister& list) {
    const SharedByLayers shared = shared_by_layers(model);
    for (const auto& [number, block] : shared.blocks) list_tensors(block, list);
    for (std::int64_t stream = 1; stream < shared.unmixed_streams; ++stream)
        list.replicated(fmt::format("embedding.streams.{}.weight", stream), {model.hidden, model.hidden});
    if (shared.layer_input_width > 0) list.norm("layer_inputs.norm.", shared.layer_input_width);
}

void list_stream_end(const Model& model, TensorLister list) {
    const SharedByLayers shared = shared_by_layers(model);
    if (const auto& streams = shared.learned_head) {
        list.replicated("hc_head_fn", {streams->streams, streams->streams * model.hidden});
        list.replicated("hc_head_base", {streams->streams});
        list.replicated("hc_head_scale", {1});
    }
    for (std::int64_t stream = 1; stream < shared.unmixed_streams; ++stream)
        list.replicated(fmt::format("stream_exit.{}.weight", stream), {model.hidden, model.hidden});
}

}  // namespace

std::vector<LayerTensor> tensors(const Model& model, ModelPart part, std::int64_t rows) {
    std::vector<LayerTensor> all;
    const Norms norms{.norm = model.head.norm};
    TensorLister list(all, norms, model.hidden);
    const std::int64_t hidden = model.hidden;
    switch (part) {
        case ModelPart::embedding:
            list_embedding(model, list.within("embedding."), rows);
            break;
        case ModelPart::shared_by_layers:
            list_shared_by_layers(model, list);
            break;
        case ModelPart::stream_end:
            list_stream_end(model, list.within("decoder."));
            break;
        case ModelPart::final_norm:
            list.norm("decoder.final_layernorm.", hidden);
            break;
        case ModelPart::output:
            list.sharded("output_layer.weight", {rows, model.embedding.word_width > 0 ? model.embedding.word_width : hidden}, 0);
            break;
        case ModelPart::output_bias:
            list.sharded("output_layer.bias", {rows}, 0);
            break;
        case ModelPart::prediction_start:  // Megatron-core transformer/multi_token_prediction.py
            list.norm("enorm.", hidden);
            list.norm("hnorm.", hidden);
            list.sharded("eh_proj.weight", {hidden, 2 * hidden}, 0).for_gemm();
            break;
        case ModelPart::prediction_end:
            list.norm("final_layernorm.", hidden);
            break;
    }
    const bool frozen = std::any_of(model.kinds.begin(), model.kinds.end(), [](const Layer& layer) { return layer.adapters.has_value(); });
    for (LayerTensor& tensor : all) tensor.trained = !frozen;
    return all;
}

ModelCount count_parameters(const Model& model) {
    ModelCount sum;
    const auto add = [&](const auto& listed, std::int64_t times) {
        for (const auto& tensor : listed) {
            std::int64_t elements = times;
            for (const std::int64_t extent : tensor.shape) elements *= extent;
            sum.all += tensor.copies * elements;
            sum.active += tensor.copies_of_token * elements;
        }
    };
    add(tensors(model, ModelPart::embedding, model.embedding.vocab), 1);
    add(tensors(model, ModelPart::shared_by_layers), 1);
    std::vector<std::int64_t> layers(model.kinds.size());
    for (const std::uint16_t kind : model.kind_of_layer) ++layers.at(kind);
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
        add(tensors(model.kinds[kind], model.hidden), layers[kind]);
        add(model.kinds[kind].counted, layers[kind]);
    }
    add(tensors(model, ModelPart::stream_end), 1);
    const bool counted = std::any_of(model.kinds.begin(), model.kinds.end(), [](const Layer& layer) { return !layer.counted.empty(); });
    if (!counted) add(tensors(model, ModelPart::final_norm), 1);
    const std::int64_t rows = model.head.labels.value_or(model.embedding.vocab);
    if (!model.head.tied) add(tensors(model, ModelPart::output, rows), 1);
    if (model.head.bias) add(tensors(model, ModelPart::output_bias, rows), 1);
    add(model.counted, 1);
    return sum;
}

}  // namespace mgplan
