#include "plan/parameters/parameters.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/computed_parts.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameter_list.hpp"

namespace mgplan {
namespace {

/// Weights of one norm over `width` values: LayerNorm may have a bias beside its scale.
std::int64_t norm_count(const ModelSpec& model, std::int64_t width) {
    if (!model.norm_weight) return 0;
    return norms_have_bias(model) ? 2 * width : width;
}

/// Norms of the residual stream in a layer.
std::int64_t norms_of_layer(const ModelSpec& model) {
    const std::int64_t in_front = !model.pre_norms ? 0 : model.order == LayerOrder::parallel_shared_norm ? 1 : 2;
    return in_front + (model.post_norms ? 2 : 0);
}

std::int64_t attention_count(const ModelSpec& model, std::int64_t tp) {
    const std::int64_t hidden = model.hidden, heads = model.heads / tp;
    std::int64_t count = hidden * heads * model.v_head_dim();  // output projection
    if (model.attention_output_bias) count += hidden;
    if (model.attention_sinks) count += heads;
    if (model.mla) {
        // Down projections and latent norms are whole on every rank, up projections divided over tp.
        const MlaSpec& mla = *model.mla;
        const std::int64_t query_width = heads * model.qk_head_dim();
        if (mla.q_lora_rank > 0) {
            count += hidden * mla.q_lora_rank + mla.q_lora_rank * query_width;
            if (model.qk_norm) count += norm_count(model, mla.q_lora_rank);
        } else {
            count += hidden * query_width;
        }
        count += hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim);
        if (model.qk_norm) count += norm_count(model, mla.kv_lora_rank);
        // The indexer is whole on every rank: queries, one key with a LayerNorm, a weight for each head.
        if (mla.index_heads > 0)
            count += mla.index_heads * mla.index_head_dim * mla.q_lora_rank + mla.index_head_dim * (hidden + 2) + mla.index_heads * hidden;
        return count;
    }
    const std::int64_t qkv_width = packed_rows(model, tp);
    count += hidden * qkv_width;
    if (model.qkv_bias) count += qkv_width;
    if (model.qk_norm) {
        const std::int64_t all_heads = (model.heads + model.kv_heads) * model.head_dim / tp;
        if (model.qk_norm_per_head)
            count += all_heads;  // they have no biases
        else
            count += norm_count(model, model.qk_norm_full_width ? all_heads : 2 * model.head_dim);
    }
    return count;
}

/// What mixes the residual streams of a layer: for each half a matrix, biases and three scales.
std::int64_t stream_maps_count(const ModelSpec& model) {
    return model.hyper_connections ? 2 * (model.hyper_connections->maps() * (model.stream_width() + 1) + 3) : 0;
}

/// What brings streams that maps mix together in front of the last norm.
std::int64_t stream_head_count(const ModelSpec& model) {
    if (!model.hyper_connections || !model.hyper_connections->learned_head) return 0;
    return model.streams() * (model.stream_width() + 1) + 1;
}

void add_stream_head(ParameterList& list, const ModelSpec& model) {
    if (stream_head_count(model) == 0) return;
    list.add("decoder.hc_head_fn", {model.streams(), model.stream_width()}, PartialGradient::sequence_parallel);
    list.add("decoder.hc_head_base", {model.streams()}, PartialGradient::sequence_parallel);
    list.add("decoder.hc_head_scale", {1}, PartialGradient::sequence_parallel);
}

/// One MLP of width `ffn` divided over `tp`, between rows of `outer` values.
std::int64_t mlp_count(const ModelSpec& model, std::int64_t outer, std::int64_t ffn, std::int64_t tp, bool bias) {
    const std::int64_t width = ffn / tp, first = model.gated_mlp ? 2 * width : width;
    return outer * (first + width) + (bias ? first + outer : 0);
}

LayerKind kind_of_layer(const ModelSpec& model, std::int64_t layer) {
    return model.is_moe_layer(layer) ? LayerKind::moe : LayerKind::dense;
}

/// The kind of an MTP layer: that of the last decoder layer.
LayerKind mtp_kind(const ModelSpec& model) {
    return kind_of_layer(model, model.layers - 1);
}

/// `shared`: other stages hold the table too; `copy`: this is not the first stage's.
void add_embedding(std::vector<Parameter>& parameters, const ModelSpec& model, std::int64_t tp, bool shared, bool copy) {
    ParameterList list(parameters, "embedding.");
    Parameter& words = list.add_sharded("word_embeddings.weight", {model.padded_vocab(tp) / tp, model.hidden}, 0);
    words.shared_embedding = shared;
    words.embedding_copy = shared && copy;
    if (model.position == PositionEmbedding::learned)
        list.add("position_embeddings.weight", {model.max_positions, model.hidden}, PartialGradient::never);
    if (model.token_types > 0) list.add("tokentype_embeddings.weight", {model.token_types, model.hidden}, PartialGradient::never);
    if (model.embedding_norm) list.add_norm(model, "norm.weight", "norm.bias", model.hidden);
}

/// What layers share, in front of them.
void add_shared_parts(std::vector<Parameter>& parameters, const ModelSpec& model, std::int64_t tp) {
    for (std::size_t place = 0; place < model.beside_layers.size(); ++place) {
        const LayerPart& part = model.beside_layers[place];
        const ComputedBeside* const beside = find_computed_beside(part);
        if (beside != nullptr && beside->add_parameters != nullptr)
            beside->add_parameters(parameters, model, stated_sizes(part, model.hidden), place, tp);
    }
}

/// What stands behind the layers, but for the last norm.
void add_parts_behind(std::vector<Parameter>& parameters, const ModelSpec& model) {
    ParameterList list(parameters, "");
    add_stream_head(list, model);
    for (const LayerPart& part : model.beside_layers) {
        const ComputedBeside* const beside = find_computed_beside(part);
        if (beside != nullptr && beside->add_behind != nullptr) beside->add_behind(parameters, model, stated_sizes(part, model.hidden));
    }
}

std::int64_t count_of(const std::vector<Parameter>& parameters) {
    std::int64_t count = 0;
    for (const Parameter& parameter : parameters) count += parameter.count();
    return count;
}

/// Parameters of a chunk's layers, each kind counted once.
ParameterCount composed_count(const ModelSpec& model, const ParallelSizes& sizes, const StageChunk& chunk) {
    std::vector<std::int64_t> layers(model.compositions.size());
    for (std::int64_t i = 0; i < chunk.decoders; ++i)
        ++layers.at(model.composition_of_layer.at(static_cast<std::size_t>(chunk.first_decoder + i)));
    ParameterCount sum;
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
        if (layers[kind] == 0) continue;
        std::vector<Parameter> parameters;
        ParameterList list(parameters, "");
        add_composed_layer(list, computed_layer(model, model.compositions[kind]).value(), sizes);
        for (const Parameter& parameter : parameters) (parameter.expert ? sum.expert : sum.dense) += layers[kind] * parameter.count();
    }
    return sum;
}

}  // namespace

std::int64_t Parameter::count() const {
    std::int64_t product = 1;
    for (const auto extent : shape) product *= extent;
    return product;
}

bool is_linear_weight(const Parameter& parameter) {
    if (parameter.shape.size() != 2) return false;
    for (const std::string_view linear : {"linear_", "eh_proj", "latent_proj", "in_proj.weight", "out_proj.weight"}) {
        if (parameter.name.find(linear) != std::string::npos) return true;
    }
    return false;
}

bool packed_heads_divide(const ModelSpec& model, std::int64_t tp) {
    if (model.mla || model.kv_heads % tp == 0) return true;
    return tp % model.kv_heads == 0 && (model.heads + 2 * model.kv_heads) * model.head_dim % tp == 0;
}

std::vector<Parameter> layer_parameters(const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep, std::int64_t etp,
                                        const std::string& prefix) {
    std::vector<Parameter> parameters;
    add_layer(parameters, model, kind, tp, ep, etp, prefix);
    return parameters;
}

std::vector<Parameter> decoder_layer_parameters(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes,
                                                const std::string& prefix) {
    std::vector<Parameter> parameters;
    if (model.compositions.empty()) {
        add_layer(parameters, model, kind_of_layer(model, layer), sizes.tp, sizes.ep, sizes.etp, prefix);
    } else {
        ParameterList list(parameters, prefix);
        add_composed_layer(list, composed_layer(model, layer), sizes);
    }
    return parameters;
}

ParameterCount layer_parameter_count(const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    ParameterCount count;
    count.dense = attention_count(model, tp) + norms_of_layer(model) * norm_count(model, model.hidden) + stream_maps_count(model);
    if (kind == LayerKind::dense) {
        count.dense += mlp_count(model, model.hidden, model.ffn, tp, model.mlp_bias) + (model.activation == Activation::xielu ? 2 : 0);
        return count;
    }
    const MoeSpec& moe = *model.moe;
    count.dense += moe.experts * model.hidden + (moe.router_bias ? moe.experts : 0) + 2 * model.hidden * moe.latent;
    if (moe.branch_norms) count.dense += moe.experts + (moe.shared_ffn > 0 ? 4 : 3) * norm_count(model, model.hidden);
    if (moe.shared_ffn > 0) count.dense += mlp_count(model, model.hidden, moe.shared_ffn, tp, false) + (moe.shared_gate ? model.hidden : 0);
    count.expert = moe.experts / ep * mlp_count(model, model.routed_width(), moe.expert_ffn, etp, model.mlp_bias);
    return count;
}

ParameterCount mtp_layer_parameter_count(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    ParameterCount count = layer_parameter_count(model, mtp_kind(model), tp, ep, etp);
    count.dense += 3 * norm_count(model, model.hidden) + model.hidden / tp * 2 * model.hidden;
    return count;
}

ParameterCount embedding_parameter_count(const ModelSpec& model, std::int64_t tp) {
    std::int64_t rows = model.padded_vocab(tp) / tp + model.token_types;
    if (model.position == PositionEmbedding::learned) rows += model.max_positions;
    std::vector<Parameter> shared;
    add_shared_parts(shared, model, tp);
    return {.dense = rows * model.hidden + (model.embedding_norm ? norm_count(model, model.hidden) : 0) + count_of(shared)};
}

ParameterCount head_parameter_count(const ModelSpec& model, std::int64_t tp, bool copy_of_embedding) {
    const std::int64_t rows = model.output_rows(tp) / tp;
    std::vector<Parameter> behind;
    add_parts_behind(behind, model);
    ParameterCount count{.dense = norm_count(model, model.hidden) + count_of(behind) + (model.output_bias ? rows : 0)};
    if (!model.tied_embeddings || copy_of_embedding) count.dense += rows * model.hidden;
    return count;
}

std::vector<Parameter> chunk_parameters(const ModelSpec& model, const ParallelSizes& sizes, const StageChunk& chunk) {
    refuse_counted_only(model, model.name);
    // With several stages the first one's embedding is kept equal to its copies: the tied output layer, MTP's embedding.
    const bool shared = sizes.pp > 1 && (model.tied_embeddings || model.mtp_layers > 0);
    std::vector<Parameter> parameters;
    if (chunk.embedding || chunk.mtp > 0) add_embedding(parameters, model, sizes.tp, shared, !chunk.embedding);
    if (chunk.embedding) add_shared_parts(parameters, model, sizes.tp);
    ParameterList list(parameters, "");
    if (chunk.loss) add_parts_behind(parameters, model);
    for (std::int64_t i = 0; i < chunk.decoders; ++i) {
        const std::int64_t layer = chunk.first_decoder + i;
        for (Parameter& parameter : decoder_layer_parameters(model, layer, sizes, fmt::format("decoder.layers.{}.", layer)))
            parameters.push_back(std::move(parameter));
    }
    if (chunk.loss) list.add_norm(model, "decoder.final_layernorm.weight", "decoder.final_layernorm.bias", model.hidden);
    for (std::int64_t i = 0; i < model.mtp_weights(chunk.mtp); ++i) {
        const std::string prefix = fmt::format("mtp.layers.{}.", i);
        ParameterList mtp(parameters, prefix);
        mtp.add_norm(model, "enorm.weight", "enorm.bias", model.hidden);
        mtp.add_norm(model, "hnorm.weight", "hnorm.bias", model.hidden);
        mtp.add_sharded("eh_proj.weight", {model.hidden / sizes.tp, 2 * model.hidden}, 0);
        add_layer(parameters, model, mtp_kind(model), sizes.tp, sizes.ep, sizes.etp, prefix + "transformer_layer.");
        mtp.add_norm(model, "final_layernorm.weight", "final_layernorm.bias", model.hidden);
    }
    if (chunk.loss && (!model.tied_embeddings || !chunk.embedding)) {
        Parameter& output = list.add_sharded("output_layer.weight", {model.output_rows(sizes.tp) / sizes.tp, model.hidden}, 0);
        output.shared_embedding = output.embedding_copy = shared && model.tied_embeddings;
    }
    if (chunk.loss && model.output_bias) list.add_sharded("output_layer.bias", {model.output_rows(sizes.tp) / sizes.tp}, 0);
    return parameters;
}

std::vector<std::vector<Parameter>> stage_parameters(const ModelSpec& model, const Layout& layout, int pp_rank) {
    std::vector<std::vector<Parameter>> chunks;
    for (int chunk = 0; chunk < layout.vpp; ++chunk)
        chunks.push_back(chunk_parameters(model, layout.sizes, layout.split->chunk(pp_rank, chunk)));
    return chunks;
}

ParameterCount stage_parameter_count(const ModelSpec& model, const Layout& layout, int pp_rank) {
    refuse_counted_only(model, model.name);
    const ParallelSizes& sizes = layout.sizes;
    std::int64_t dense_layers = 0, moe_layers = 0;
    ParameterCount count;
    for (int chunk = 0; chunk < layout.vpp; ++chunk) {
        const StageChunk& stage = layout.split->chunk(pp_rank, chunk);
        if (stage.embedding || stage.mtp > 0) count += embedding_parameter_count(model, sizes.tp);
        if (!model.compositions.empty()) {
            count += composed_count(model, sizes, stage);
        } else {
            for (std::int64_t i = 0; i < stage.decoders; ++i) ++(model.is_moe_layer(stage.first_decoder + i) ? moe_layers : dense_layers);
        }
        if (stage.mtp > 0) {
            const ParameterCount layer = mtp_layer_parameter_count(model, sizes.tp, sizes.ep, sizes.etp);
            const std::int64_t copies = model.mtp_weights(stage.mtp);
            count += {.dense = copies * layer.dense, .expert = copies * layer.expert};
        }
        if (stage.loss) count += head_parameter_count(model, sizes.tp, !stage.embedding);
    }
    if (dense_layers > 0) count.dense += dense_layers * layer_parameter_count(model, LayerKind::dense, sizes.tp, 1, 1).dense;
    if (moe_layers > 0) {
        const ParameterCount layer = layer_parameter_count(model, LayerKind::moe, sizes.tp, sizes.ep, sizes.etp);
        count += {.dense = moe_layers * layer.dense, .expert = moe_layers * layer.expert};
    }
    return count;
}

namespace {

PartCount count_compositions(const ModelSpec& model) {
    PartCount sum;
    for (std::size_t kind = 0; kind < model.compositions.size(); ++kind) {
        const PartCount one = count_parts(model.compositions[kind].parts, model.hidden);
        const auto layers = std::count(model.composition_of_layer.begin(), model.composition_of_layer.end(), kind);
        sum.all += layers * one.all;
        sum.used += layers * one.used;
    }
    return sum;
}

}  // namespace

std::int64_t total_parameters(const ModelSpec& model) {
    const std::int64_t words = model.vocab + (model.labels ? *model.labels : model.tied_embeddings ? 0 : model.vocab);
    const std::int64_t rows = model.token_types + (model.position == PositionEmbedding::learned ? model.max_positions : 0);
    std::int64_t count = rows * model.hidden + words * (model.word_width > 0 ? model.word_width : model.hidden) +
                         2 * model.word_width * model.hidden + (model.output_bias ? model.labels.value_or(model.vocab) : 0) +
                         count_parts(model.beside_layers, model.hidden).all;
    // The final norm of composed models stands among the parts beside the layers.
    if (!model.compositions.empty()) return count + count_compositions(model).all;
    count += (model.embedding_norm ? 2 : 1) * norm_count(model, model.hidden) + stream_head_count(model);
    std::int64_t moe_layers = 0;
    for (const bool moe : model.moe_layers) moe_layers += moe ? 1 : 0;
    if (moe_layers < model.layers) count += (model.layers - moe_layers) * layer_parameter_count(model, LayerKind::dense, 1, 1, 1).total();
    if (moe_layers > 0) count += moe_layers * layer_parameter_count(model, LayerKind::moe, 1, 1, 1).total();
    return count;
}

std::int64_t active_parameters(const ModelSpec& model) {
    std::int64_t count = total_parameters(model);
    if (!model.compositions.empty()) {
        const PartCount layers = count_compositions(model);
        return count - layers.all + layers.used;
    }
    if (!model.moe) return count;
    const MoeSpec& moe = *model.moe;
    for (const bool layer : model.moe_layers) {
        if (layer) count -= (moe.experts - moe.top_k) * mlp_count(model, model.routed_width(), moe.expert_ffn, 1, model.mlp_bias);
    }
    return count;
}

}  // namespace mgplan
