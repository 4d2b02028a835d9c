#pragma once
// Model FLOPs: what of a record's arithmetic the model asks for.

#include "plan/model/model_spec.hpp"
#include "plan/training/batch_spec.hpp"
#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// 2 FLOPs for each multiply-add of products and attention, whose causal mask halves the pairs whatever else hides some; of attention's
/// backward the two gradients alone, not the scores that it computes again. Router, gates and kernels bound by memory count nothing.
/// `attention_share`: of packed sequences, the pairs of their documents over those of whole sequences.
[[nodiscard]] double model_flops_of(const PieceStep& step, double attention_share = 1);

/// The same of a mixer's state along the sequence, forward, over so many rows, as the mixer's kind counts it
/// (plan/parameters/computed_parts.hpp); a backward has twice as many. 0 for attention.
[[nodiscard]] double model_flops_of_state(const LayerPart& mixer, double rows);

/// FLOPs of the model for one whole batch, forward and backward: matrix products alone, attention counted causally. As
/// Megatron-LM's training.py, num_floating_point_operations, counts them, but for two small things:
/// the vocabulary is padded as with tp = 1, so that layouts compare, and the norms of latents and MTP are left out.
/// The router counts in neither.
[[nodiscard]] double model_flops(const ModelSpec& model, const BatchSpec& batch);

}  // namespace mgplan::simulator
