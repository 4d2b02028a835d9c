#pragma once
// The maps that mix residual streams (ModelSpec::hyper_connections) as parts: around the halves of layers, and where streams come together
// in front of the final norm.

#include <cstdint>

#include "plan/model/model_spec.hpp"

namespace mgplan {

/// The part that mixes a model's streams around `halves` halves of a layer.
[[nodiscard]] LayerPart stream_maps_part(const HyperConnections& streams, std::int64_t halves);

/// True if maps surround each of these halves of a layer of a model with such streams, and none of another's.
[[nodiscard]] bool maps_stand_around_halves(const ModelSpec& model, const LayerComposition& layer, std::int64_t halves);

/// True if one part outside the layers brings the streams together where a trained map does so, and none otherwise.
[[nodiscard]] bool streams_come_together(const ModelSpec& model);

}  // namespace mgplan
