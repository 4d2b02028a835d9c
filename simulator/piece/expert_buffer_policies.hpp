#pragma once
// Effect of Megatron-LM's paged stash on the tokens of experts that are kept for the backward.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::buffers {

/// Only for fused experts, whose tensors the stash takes (transformer_engine/pytorch/ops/fused/grouped_mlp.py, mark_grouped_tensor).
[[nodiscard]] bool stashes_rows(const PolicyContext& context);
/// Both inputs and the GEMM result between them, with the probabilities, are copied into pages after the forward and back before the
/// backward. Pages hold ExpertBuffers::pages times the tokens of an even split; the source and destination buffers have a fixed size.
void stash_rows(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::buffers
