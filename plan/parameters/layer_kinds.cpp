#include "plan/parameters/layer_kinds.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include <fmt/core.h>

#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

constexpr std::size_t kMostKinds = ModelLimits::layer_kinds;

/// Index of a half, which is added where it is new. Residual paths of the layers that have it may differ.
int index_of_half(std::vector<LayerHalf>& halves, LayerHalf half) {
    const auto found = std::find_if(halves.begin(), halves.end(), [&](const LayerHalf& known) {
        return known.layer.mixer == half.layer.mixer && known.layer.feed_forward == half.layer.feed_forward &&
               known.layer.norms.after == half.layer.norms.after;
    });
    const auto index = found - halves.begin();
    if (found == halves.end()) halves.push_back(std::move(half));
    return static_cast<int>(index);
}

LayerHalf mixer_of(Layer layer) {
    layer.feed_forward.reset();
    const bool state = carries_state(*layer.mixer);
    return {std::move(layer), state, false};
}

LayerHalf feed_forward_of(Layer layer) {
    layer.mixer.reset();
    auto* const mixture = std::get_if<Mixture>(&*layer.feed_forward);
    if (mixture != nullptr) mixture->choosing_words = 0;  // costs nothing
    return {std::move(layer), false, mixture != nullptr};
}

/// The model with one layer whose attention has the model's window and positions.
ModelSpec with_one_layer(ModelSpec model) {
    model.layers = 1;
    model.window_layers.clear();
    model.rotary_layers.clear();
    return model;
}

/// A layer of a model that fields describe.
Layer recorded_layer(const ModelSpec& model, bool mixture) {
    ModelSpec one = with_one_layer(model);
    if (one.moe) one.moe_layers.assign(1, mixture);
    return typed_layer(one, 0);
}

/// The kinds of the layers of a model that fields describe, and after them that of multi-token prediction.
std::vector<LayerKindHalves> kinds_of_fields(const ModelSpec& model, LayerKinds& kinds) {
    kinds.mixers.push_back(mixer_of(recorded_layer(model, model.is_moe_layer(0))));
    std::vector<LayerKindHalves> layers;
    int dense = LayerKindHalves::kNone, experts = LayerKindHalves::kNone;
    for (std::int64_t layer = 0; layer < model.layers + (model.mtp_layers > 0 ? 1 : 0); ++layer) {
        LayerKindHalves& kind = layers.emplace_back();
        kind.mixture = model.is_moe_layer(layer);
        kind.windowed = model.window_of_layer(layer) > 0;
        kind.mixer = 0;
        int& feed_forward = kind.mixture ? experts : dense;
        if (feed_forward == LayerKindHalves::kNone)
            feed_forward = index_of_half(kinds.feed_forwards, feed_forward_of(recorded_layer(model, kind.mixture)));
        kind.feed_forward = feed_forward;
    }
    return layers;
}

LayerKindHalves halves_of_kind(const Layer& layer, LayerKinds& kinds) {
    LayerKindHalves kind;
    kind.mixture = feed_forward_as<Mixture>(layer) != nullptr;
    if (layer.mixer) kind.mixer = index_of_half(kinds.mixers, mixer_of(layer));
    if (layer.feed_forward) kind.feed_forward = index_of_half(kinds.feed_forwards, feed_forward_of(layer));
    return kind;
}

/// Moves feed-forwards of experts after all others.
void put_mixtures_last(LayerKinds& kinds, std::vector<LayerKindHalves>& of_layer) {
    std::vector<LayerHalf> sorted;
    std::vector<int> place(kinds.feed_forwards.size());
    for (const bool mixture : {false, true}) {
        for (std::size_t i = 0; i < kinds.feed_forwards.size(); ++i) {
            if (kinds.feed_forwards[i].mixture != mixture) continue;
            place[i] = static_cast<int>(sorted.size());
            sorted.push_back(kinds.feed_forwards[i]);
        }
    }
    kinds.feed_forwards = std::move(sorted);
    for (LayerKindHalves& kind : of_layer) {
        if (kind.feed_forward != LayerKindHalves::kNone) kind.feed_forward = place[static_cast<std::size_t>(kind.feed_forward)];
    }
}

/// Adds each half once more in bf16, for the kinds of layers that stay in 16 bits.
void add_halves_in_bf16(LayerKinds& kinds) {
    const auto add = [&](std::vector<LayerHalf>& halves, int LayerKindHalves::*index) {
        const auto number = static_cast<int>(halves.size());
        for (LayerKindHalves& kind : kinds.kinds) {
            if (kind.in_bf16 && kind.*index != LayerKindHalves::kNone) kind.*index += number;
        }
        for (int i = 0; i < number; ++i) {
            LayerHalf half = halves[static_cast<std::size_t>(i)];
            half.layer.precision = LayerPrecision::bf16;
            halves.push_back(std::move(half));
        }
    };
    add(kinds.mixers, &LayerKindHalves::mixer);
    add(kinds.feed_forwards, &LayerKindHalves::feed_forward);
}

}  // namespace

int LayerKinds::mixture() const {
    const auto found = std::find_if(feed_forwards.begin(), feed_forwards.end(), [](const LayerHalf& half) { return half.mixture; });
    return found == feed_forwards.end() ? LayerKindHalves::kNone : static_cast<int>(found - feed_forwards.begin());
}

const LayerHalf& LayerKinds::mixer_of_prediction() const {
    const int mixer = kinds[of_prediction].mixer;
    return mixer == LayerKindHalves::kNone ? first_half() : mixers[static_cast<std::size_t>(mixer)];
}

bool LayerKinds::one_half_each() const {
    return std::all_of(of_layer.begin(), of_layer.end(), [&](std::uint16_t kind) { return kinds[kind].count() == 1; });
}

bool layers_by_pattern(const ModelSpec& model) {
    return !model.kinds.empty() && layer_kinds(model).one_half_each();
}

bool attention_norm_stands_alone(const ModelSpec& model) {
    return (model.mla.has_value() || has_mixer_with(model, &MixerTraits::projects_latents)) && model.pre_norms;
}

LayerKinds layer_kinds(const ModelSpec& model, const MegatronSwitches& switches) {
    LayerKinds result;
    result.attention_norm_alone = attention_norm_stands_alone(model);
    result.mixture_norm_alone = model.pre_norms;
    std::vector<LayerKindHalves> layers;  // of each, after them that of multi-token prediction
    if (model.kinds.empty()) {
        layers = kinds_of_fields(model, result);
    } else {
        const std::vector<Layer> typed = typed_kinds(with_one_layer(model));
        std::vector<std::optional<LayerKindHalves>> known(model.kinds.size());
        for (std::int64_t layer = 0; layer < model.layers + (model.mtp_layers > 0 ? 1 : 0); ++layer) {
            const std::size_t kind = model.kind_at(layer);
            if (!known[kind]) known[kind] = halves_of_kind(typed[kind], result);
            layers.push_back(*known[kind]);
            const int mixer = layers.back().mixer;
            const bool attends = mixer != LayerKindHalves::kNone && !result.mixers[static_cast<std::size_t>(mixer)].carries_state;
            layers.back().windowed = attends && model.window_of_layer(layer) > 0;
        }
    }
    put_mixtures_last(result, layers);
    if (std::count_if(result.feed_forwards.begin(), result.feed_forwards.end(), [](const LayerHalf& half) { return half.mixture; }) > 1)
        throw ConfigError(fmt::format(
            "{}: layers with experts of two kinds, of which one has a price; plan a model whose mixtures are alike", model.name));
    // core/fp8_utils.py, is_first_last_bf16_layer
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
        layers[static_cast<std::size_t>(layer)].in_bf16 =
            layer < switches.bf16_layers_at_start || layer >= model.layers - switches.bf16_layers_at_end;

    const auto order = [](const LayerKindHalves& kind) {
        return std::tuple{kind.mixture, kind.windowed, kind.mixer, kind.feed_forward, kind.in_bf16};
    };
    result.kinds = layers;
    std::sort(result.kinds.begin(), result.kinds.end(),
              [&](const LayerKindHalves& a, const LayerKindHalves& b) { return order(a) < order(b); });
    result.kinds.erase(std::unique(result.kinds.begin(), result.kinds.end()), result.kinds.end());
    const auto index_of = [&](const LayerKindHalves& kind) {
        return static_cast<std::uint16_t>(std::find(result.kinds.begin(), result.kinds.end(), kind) - result.kinds.begin());
    };
    if (result.kinds.size() > kMostKinds)
        throw ConfigError(fmt::format("{}: {} kinds of layers; give at most {}", model.name, result.kinds.size(), kMostKinds));
    for (const LayerKindHalves& layer : layers) result.of_layer.push_back(index_of(layer));
    if (std::ssize(result.of_layer) > model.layers) {
        result.of_prediction = result.of_layer.back();
        result.of_layer.pop_back();
        result.prediction_in_graphs = std::any_of(result.of_layer.begin(), result.of_layer.end(), [&](std::uint16_t kind) {
            return result.kinds[kind].mixer != LayerKindHalves::kNone && result.kinds[kind].feed_forward != LayerKindHalves::kNone;
        });
    }
    for (const LayerKindHalves& kind : result.kinds) {
        const auto first = std::find_if(result.kinds.begin(), result.kinds.end(), [&](const LayerKindHalves& other) {
            return other.mixer == kind.mixer && other.feed_forward == kind.feed_forward && other.in_bf16 == kind.in_bf16;
        });
        result.without_window.push_back(static_cast<std::uint16_t>(first - result.kinds.begin()));
        const auto layer = std::find(layers.begin(), layers.end(), kind) - layers.begin();
        result.first_layer.push_back(layer);
    }

    if (switches.bf16_layers_at_start + switches.bf16_layers_at_end > 0) add_halves_in_bf16(result);
    return result;
}

}  // namespace mgplan
