#pragma once
// Names and order of a model type's weights in checkpoints on the Hugging Face hub.

#include "plan/model/model_spec.hpp"
#include "plan/parameters/published_weights.hpp"

namespace mgplan::formats {

/// The tensors of a checkpoint of this model as transformers' save_pretrained() writes it, and where in them each parameter lies. Every
/// type is held against transformers' own gradients (tests/golden/data/transformers). Throws ConfigError naming the type where it is in
/// none of them, and what of the model has no place in a checkpoint.
[[nodiscard]] PublishedWeights published_weights(const ModelSpec& model);

/// The types with published weights, in alphabetical order.
[[nodiscard]] std::vector<std::string> types_with_published_weights();

}  // namespace mgplan::formats
