#pragma once
// Tensors of Transformer Engine's linear layers under fp8, as policies of engine megatron (engine_policies.hpp has the table). Everything
// else in a layer stays in 16 bits: inputs of norms and activations, attention's core, router, embedding, loss.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::fp8 {

/// True if the GEMMs of Transformer Engine's linear layers are in fp8 and the GPU supports it.
[[nodiscard]] bool products(const PolicyContext& context);
/// True if inputs of quantised products are kept quantised for the gradients of weights, which frozen weights do not have
/// (module/linear.py, backward_needs_input).
[[nodiscard]] bool keeps_operands(const PolicyContext& context);
/// True if GEMMs are in fp8 and the input of attention's output projection is kept in fp8 besides the core's own output.
[[nodiscard]] bool copies_core_output(const PolicyContext& context);

// Each edits one forward of a piece and its backward. They locate GEMMs by their workspaces, which no policy may have removed before.

/// Norms fused with the following linear layer output fp8; no 16-bit copy is kept.
void keep_normed_inputs(LayerEditor& layer, const PolicyContext& context);
/// A linear layer keeps its own copy of its input; the 16-bit one lives until the module's forward returns.
void keep_linear_inputs(LayerEditor& layer, const PolicyContext& context);
void keep_core_output(LayerEditor& layer, const PolicyContext& context);
void keep_joined_inputs(LayerEditor& front, const PolicyContext& context);
void keep_expert_inputs(LayerEditor& layer, const PolicyContext& context);
/// Tensors that sequence-parallel ranks gather for a GEMM.
void gather_quantised(LayerEditor& layer, const PolicyContext& context);
/// The gradient of a linear layer's output, for both of its GEMMs.
void quantise_gradients(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::fp8
