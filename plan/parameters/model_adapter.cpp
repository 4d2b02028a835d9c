#include "plan/parameters/model_adapter.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/member_fields.hpp"
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

Rotary rotary_of_all(const ModelSpec& spec) {
    return rotary_of(spec, 0).value_or(Rotary{});
}

// Sets members of a half that fields state for all layers. `number`: of the layer.

void add_fields(Attention& attention, const ModelSpec& spec, std::int64_t number) {
    const Attention fields = attention_of(spec, number);
    if (attention.rotary) attention.rotary = fields.rotary;
    attention.qk_norm_after_rotary = fields.qk_norm_after_rotary;
    attention.qkv_clip = fields.qkv_clip;
    attention.scores = fields.scores;
}

/// All but its heads are in MlaSpec.
void add_fields(LatentAttention& attention, const ModelSpec& spec, std::int64_t number) {
    const std::int64_t heads = attention.heads;
    attention = latent_attention_of(spec, number);
    attention.heads = heads;
    attention.latent_norms = true;
    if (spec.position == PositionEmbedding::none) attention.rotary.reset();
}

/// Gemma's and compressed attention always rotate; mixers without attention have nothing from fields.
template <class Kind>
void add_fields(Kind& mixer, const ModelSpec& spec, std::int64_t /*number*/) {
    if constexpr (requires { mixer.rotary; }) mixer.rotary = rotary_of_all(spec);
}

void add_fields(Mlp& mlp, const ModelSpec& spec, std::int64_t /*number*/) {
    mlp.gate_multiplier = spec.branch_multipliers.mlp_gate;
    mlp.output_multiplier = spec.branch_multipliers.mlp_output;
}

void add_fields(Gemma3nLayer& layer, const ModelSpec& spec, std::int64_t number) {
    add_fields(layer.attention, spec, number);
    add_fields(layer.mlp, spec, number);
}

void add_fields(AttentionBesideMamba2& mixer, const ModelSpec& spec, std::int64_t /*number*/) {
    add_fields(mixer.attention, spec, 0);
    for (const auto& [field, member] : kBesideMultipliers) mixer.*member = spec.branch_multipliers.*field;
}

void add_fields(SharedBlockMamba2& mixer, const ModelSpec& spec, std::int64_t /*number*/) {
    if (mixer.block.rotary) mixer.block.rotary = rotary_of_all(spec);
}

void add_fields(GatedDeltaNet& net, const ModelSpec& spec, std::int64_t /*number*/) {
    net.norm_epsilon = spec.state_norm_epsilon;
}

/// All but these members are in MoeSpec.
void add_fields(Mixture& mixture, const ModelSpec& spec, std::int64_t /*number*/) {
    Mixture fields = mixture_of(spec);
    fields.activation = mixture.activation;
    fields.gated = mixture.gated;
    fields.bias = mixture.bias;
    fields.choosing_words = mixture.choosing_words;
    mixture = fields;
}

/// A layer as the list of its tensors.
Layer counted_layer(const ModelSpec& spec, std::int64_t number) {
    Layer layer;
    layer.counted = spec.kinds.at(spec.kind_at(number)).layer.counted;
    if (!layer.counted.empty()) return layer;
    for (LayerTensor& tensor : tensors(typed_layer(spec, number), spec.hidden))
        layer.counted.push_back({std::move(tensor.name), std::move(tensor.shape), tensor.copies, tensor.copies_of_token});
    return layer;
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

Layer with_fields(const ModelSpec& spec, const Layer& kind, std::int64_t number) {
    MGPLAN_ASSERT(kind.counted.empty(), "layers here compute this kind of layer");
    Layer layer = frame_of(spec);
    layer.norms.before = kind.norms.before;
    layer.norms.after = kind.norms.after;
    layer.mixer = kind.mixer;
    layer.feed_forward = kind.feed_forward;
    const auto add = [&](auto& half) { add_fields(half, spec, number); };
    if (layer.mixer) {
        layer.window = carries_state(*layer.mixer) ? kind.window : spec.window_of_layer(number);
        std::visit(add, *layer.mixer);
    }
    if (layer.feed_forward) std::visit(add, *layer.feed_forward);
    // Lightning attention has factors of the path of its own.
    if (layer.residual.normed_path && mixer_as<LightningAttention>(layer) != nullptr)
        layer.residual.normed_path->mixer = spec.normed_residual->state;
    return layer;
}

Layer without_fields(const Layer& layer) {
    ModelSpec plain;
    plain.layers = 1;
    plain.mla.emplace();
    plain.moe.emplace();
    return with_fields(plain, layer, 0);
}

Layer typed_layer(const ModelSpec& spec, std::int64_t layer) {
    if (spec.kinds.empty()) return layer_of_fields(spec, layer);
    return with_fields(spec, spec.kinds.at(spec.kind_at(layer)).layer, layer);
}

std::vector<Layer> typed_kinds(const ModelSpec& spec) {
    std::vector<Layer> kinds;
    if (spec.kinds.empty()) kinds.push_back(layer_of_fields(spec, 0));
    for (const NamedLayer& kind : spec.kinds) kinds.push_back(with_fields(spec, kind.layer, 0));
    return kinds;
}

Model typed_ends(const ModelSpec& spec) {
    Model model = without_layers(spec);
    model.kinds = typed_kinds(spec);
    return model;
}

Model typed_model(const ModelSpec& spec, const MegatronSwitches& switches) {
    Model model = without_layers(spec);
    model.counted = spec.counted;
    // All layers are counted if one is, for then the tensors that they share are among the counted ones.
    const bool counted = !spec.kinds.empty() && (has_counted_layers(spec) || !spec.counted.empty());
    LayerKindIndex kinds(model.kinds);
    for (std::int64_t number = 0; number < spec.layers; ++number) {
        Layer layer = counted ? counted_layer(spec, number) : typed_layer(spec, number);
        if (number < switches.bf16_layers_at_start || number >= spec.layers - switches.bf16_layers_at_end)
            layer.precision = LayerPrecision::bf16;  // core/fp8_utils.py, is_first_last_bf16_layer
        model.kind_of_layer.push_back(kinds.index_of(layer));
    }
    if (spec.mtp_layers > 0)  // counted layers: of the last one's kind
        model.prediction = Prediction{.depths = spec.mtp_layers,
                                      .repeated = spec.mtp_repeated,
                                      .loss_factor = spec.mtp_loss_factor,
                                      .kind = counted ? model.kind_of_layer.back() : kinds.index_of(typed_layer(spec, spec.layers))};
    return model;
}

}  // namespace mgplan
