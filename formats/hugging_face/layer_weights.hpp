#pragma once
// Places of one layer's parameters in a checkpoint, by halves.

#include <optional>
#include <string>
#include <string_view>

#include "formats/hugging_face/weight_pieces.hpp"
#include "plan/layers/layer.hpp"

namespace mgplan::formats {

/// The layer whose parameters are placed.
struct LayerWeights {
    Layer layer;
    const WeightNames& names;
    std::string prefix;  ///< "model.layers.0."
    WeightPieces& pieces;
};

/// The rest of a name after this start; nothing where it begins otherwise.
[[nodiscard]] inline std::optional<std::string_view> rest_behind(std::string_view name, std::string_view start) {
    if (!name.starts_with(start)) return std::nullopt;
    return name.substr(start.size());
}

// Each places a parameter by its name within its layer; false for an unknown name.

/// Attention with one packed projection.
bool place_attention(const LayerWeights& at, PublishedParameter& entry, std::string_view name);
/// Latent attention.
bool place_latent(const LayerWeights& at, PublishedParameter& entry, std::string_view name);
/// MLPs and mixtures of experts.
bool place_feed_forward(const LayerWeights& at, PublishedParameter& entry, std::string_view name);
/// Mixers with a state along the sequence, by their kind.
bool place_mixer(const LayerWeights& at, PublishedParameter& entry, std::string_view name);

}  // namespace mgplan::formats
