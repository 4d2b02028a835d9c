#pragma once
// Model FLOPs: the part of a record's arithmetic that the model's definition requires.

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/batch_spec.hpp"
#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// 2 FLOPs for each multiply-add of GEMMs and attention. The causal mask halves the pairs, whatever else masks some; attention's backward
/// counts only its two gradients, not the recomputed scores. Router, gates and memory-bound kernels count 0. `attention_share`: with packed
/// sequences, the pairs of their documents divided by those of whole sequences.
[[nodiscard]] double model_flops_of(const PieceStep& step, double attention_share = 1);

/// Model FLOPs of the forward of a mixer's recurrent state over `rows` rows, by the mixer's kind (plan/layers/layer.hpp); a
/// backward has twice as many. 0 for attention.
[[nodiscard]] double model_flops_of_state(const Mixer& mixer, double rows);

/// FLOPs of the model for one whole batch, forward and backward: only GEMMs, attention counted causally. As Megatron-LM's training.py,
/// num_floating_point_operations, counts them, with two small differences: the vocabulary is padded as with tp = 1, so that layouts
/// compare, and the norms of latents and MTP are left out. Neither counts the router.
[[nodiscard]] double model_flops(const ModelSpec& model, const BatchSpec& batch);

}  // namespace mgplan::simulator
