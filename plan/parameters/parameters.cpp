#include "plan/parameters/parameters.hpp"

#include <fmt/core.h>

#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/divide.hpp"
#include "plan/parameters/model_adapter.hpp"

namespace mgplan {
namespace {

ParallelSizes sizes_of_layer(std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    ParallelSizes sizes;
    sizes.tp = tp;
    sizes.ep = ep;
    sizes.etp = etp;
    return sizes;
}

/// A layer with the feed-forward of a kind, of a model that fields describe.
Layer layer_of_kind(ModelSpec model, LayerKind kind) {
    model.layers = 1;
    model.rotary_layers.clear();
    if (model.moe) model.moe_layers.assign(1, kind == LayerKind::moe);
    return typed_layer(model, 0);
}

void add_prediction(std::vector<Parameter>& parameters, const Layer& layer, const Model& ends, const ParallelSizes& sizes,
                    const std::string& prefix) {
    add_shards(parameters, tensors(ends, ModelPart::prediction_start), sizes, prefix);
    add_shards(parameters, tensors(layer, ends.hidden), sizes, prefix + "transformer_layer.");
    add_shards(parameters, tensors(ends, ModelPart::prediction_end), sizes, prefix);
}

}  // namespace

std::int64_t Parameter::count() const {
    std::int64_t product = 1;
    for (const auto extent : shape) product *= extent;
    return product;
}

bool packed_heads_divide(const Attention& attention, std::int64_t tp) {
    if (attention.kv_heads % tp == 0) return true;
    return tp % attention.kv_heads == 0 && (attention.heads + 2 * attention.kv_heads) * attention.head_dim % tp == 0;
}

bool packed_heads_divide(const ModelSpec& model, std::int64_t tp) {
    Attention attention;
    attention.heads = model.heads;
    attention.kv_heads = model.kv_heads;
    attention.head_dim = model.head_dim;
    return model.mla || packed_heads_divide(attention, tp);
}

std::vector<Parameter> layer_parameters(const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep, std::int64_t etp,
                                        const std::string& prefix) {
    std::vector<Parameter> parameters;
    add_shards(parameters, tensors(layer_of_kind(model, kind), model.hidden), sizes_of_layer(tp, ep, etp), prefix);
    return parameters;
}

std::vector<Parameter> decoder_layer_parameters(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes,
                                                const std::string& prefix) {
    std::vector<Parameter> parameters;
    add_shards(parameters, tensors(typed_layer(model, layer), model.hidden), sizes, prefix);
    return parameters;
}

ParameterCount layer_parameter_count(const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    return count_shards(tensors(layer_of_kind(model, kind), model.hidden), sizes_of_layer(tp, ep, etp));
}

ParameterCount decoder_layer_parameter_count(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes) {
    return count_shards(tensors(typed_layer(model, layer), model.hidden), sizes);
}

ParameterCount mtp_layer_parameter_count(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    const ParallelSizes sizes = sizes_of_layer(tp, ep, etp);
    const Model ends = typed_ends(model);
    ParameterCount count = decoder_layer_parameter_count(model, model.layers, sizes);
    for (const ModelPart part : {ModelPart::prediction_start, ModelPart::prediction_end}) count += count_shards(tensors(ends, part), sizes);
    return count;
}

ParameterCount embedding_parameter_count(const ModelSpec& model, std::int64_t tp) {
    const ParallelSizes sizes = sizes_of_layer(tp, 1, 1);
    const Model ends = typed_ends(model);
    ParameterCount count = count_shards(tensors(ends, ModelPart::embedding, model.padded_vocab(tp)), sizes);
    count += count_shards(tensors(ends, ModelPart::shared_by_layers), sizes);
    return count;
}

ParameterCount head_parameter_count(const ModelSpec& model, std::int64_t tp, bool copy_of_embedding) {
    const ParallelSizes sizes = sizes_of_layer(tp, 1, 1);
    const Model ends = typed_ends(model);
    const std::int64_t rows = model.output_rows(tp);
    ParameterCount count = count_shards(tensors(ends, ModelPart::stream_end), sizes);
    count += count_shards(tensors(ends, ModelPart::final_norm), sizes);
    if (model.output_bias) count += count_shards(tensors(ends, ModelPart::output_bias, rows), sizes);
    if (!model.tied_embeddings || copy_of_embedding) count += count_shards(tensors(ends, ModelPart::output, rows), sizes);
    return count;
}

ModelSpec as_built_by(Engine engine, ModelSpec model) {
    if (engine == Engine::megatron && model.mla && model.kinds.empty())
        model.mla->query_norm = model.qk_norm && model.mla->q_lora_rank == 0;
    return model;
}

bool has_final_norm(const ModelSpec& model, Engine engine, const StageChunk& chunk) {
    // A hybrid pattern's norm is where its last stage is (core/models/hybrid/hybrid_block.py).
    const bool after_decoder = engine == Engine::megatron && model.mtp_layers > 0 && model.kinds.empty();
    if (!after_decoder) return chunk.loss;
    return chunk.decoders > 0 && chunk.first_decoder + chunk.decoders == model.layers;
}

std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ParallelSizes& sizes, const StageChunk& chunk) {
    return chunk_parameters(model, sizes, chunk, chunk.loss);
}

ChunkLayers chunk_layers(const ModelSpec& model, const StageChunk& chunk) {
    ChunkLayers layers;
    for (std::int64_t i = 0; i < chunk.decoders; ++i) layers.decoders.push_back(typed_layer(model, chunk.first_decoder + i));
    if (chunk.mtp > 0) layers.prediction = typed_layer(model, model.layers);
    return layers;
}

std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ParallelSizes& sizes, const StageChunk& chunk, bool final_norm) {
    refuse_counted_only(model, model.name);
    return chunk_parameters(model, chunk_layers(model, chunk), sizes, chunk, final_norm);
}

std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ChunkLayers& layers, const ParallelSizes& sizes,
                                        const StageChunk& chunk, bool final_norm) {
    // With several stages the first one's embedding is kept equal to its copies: the tied output layer, MTP's embedding.
    const bool shared = sizes.pp > 1 && (model.tied_embeddings || model.mtp_layers > 0);
    const Model ends = typed_ends(model);
    std::vector<Parameter> parameters;
    const auto add = [&](ModelPart part, std::int64_t rows = 0) { add_shards(parameters, tensors(ends, part, rows), sizes, ""); };
    if (chunk.embedding || chunk.mtp > 0) {
        add(ModelPart::embedding, model.padded_vocab(sizes.tp));
        parameters.front().shared_embedding = shared;
        parameters.front().embedding_copy = shared && !chunk.embedding;
    }
    if (chunk.embedding) add(ModelPart::shared_by_layers);
    if (chunk.loss) add(ModelPart::stream_end);
    std::int64_t number = chunk.first_decoder;
    for (const Layer& layer : layers.decoders)
        add_shards(parameters, tensors(layer, model.hidden), sizes, fmt::format("decoder.layers.{}.", number++));
    if (final_norm) add(ModelPart::final_norm);
    for (std::int64_t i = 0; i < model.mtp_weights(chunk.mtp); ++i)
        add_prediction(parameters, *layers.prediction, ends, sizes, fmt::format("mtp.layers.{}.", i));
    if (chunk.loss && (!model.tied_embeddings || !chunk.embedding)) {
        add(ModelPart::output, model.output_rows(sizes.tp));
        parameters.back().shared_embedding = parameters.back().embedding_copy = shared && model.tied_embeddings;
    }
    if (chunk.loss && model.output_bias) add(ModelPart::output_bias, model.output_rows(sizes.tp));
    return parameters;
}

std::vector<std::vector<Parameter>> stage_parameters(const ModelSpec& model, const Layout& layout, int pp_rank, Engine engine) {
    const ModelSpec built = as_built_by(engine, model);
    std::vector<std::vector<Parameter>> chunks;
    for (int c = 0; c < layout.vpp; ++c) {
        const StageChunk& chunk = layout.split->chunk(pp_rank, c);
        chunks.push_back(chunk_parameters(built, layout.sizes, chunk, has_final_norm(built, engine, chunk)));
    }
    return chunks;
}

ParameterCount stage_parameter_count(const ModelSpec& model, const Layout& layout, int pp_rank) {
    refuse_counted_only(model, model.name);
    const ParallelSizes& sizes = layout.sizes;
    ParameterCount count;
    for (int chunk = 0; chunk < layout.vpp; ++chunk) {
        const StageChunk& stage = layout.split->chunk(pp_rank, chunk);
        if (stage.embedding || stage.mtp > 0) count += embedding_parameter_count(model, sizes.tp);
        for (std::int64_t i = 0; i < stage.decoders; ++i) count += decoder_layer_parameter_count(model, stage.first_decoder + i, sizes);
        const std::int64_t copies = model.mtp_weights(stage.mtp);
        for (std::int64_t i = 0; i < copies; ++i) count += mtp_layer_parameter_count(model, sizes.tp, sizes.ep, sizes.etp);
        if (stage.loss) count += head_parameter_count(model, sizes.tp, !stage.embedding);
    }
    return count;
}

std::int64_t total_parameters(const ModelSpec& model) {
    return count_parameters(typed_model(model)).all;
}

std::int64_t active_parameters(const ModelSpec& model) {
    return count_parameters(typed_model(model)).active;
}

}  // namespace mgplan
