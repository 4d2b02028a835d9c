// Typed layers back to fields and kinds.

#include <algorithm>
#include <tuple>
#include <utility>

#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/member_fields.hpp"
#include "plan/parameters/model_adapter.hpp"

namespace mgplan {
namespace {

/// Layers of softmax attention that fields describe, whose window and rotary positions are the model's.
bool attends_by_fields(const Layer& layer) {
    return mixer_as<Attention>(layer) != nullptr || mixer_as<LatentAttention>(layer) != nullptr;
}

const Layer& layer_at(const Model& model, std::size_t number) {
    return model.kinds[model.kind_of_layer[number]];
}

/// The rotary positions of a layer; nullptr: none.
const Rotary* rotary_in(const Layer& layer) {
    const auto held = [](const std::optional<Rotary>& rotary) { return rotary ? &*rotary : nullptr; };
    if (const auto* mixer = mixer_as<Attention>(layer)) return held(mixer->rotary);
    if (const auto* mixer = mixer_as<LatentAttention>(layer)) return held(mixer->rotary);
    if (const auto* mixer = mixer_as<AttentionBesideMamba2>(layer)) return held(mixer->attention.rotary);
    if (const auto* mixer = mixer_as<SharedBlockMamba2>(layer)) return held(mixer->block.rotary);
    if (const auto* mixer = mixer_as<GemmaAttention>(layer)) return &mixer->rotary;
    if (const auto* mixer = mixer_as<Gemma3nLayer>(layer)) return &mixer->attention.rotary;
    if (const auto* mixer = mixer_as<CompressedAttention>(layer)) return &mixer->rotary;
    return nullptr;
}

void state_rotary(const Model& model, ModelSpec& spec) {
    const Rotary *full = nullptr, *windowed = nullptr;
    std::vector<bool> rotated;
    for (std::size_t number = 0; number < model.kind_of_layer.size(); ++number) {
        const Layer& layer = layer_at(model, number);
        const Rotary* const rotary = rotary_in(layer);
        rotated.push_back(rotary != nullptr || !attends_by_fields(layer));
        if (rotary != nullptr) (attends_by_fields(layer) && layer.window > 0 ? windowed : full) = rotary;
    }
    const Rotary* const any = full != nullptr ? full : windowed;
    const bool learned = model.embedding.learned_positions > 0;
    spec.position = learned ? PositionEmbedding::learned : any != nullptr ? PositionEmbedding::rope : PositionEmbedding::none;
    if (any == nullptr) return;
    spec.rotary_fraction = any->fraction;
    spec.rotary_base = any->base;
    spec.rotary_scaling = any->scaling;
    spec.rotary_scaling_values = any->scaling_values;
    spec.rotary_interleaved = any->interleaved;
    if (full != nullptr && windowed != nullptr && *full != *windowed) spec.window_rotary_base = windowed->base;
    if (std::find(rotated.begin(), rotated.end(), false) != rotated.end()) spec.rotary_layers = std::move(rotated);
}

void state_windows(const Model& model, ModelSpec& spec) {
    std::vector<bool> windowed;
    bool all = true;
    std::size_t first_full = model.kind_of_layer.size();
    for (std::size_t number = 0; number < model.kind_of_layer.size(); ++number) {
        const Layer& layer = layer_at(model, number);
        const bool own = attends_by_fields(layer) && layer.window > 0;
        if (own) spec.sliding_window = layer.window;
        if (!own && attends_by_fields(layer)) all = false;
        if (!own) first_full = std::min(first_full, number);
        windowed.push_back(own);
    }
    if (spec.sliding_window == 0 || all) return;
    spec.full_attention_every = static_cast<std::int64_t>(first_full) + 1;
    for (std::size_t number = 0; number < windowed.size(); ++number) {
        if ((spec.window_of_layer(static_cast<std::int64_t>(number)) > 0) == windowed[number]) continue;
        spec.full_attention_every = 0;
        spec.window_layers = std::move(windowed);
        return;
    }
}

void state_scores(const AttentionScores& scores, ModelSpec& spec) {
    spec.attention_multiplier = scores.multiplier;
    spec.attention_softcap = scores.softcap;
    spec.attention_dropout = scores.dropout;
    spec.attention_sinks = scores.sinks;
}

void state(const Attention& attention, ModelSpec& spec) {
    spec.heads = attention.heads;
    spec.kv_heads = attention.kv_heads;
    spec.head_dim = attention.head_dim;
    spec.qkv_bias = attention.qkv_bias;
    spec.attention_output_bias = attention.output_bias;
    spec.attention_output_gate = attention.output_gate;
    spec.qk_norm = attention.qk_norm != QkNorm::none;
    spec.qk_norm_per_head = attention.qk_norm == QkNorm::per_head;
    spec.qk_norm_full_width = attention.qk_norm == QkNorm::full_width;
    spec.qk_norm_behind_rotary = attention.qk_norm_after_rotary;
    spec.qkv_clip = attention.qkv_clip;
    state_scores(attention.scores, spec);
}

void state(const LatentAttention& attention, ModelSpec& spec) {
    spec.heads = spec.kv_heads = attention.heads;
    spec.head_dim = 0;
    spec.mla = MlaSpec{.norm_epsilon = attention.latent_norm_epsilon, .query_norm = attention.query_norm};
    for (const auto& [field, member] : kLatentFields) (*spec.mla).*field = attention.*member;
    spec.qk_norm = attention.latent_norms;
    spec.attention_output_bias = attention.output_bias;
    state_scores(attention.scores, spec);
}

void state(const Mlp& mlp, ModelSpec& spec) {
    spec.ffn = mlp.width;
    spec.activation = mlp.activation;
    spec.gated_mlp = mlp.gated;
    spec.mlp_bias = mlp.bias;
    spec.branch_multipliers.mlp_gate = mlp.gate_multiplier;
    spec.branch_multipliers.mlp_output = mlp.output_multiplier;
}

void state(const Mixture& mixture, ModelSpec& spec) {
    spec.activation = mixture.activation;
    spec.gated_mlp = mixture.gated;
    spec.mlp_bias = mixture.bias;
    spec.moe.emplace();
    std::apply([&](const auto&... pairs) { (((*spec.moe).*pairs.first = mixture.*pairs.second), ...); }, kMixtureFields);
}

void state(const AttentionBesideMamba2& mixer, ModelSpec& spec) {
    state(mixer.attention, spec);
    for (const auto& [field, member] : kBesideMultipliers) spec.branch_multipliers.*field = mixer.*member;
}

void state(const Gemma3nLayer& layer, ModelSpec& spec) {
    state(layer.mlp, spec);
}

void state(const GatedDeltaNet& net, ModelSpec& spec) {
    spec.state_norm_epsilon = net.norm_epsilon;
}

template <class Kind>
void state(const Kind& /*mixer*/, ModelSpec& /*spec*/) {}

void state_residual(const Layer& layer, ModelSpec& spec) {
    spec.residual_multiplier = layer.residual.multiplier;
    spec.hyper_connections = layer.residual.hyper_connections;
    if (!layer.residual.normed_path) return;
    if (!spec.normed_residual) spec.normed_residual.emplace();
    (mixer_as<LightningAttention>(layer) != nullptr ? spec.normed_residual->state : spec.normed_residual->attention) =
        layer.residual.normed_path->mixer;
    spec.normed_residual->mlp = layer.residual.normed_path->feed_forward;
}

/// All of a model but its kinds; of values that differ between layers that of one.
ModelSpec stated_spec(const Model& model) {
    ModelSpec spec;
    spec.name = model.name;
    spec.source = model.source;
    spec.type = model.type;
    spec.assumed_architecture = model.assumed_architecture;
    spec.left_out = model.left_out;
    spec.layers = std::ssize(model.kind_of_layer);
    spec.hidden = model.hidden;
    spec.max_positions = model.max_positions;
    spec.init_deviation = model.init_deviation;
    spec.vocab = model.embedding.vocab;
    spec.vocab_divisor = model.embedding.vocab_divisor;
    spec.padded_rows = model.embedding.padded_rows;
    spec.word_width = model.embedding.word_width;
    spec.token_types = model.embedding.token_types;
    spec.embedding_norm = model.embedding.norm;
    spec.embedding_multiplier = model.embedding.multiplier;
    spec.hidden_dropout = model.embedding.dropout;
    spec.normalization = model.head.norm.kind;
    spec.norm_weight = model.head.norm.weight;
    spec.norm_bias = model.head.norm.kind == Normalization::rms_norm || !model.head.norm.weight || model.head.norm.bias;
    spec.norm_epsilon = model.head.norm.epsilon;
    spec.tied_embeddings = model.head.tied;
    spec.output_bias = model.head.bias;
    spec.labels = model.head.labels;
    spec.logit_multiplier = model.head.logit_multiplier;
    spec.logit_softcap = model.head.logit_softcap;
    if (model.prediction) {
        spec.mtp_layers = model.prediction->depths;
        spec.mtp_repeated = model.prediction->repeated;
        spec.mtp_loss_factor = model.prediction->loss_factor;
    }
    spec.default_sequence = model.default_sequence;
    spec.default_global_batch = model.default_global_batch;
    state_rotary(model, spec);
    state_windows(model, spec);
    // Values that no layer states have to be in range all the same.
    spec.heads = spec.kv_heads = spec.head_dim = 1;
    for (const Layer& layer : model.kinds) {
        spec.adapters = layer.adapters;
        state_residual(layer, spec);
        const auto state_half = [&](const auto& half) { state(half, spec); };
        if (layer.mixer) std::visit(state_half, *layer.mixer);
        if (layer.feed_forward) std::visit(state_half, *layer.feed_forward);
    }
    if (spec.ffn == 0) spec.ffn = spec.moe ? spec.moe->expert_ffn : 1;
    for (std::size_t number = 0; spec.moe && number < model.kind_of_layer.size(); ++number) {
        const auto& feed_forward = layer_at(model, number).feed_forward;
        spec.moe_layers.push_back(feed_forward && std::holds_alternative<Mixture>(*feed_forward));
    }
    return spec;
}

}  // namespace

ModelSpec with_stated_fields(const ModelSpec& model) {
    ModelSpec all = model;
    if (model.kinds.empty()) return all;
    all.heads = all.kv_heads = 1;
    all.head_dim = model.hidden;
    all.position = PositionEmbedding::none;
    all.qkv_bias = all.attention_output_bias = all.attention_output_gate = all.qk_norm = false;
    for (const Layer& layer : typed_kinds(model)) {
        const auto* const beside = mixer_as<AttentionBesideMamba2>(layer);
        if (const Attention* const attention = beside != nullptr ? &beside->attention : mixer_as<Attention>(layer)) {
            state(*attention, all);
            all.position = attention->rotary ? PositionEmbedding::rope : PositionEmbedding::none;
        }
        if (const auto* const latent = mixer_as<LatentAttention>(layer)) {
            state(*latent, all);
            all.head_dim = model.head_dim;
            all.position = model.position;
        }
        if (layer.feed_forward) std::visit([&](const auto& half) { state(half, all); }, *layer.feed_forward);
    }
    if (model.position == PositionEmbedding::learned) all.position = model.position;
    return all;
}

std::optional<ModelSpec> spec_of_fields(const Model& model) {
    const bool described = std::all_of(model.kinds.begin(), model.kinds.end(),
                                       [](const Layer& layer) { return attends_by_fields(layer) && layer.feed_forward.has_value(); });
    if (!described) return std::nullopt;
    ModelSpec spec = stated_spec(model);
    spec.pre_norms = model.kinds.front().norms.before;
    spec.post_norms = model.kinds.front().norms.after;
    spec.order = model.kinds.front().norms.order;
    for (const CountedTensor& tensor : model.counted) {
        if (tensor.name == kChoiceBias) spec.counted.push_back(tensor);
    }
    return spec;
}

ModelSpec by_fields_if_possible(ModelSpec model) {
    if (model.kinds.empty() || !has_computed_kinds(model)) return model;
    const Model layers = typed_model(model);
    std::optional<ModelSpec> fields = spec_of_fields(layers);
    return fields && typed_model(*fields) == layers ? *std::move(fields) : std::move(model);
}

std::string name_of_halves(const Layer& layer) {
    std::string name;
    if (layer.mixer) std::visit([&](const auto& mixer) { name = mixer.kKind; }, *layer.mixer);
    if (layer.feed_forward) name += (name.empty() ? "" : "+") + std::string(feed_forward_as<Mixture>(layer) != nullptr ? "moe" : "mlp");
    return name;
}

ModelSpec spec_of_kinds(const Model& model) {
    ModelSpec spec = stated_spec(model);
    for (const Layer& layer : model.kinds) spec.kinds.push_back({name_of_halves(layer), without_fields(layer)});
    spec.kind_of_layer = model.kind_of_layer;
    if (model.prediction) spec.kind_of_prediction = model.prediction->kind;
    return spec;
}

}  // namespace mgplan
