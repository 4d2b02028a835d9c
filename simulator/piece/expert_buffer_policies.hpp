#pragma once
// What Megatron-LM's paged stash does with the rows of experts that wait for their backward.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::buffers {

/// Only for fused experts: theirs are the tensors that the stash takes (transformer_engine/pytorch/ops/fused/grouped_mlp.py,
/// mark_grouped_tensor).
[[nodiscard]] bool stashes_rows(const PolicyContext& context);
/// Both inputs and the product between them, with the probabilities, are copied into pages behind the forward and back in front of the
/// backward. Pages hold ExpertBuffers::pages times the rows of an even split, where the buffers they come from and go to have a fixed size.
void stash_rows(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::buffers
