#pragma once
// Model FLOPs: what of a record's arithmetic the model asks for.

#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// 2 FLOPs for each multiply-add of products and attention, whose causal mask halves the pairs whatever else hides some; of attention's
/// backward the two gradients alone, not the scores that it computes again. Router, gates and kernels bound by memory count nothing.
[[nodiscard]] double model_flops_of(const PieceStep& step);

}  // namespace mgplan::simulator
