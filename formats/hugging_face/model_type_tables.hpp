#pragma once
// The parts of the table of model types (formats/hugging_face/model_types.hpp), by what describes their layers.

#include <span>

#include "formats/hugging_face/model_types.hpp"

namespace mgplan::formats {

[[nodiscard]] std::span<const ModelType> plain_model_types();      ///< fields of ModelSpec alone; llama first
[[nodiscard]] std::span<const ModelType> mixture_model_types();    ///< the same with experts
[[nodiscard]] std::span<const ModelType> arranged_model_types();   ///< norms, order and multipliers of their own
[[nodiscard]] std::span<const ModelType> hub_model_types();        ///< like both above, with code on the hub alone
[[nodiscard]] std::span<const ModelType> attention_model_types();  ///< composed: attention and MLPs
[[nodiscard]] std::span<const ModelType> sparse_model_types();     ///< composed: attention and experts
[[nodiscard]] std::span<const ModelType> latent_model_types();     ///< the same: latent and compressed attention with experts
[[nodiscard]] std::span<const ModelType> counted_model_types();    ///< composed of layers of which mgplan computes none or only some
[[nodiscard]] std::span<const ModelType> hybrid_model_types();     ///< composed, with a state along the sequence

}  // namespace mgplan::formats
