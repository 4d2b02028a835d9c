#pragma once
// The layers of a ModelSpec from parts (plan/parts/layer_parts.hpp), and back.

#include <optional>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parts/layer_parts.hpp"

namespace mgplan {

/// The layers of a model as parts, and the parts outside the layers: what layers share, the final norm.
struct ModelParts {
    std::vector<LayerComposition> kinds;
    std::vector<std::uint16_t> of_layer;         ///< index in kinds
    std::optional<std::uint16_t> of_prediction;  ///< of multi-token prediction; nothing: that of the last layer
    std::vector<LayerPart> outside;
};

/// Sets ModelSpec::kinds and validates the model: throws one ConfigError with all problems. The model's fields are set. Parts are right if
/// those of the typed layer that they state (composition_of()) are the same.
void set_layers(ModelSpec& model, const ModelParts& parts, const std::string& where);

/// The parts of a typed layer, as version 1 of the JSON states them.
[[nodiscard]] LayerComposition composition_of(const Layer& layer, std::int64_t hidden);

/// The parts outside the layers of a model: what these kinds of layers read, and the final norm.
[[nodiscard]] std::vector<LayerPart> parts_beside(const std::vector<Layer>& kinds, const Norm& final_norm, const ModelSpec& spec);

}  // namespace mgplan
