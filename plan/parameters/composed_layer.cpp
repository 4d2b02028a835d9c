#include "plan/parameters/composed_layer.hpp"

#include <algorithm>
#include <utility>

#include "plan/model/layer_parts.hpp"
#include "plan/parameters/computed_parts.hpp"
#include "plan/parameters/computed_streams.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

/// True if no table of words chooses experts, or if it chooses the router's number of experts per token.
bool chooses_as_described(const ModelSpec& model, const LayerComposition& composition, bool mixture) {
    return std::all_of(composition.parts.begin(), composition.parts.end(), [&](const LayerPart& part) {
        return traits_of(part).role != PartRole::word_choice || (mixture && model.moe && part_size(part, "top_k") == model.moe->top_k);
    });
}

/// Kind of attention of a mixer, alone or in parallel with another.
Attends attention_of(const LayerPart& mixer) {
    const ComputedPart* const computed = find_computed_part(mixer);
    return computed == nullptr ? Attends::in_its_own_form : computed->traits.attends;
}

}  // namespace

bool chooses_by_words(const ModelSpec& model, std::int64_t layer) {
    if (model.compositions.empty() || layer >= std::ssize(model.composition_of_layer)) return false;
    const LayerComposition& kind = model.compositions[model.composition_of_layer[static_cast<std::size_t>(layer)]];
    return has_part_with(kind, PartRole::word_choice);
}

std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model) {
    for (const LayerComposition& layer : model.compositions) {
        for (const LayerPart& part : layer.parts) {
            const ComputedPart* const computed = find_computed_part(part);
            if (computed != nullptr && !computed->traits.recompute_sets.empty()) return computed->traits.recompute_sets;
        }
    }
    return {};
}

EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model) {
    const auto published = published_recompute_sets(model);
    return published.empty() ? EnumSet<RecomputeModule>{RecomputeModule::core_attn} : published.front();
}

bool norms_in_front_and_behind(const LayerPart& norm) {
    return part_size(norm, "behind") == 2;
}

bool carries_state(const LayerPart& mixer) {
    return attention_of(mixer) != Attends::as_fields_say;
}

std::optional<ComposedLayer> computed_layer(const ModelSpec& model, const LayerComposition& composition) {
    ComposedLayer layer{model, {}, {}};
    layer.fields.compositions.clear();
    layer.fields.composition_of_layer.clear();
    layer.fields.beside_layers.clear();
    std::vector<LayerPart> parts = composition.parts;
    // The parts that mix streams around the halves and those that choose experts by words make no half of their own.
    std::erase_if(parts, [](const LayerPart& part) {
        return traits_of(part).role == PartRole::stream_maps || traits_of(part).role == PartRole::word_choice;
    });
    std::size_t next = 1;
    const auto take = [&](bool mixes_tokens, std::optional<LayerPart>& half) {
        if (next >= parts.size()) return true;
        const ComputedPart* const computed = find_computed_part(parts[next]);
        const bool is_mixer = traits_of(parts[next]).role == PartRole::mixer;
        if (computed == nullptr || is_mixer != mixes_tokens) return mixes_tokens;  // a layer may have no mixer
        if (!computed->describe(stated_sizes(parts[next], model.hidden), layer.fields)) return false;
        half = parts[next++];
        return true;
    };
    if (parts.size() < 2 || !take(true, layer.mixer) || !take(false, layer.feed_forward)) return std::nullopt;
    const bool mixture = layer.feed_forward && traits_of(*layer.feed_forward).role == PartRole::mixture;
    const std::span<const LayerPart> behind_halves = std::span<const LayerPart>(parts).subspan(next);
    const auto accepts = layer.feed_forward ? find_computed_part(*layer.feed_forward)->traits.accepts_behind : nullptr;
    if (accepts != nullptr ? !accepts(behind_halves, layer.fields) : !behind_halves.empty()) return std::nullopt;
    const std::int64_t halves = (layer.mixer ? 1 : 0) + (layer.feed_forward ? 1 : 0);
    if (traits_of(parts.front()).role != PartRole::norm) return std::nullopt;
    const std::int64_t behind = stated_sizes(parts.front(), model.hidden)["behind"],
                       both = norms_in_front_and_behind(parts.front()) ? 2 : 1;
    if (halves == 0 || !is_norm_of(parts.front(), model, both * halves)) return std::nullopt;
    if (!maps_stand_around_halves(model, composition, halves) || !chooses_as_described(model, composition, mixture)) return std::nullopt;
    const ComputedTraits mixes = layer.mixer ? find_computed_part(*layer.mixer)->traits : ComputedTraits{};
    if (behind == 0) return mixes.has_norms_around ? std::nullopt : std::optional(layer);
    // Mixers that fields do not describe have a norm after them if their kind has one, and then also one in front.
    if (layer.mixer && carries_state(*layer.mixer) && (!mixes.has_norms_around || both == 1)) return std::nullopt;
    if (layer.feed_forward && mixes.brings_feed_forward) return std::nullopt;
    layer.fields.pre_norms = both == 2;
    layer.fields.post_norms = true;
    return layer;
}

ComposedLayer composed_layer(const ModelSpec& model, std::int64_t layer) {
    const auto last = static_cast<std::int64_t>(model.composition_of_layer.size()) - 1;
    const auto kind = model.composition_of_layer.at(static_cast<std::size_t>(std::min(layer, last)));
    auto computed = computed_layer(model, model.compositions.at(kind));
    MGPLAN_ASSERT(computed.has_value(), "layers here compute this kind of layer: " + model.compositions[kind].name);
    return *std::move(computed);
}

ModelSpec with_stated_fields(const ModelSpec& model) {
    ModelSpec all = model;
    if (model.compositions.empty()) return all;
    all.heads = all.kv_heads = 1;
    all.head_dim = model.hidden;
    all.position = PositionEmbedding::none;
    all.qkv_bias = all.attention_output_bias = all.attention_output_gate = all.qk_norm = false;
    for (const LayerComposition& kind : model.compositions) {
        const auto layer = computed_layer(model, kind);
        MGPLAN_ASSERT(layer.has_value(), "layers here compute this kind of layer: " + kind.name);
        const ModelSpec& stated = layer->fields;
        if (layer->mixer && attention_of(*layer->mixer) != Attends::in_its_own_form) {
            all.heads = stated.heads;
            all.kv_heads = stated.kv_heads;
            all.head_dim = stated.head_dim;
            all.position = stated.position;
            all.qkv_bias = stated.qkv_bias;
            all.attention_output_bias = stated.attention_output_bias;
            all.attention_output_gate = stated.attention_output_gate;
            all.qk_norm = stated.qk_norm;
            all.qk_norm_full_width = stated.qk_norm_full_width;
        }
        if (!layer->feed_forward) continue;
        if (traits_of(*layer->feed_forward).role == PartRole::feed_forward) all.ffn = stated.ffn;
        all.gated_mlp = stated.gated_mlp;
        all.mlp_bias = stated.mlp_bias;
        all.activation = stated.activation;
    }
    if (model.position == PositionEmbedding::learned) all.position = model.position;
    return all;
}

namespace {

/// True if mgplan computes each of these parts outside the layers.
bool all_stand_beside(const ModelSpec& model, std::span<const LayerPart> parts) {
    return std::all_of(parts.begin(), parts.end(), [&](const LayerPart& part) {
        const ComputedBeside* const beside = find_computed_beside(part);
        return beside != nullptr && beside->stands(part, model);
    });
}

/// True if the parts outside the layers, except the final norm, are those that the layers read.
bool shares_as_beside(const ModelSpec& model) {
    const auto in_front = std::span<const LayerPart>(model.beside_layers).first(model.beside_layers.size() - 1);
    if (!streams_come_together(model) || !all_stand_beside(model, in_front)) return false;
    const bool streams_apart = model.streams() > 1 && !model.hyper_connections;
    for (const LayerComposition& layer : model.compositions) {
        for (const LayerPart& part : layer.parts) {
            const ComputedPart* const half = find_computed_part(part);
            if (half == nullptr) continue;
            if (streams_apart && !half->traits.reads_all_streams) return false;
            const auto finds = half->traits.finds_beside;
            if (finds != nullptr && !finds(stated_sizes(part, model.hidden), model)) return false;
        }
    }
    return true;
}

}  // namespace

bool is_computed(const ModelSpec& model) {
    if (model.labels == 0 || model.word_width != 0) return false;
    if (model.compositions.empty()) return all_stand_beside(model, model.beside_layers);
    return !model.beside_layers.empty() && is_norm_of(model.beside_layers.back(), model, 1) && shares_as_beside(model) &&
           model.mtp_layers == 0 && std::all_of(model.compositions.begin(), model.compositions.end(), [&](const LayerComposition& kind) {
               return computed_layer(model, kind).has_value();
           });
}

std::vector<std::string> obstacles_of_compositions(const ModelSpec& model, const ParallelSizes& sizes) {
    std::vector<std::string> all;
    for (const LayerComposition& kind : model.compositions) {
        const ComposedLayer layer = computed_layer(model, kind).value();
        std::vector<std::string> obstacles;
        for (const auto& half : {layer.mixer, layer.feed_forward}) {
            if (half) find_computed_part(*half)->add_obstacles(obstacles, layer.fields, stated_sizes(*half, model.hidden), sizes);
        }
        for (std::string& obstacle : obstacles) {
            if (std::find(all.begin(), all.end(), obstacle) == all.end()) all.push_back(std::move(obstacle));
        }
    }
    return all;
}

}  // namespace mgplan
