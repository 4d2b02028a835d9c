#pragma once
// The maps that mix residual streams (ModelSpec::hyper_connections) as parts: around the halves of layers, and where streams come together
// in front of the final norm.

#include <cstdint>

#include "plan/model/model_spec.hpp"

namespace mgplan {

/// What mixes a model's streams around so many halves of a layer, as the layer's parts have it.
[[nodiscard]] LayerPart stream_maps_part(const HyperConnections& streams, std::int64_t halves);

/// Whether maps stand around each of these halves of a layer of a model with such streams, and around none of another.
[[nodiscard]] bool maps_stand_around_halves(const ModelSpec& model, const LayerComposition& layer, std::int64_t halves);

/// Whether a model's streams come together once beside its layers where a map brings them together, and else nowhere.
[[nodiscard]] bool streams_come_together(const ModelSpec& model);

}  // namespace mgplan
