#include "plan/parameters/model_adapter.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/member_parts.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

Norm norm_of(const ModelSpec& spec) {
    return {.kind = spec.normalization,
            .weight = spec.norm_weight,
            .bias = spec.normalization == Normalization::layer_norm && spec.norm_bias && spec.norm_weight,
            .epsilon = spec.norm_epsilon};
}

Rotary stated_rotary(const ModelSpec& spec, std::int64_t layer) {
    Rotary rotary;
    rotary.fraction = spec.rotary_fraction;
    rotary.base = spec.rotary_base;
    rotary.interleaved = spec.rotary_interleaved;
    if (spec.window_rotary_base > 0 && spec.window_of_layer(layer) > 0) {
        rotary.base = spec.window_rotary_base;
    } else {
        rotary.scaling = spec.rotary_scaling;
        rotary.scaling_values = spec.rotary_scaling_values;
    }
    return rotary;
}

AttentionScores scores_of(const ModelSpec& spec) {
    return {.multiplier = spec.attention_multiplier,
            .softcap = spec.attention_softcap,
            .dropout = spec.attention_dropout,
            .sinks = spec.attention_sinks};
}

}  // namespace

/// Decoder layers of multi-token prediction have the rotary positions of the last layer.
std::optional<Rotary> rotary_of(const ModelSpec& spec, std::int64_t layer) {
    const auto of_layer = static_cast<std::size_t>(std::min(layer, spec.layers - 1));
    if (spec.position != PositionEmbedding::rope || (!spec.rotary_layers.empty() && !spec.rotary_layers.at(of_layer))) return std::nullopt;
    return stated_rotary(spec, layer);
}

Attention attention_of(const ModelSpec& spec, std::int64_t layer) {
    const QkNorm norm = !spec.qk_norm             ? QkNorm::none
                        : spec.qk_norm_per_head   ? QkNorm::per_head
                        : spec.qk_norm_full_width ? QkNorm::full_width
                                                  : QkNorm::shared_by_heads;
    return {.heads = spec.heads,
            .kv_heads = spec.kv_heads,
            .head_dim = spec.head_dim,
            .rotary = rotary_of(spec, layer),
            .qkv_bias = spec.qkv_bias,
            .output_bias = spec.attention_output_bias,
            .output_gate = spec.attention_output_gate,
            .qk_norm = norm,
            .qk_norm_after_rotary = spec.qk_norm_behind_rotary,
            .qkv_clip = spec.qkv_clip,
            .scores = scores_of(spec)};
}

LatentAttention latent_attention_of(const ModelSpec& spec, std::int64_t layer) {
    LatentAttention attention{.heads = spec.heads,
                              .rotary = {},
                              .latent_norms = spec.qk_norm,
                              .query_norm = spec.mla->query_norm,
                              .latent_norm_epsilon = spec.mla->norm_epsilon,
                              .output_bias = spec.attention_output_bias,
                              .scores = scores_of(spec)};
    for (const auto& [field, member] : kLatentFields) attention.*member = (*spec.mla).*field;
    // Its part of the heads turns whatever positions other layers have (Megatron-core transformer/multi_latent_attention.py).
    if (spec.rotary_fraction > 0) attention.rotary = stated_rotary(spec, layer);
    return attention;
}

Mlp mlp_of(const ModelSpec& spec) {
    return {.width = spec.ffn,
            .activation = spec.activation,
            .gated = spec.gated_mlp,
            .bias = spec.mlp_bias,
            .gate_multiplier = spec.branch_multipliers.mlp_gate,
            .output_multiplier = spec.branch_multipliers.mlp_output};
}

Mixture mixture_of(const ModelSpec& spec) {
    Mixture mixture{.activation = spec.activation, .gated = spec.gated_mlp, .bias = spec.mlp_bias};
    std::apply([&](const auto&... pairs) { ((mixture.*pairs.second = (*spec.moe).*pairs.first), ...); }, kMixtureFields);
    return mixture;
}

Layer frame_of(const ModelSpec& spec) {
    Layer layer;
    layer.norms = {.norm = norm_of(spec), .before = spec.pre_norms, .after = spec.post_norms, .order = spec.order};
    layer.residual.multiplier = spec.residual_multiplier;
    layer.residual.dropout = spec.hidden_dropout;
    layer.residual.hyper_connections = spec.hyper_connections;
    if (spec.normed_residual)
        layer.residual.normed_path = NormedPath{.mixer = spec.normed_residual->attention, .feed_forward = spec.normed_residual->mlp};
    layer.adapters = spec.adapters;
    return layer;
}

namespace {

Layer layer_of_fields(const ModelSpec& spec, std::int64_t number) {
    Layer layer = frame_of(spec);
    layer.window = spec.window_of_layer(number);
    if (spec.mla)
        layer.mixer = latent_attention_of(spec, number);
    else
        layer.mixer = attention_of(spec, number);
    if (spec.is_moe_layer(number))
        layer.feed_forward = mixture_of(spec);
    else
        layer.feed_forward = mlp_of(spec);
    return layer;
}

std::vector<CountedTensor> counted_tensors(const std::vector<LayerPart>& parts, std::int64_t hidden) {
    std::vector<CountedTensor> all;
    for (const LayerPart& part : parts) {
        for (CountedTensor& tensor : part_tensors(part, hidden)) all.push_back(std::move(tensor));
    }
    return all;
}

/// True if mgplan computes all parts, whatever follows the layers.
bool parts_are_computed(ModelSpec spec) {
    spec.labels.reset();
    spec.word_width = spec.mtp_layers = 0;
    return is_computed(spec);
}

const LayerComposition& composition_at(const ModelSpec& spec, std::int64_t number) {
    return spec.compositions.at(spec.kind_of_parts(number));
}

Model without_layers(const ModelSpec& spec) {
    Model model;
    model.name = spec.name;
    model.source = spec.source;
    model.type = spec.type;
    model.assumed_architecture = spec.assumed_architecture;
    model.left_out = spec.left_out;
    model.hidden = spec.hidden;
    model.max_positions = spec.max_positions;
    model.init_deviation = spec.init_deviation;
    model.default_sequence = spec.default_sequence;
    model.default_global_batch = spec.default_global_batch;
    model.embedding = {.vocab = spec.vocab,
                       .vocab_divisor = spec.vocab_divisor,
                       .padded_rows = spec.padded_rows,
                       .word_width = spec.word_width,
                       .learned_positions = spec.position == PositionEmbedding::learned ? spec.max_positions : 0,
                       .token_types = spec.token_types,
                       .norm = spec.embedding_norm,
                       .multiplier = spec.embedding_multiplier,
                       .dropout = spec.hidden_dropout};
    model.head = {.norm = norm_of(spec),
                  .tied = spec.tied_embeddings,
                  .bias = spec.output_bias,
                  .labels = spec.labels,
                  .logit_multiplier = spec.logit_multiplier,
                  .logit_softcap = spec.logit_softcap};
    return model;
}

}  // namespace

bool carries_state(const Mixer& mixer) {
    return !std::holds_alternative<Attention>(mixer) && !std::holds_alternative<LatentAttention>(mixer);
}

Layer typed_layer(const ModelSpec& spec, std::int64_t layer) {
    if (spec.compositions.empty()) return layer_of_fields(spec, layer);
    return typed_layer(spec, composition_at(spec, layer), layer);
}

Model typed_ends(const ModelSpec& spec) {
    Model model = without_layers(spec);
    if (spec.compositions.empty()) model.kinds.push_back(layer_of_fields(spec, 0));
    for (const LayerComposition& kind : spec.compositions) model.kinds.push_back(typed_layer(spec, kind, 0));
    return model;
}

Model typed_model(const ModelSpec& spec, const MegatronSwitches& switches) {
    Model model = without_layers(spec);
    const bool of_parts = !spec.compositions.empty(), computed = parts_are_computed(spec);
    if (!of_parts || !computed) model.counted = counted_tensors(spec.beside_layers, spec.hidden);
    LayerKindIndex kinds(model.kinds);
    for (std::int64_t number = 0; number < spec.layers; ++number) {
        Layer layer;
        if (!of_parts) {
            layer = layer_of_fields(spec, number);
        } else {
            const LayerComposition& composition = composition_at(spec, number);
            if (computed)
                layer = typed_layer(spec, composition, number);
            else
                layer.counted = counted_tensors(composition.parts, spec.hidden);
        }
        if (number < switches.bf16_layers_at_start || number >= spec.layers - switches.bf16_layers_at_end)
            layer.precision = LayerPrecision::bf16;  // core/fp8_utils.py, is_first_last_bf16_layer
        model.kind_of_layer.push_back(kinds.index_of(layer));
    }
    if (spec.mtp_layers > 0) {
        const bool counted = of_parts && !computed;  // of the last layer's kind then
        model.prediction = Prediction{.depths = spec.mtp_layers,
                                      .repeated = spec.mtp_repeated,
                                      .loss_factor = spec.mtp_loss_factor,
                                      .kind = counted ? model.kind_of_layer.back() : kinds.index_of(typed_layer(spec, spec.layers))};
    }
    return model;
}

}  // namespace mgplan
