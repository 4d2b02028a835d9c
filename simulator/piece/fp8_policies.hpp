#pragma once
// What Transformer Engine's linear layers keep and take under fp8, as policies of engine megatron (engine_policies.hpp has the
// table). Everything else of a layer stays in 16 bits: norms' and activations' inputs, attention's core, router, embedding, loss.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::fp8 {

/// Products of Transformer Engine's linear layers are in fp8, on GPUs that have it.
[[nodiscard]] bool products(const PolicyContext& context);
/// The same, and the input of attention's output projection is kept in fp8 beside the core's own output.
[[nodiscard]] bool copies_core_output(const PolicyContext& context);

// Each changes one forward of a piece and its backward, and asks that no policy before it removed the products' workspaces, by
// which it tells when they run.

/// Norms that are fused with the linear layer behind them hand it fp8; nothing in 16 bits is kept.
void keep_normed_inputs(LayerEditor& layer, const PolicyContext& context);
/// A linear layer keeps its own copy of its input; the 16-bit one lives until the module's forward returns.
void keep_linear_inputs(LayerEditor& layer, const PolicyContext& context);
void keep_core_output(LayerEditor& layer, const PolicyContext& context);
void keep_joined_inputs(LayerEditor& front, const PolicyContext& context);
void keep_expert_inputs(LayerEditor& layer, const PolicyContext& context);
/// What sequence-parallel ranks gather for a product.
void gather_quantised(LayerEditor& layer, const PolicyContext& context);
/// The gradient of a linear layer's output, for both of its products.
void quantise_gradients(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::fp8
