#pragma once
// Scaling of a model's rotary angles for sequences longer than those it was first trained on.

#include "model/ops/rotary.hpp"
#include "plan/layers/layer_terms.hpp"

namespace mgplan::model {

/// Angles of `rotated` values of each head. By the scaling's name:
///   linear  positions divided by the factor (arXiv 2306.15595)
///   llama3  frequencies whose waves are longer than original positions / low factor are divided, those shorter than original
///           positions / high factor kept, a ramp over frequency between (arXiv 2407.21783; transformers modeling_rope_utils.py)
///   yarn    pairs that turn less than beta_slow times over the original positions are divided, those that turn more than
///           beta_fast times kept, a ramp over the pair's number between; turned values are scaled (arXiv 2309.00071 section 3;
///           Megatron-core yarn_rotary_pos_embedding.py)
/// `max_positions`: of the model, the original positions of scalings that state none.
[[nodiscard]] RotaryAngles rotary_angles(const Rotary& positions, std::int64_t rotated, std::int64_t max_positions);

/// YaRN's factor of the scores of multi-latent attention if its scaling sets mscale_all_dim (Megatron-core multi_latent_attention.py); 1
/// otherwise.
[[nodiscard]] double rotary_score_factor(const Rotary& positions);

}  // namespace mgplan::model
