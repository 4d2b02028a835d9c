#pragma once
// Scaling of a model's rotary angles for sequences longer than those it was first trained on.

#include "model/ops/rotary.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::model {

/// Angles of `rotated` values of each head. By the scaling's name:
///   linear  positions divided by the factor (arXiv 2306.15595)
///   llama3  frequencies whose waves are longer than original positions / low factor are divided, those shorter than original
///           positions / high factor kept, a ramp over frequency between (arXiv 2407.21783; transformers modeling_rope_utils.py)
///   yarn    pairs that turn less than beta_slow times over the original positions are divided, those that turn more than
///           beta_fast times kept, a ramp over the pair's number between; turned values are scaled (arXiv 2309.00071 section 3;
///           Megatron-core yarn_rotary_pos_embedding.py)
[[nodiscard]] RotaryAngles rotary_angles(const ModelSpec& model, std::int64_t rotated);

/// Angles of one layer, which differ if layers with a sliding window have a base of their own (ModelSpec::window_rotary_base).
[[nodiscard]] RotaryAngles rotary_angles_of_layer(const ModelSpec& model, std::int64_t rotated, std::int64_t layer);

/// YaRN's factor of the scores of attention if the model sets mscale_all_dim, in multi-latent attention
/// (Megatron-core multi_latent_attention.py); 1 otherwise.
[[nodiscard]] double rotary_score_factor(const ModelSpec& model);

}  // namespace mgplan::model
