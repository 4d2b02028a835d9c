#pragma once
// What Megatron-LM's layers with a state along the sequence hold and compute otherwise than mgplan's own: policies of the table in
// engine_policies.cpp for Piece::recurrent.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::recurrent {

// Conditions: kernels of the layer's mixer (ComputedTraits::megatron_kernels).
[[nodiscard]] bool scans(const PolicyContext& context);
[[nodiscard]] bool applies_delta_rule(const PolicyContext& context);
[[nodiscard]] bool exchanges_gates(const PolicyContext& context);

/// Scans and delta rules are libraries' kernels, without what mgplan's own hand on through memory. A delta rule holds what one that walks
/// place by place does.
void fuse_scans(LayerEditor& layer, const PolicyContext& context);
/// Mamba-2: the scan's output times silu(z), which the norm behind the fused kernel takes, stays beside the scan's output.
void keep_gated_output(LayerEditor& layer, const PolicyContext& context);
/// Gated delta nets: queries and keys divided by their lengths, for every value head; summed decays, strengths, and the inverted matrices
/// of the chunks stay.
void keep_unit_keys(LayerEditor& layer, const PolicyContext& context);
/// Under cp the gates travel to the heads and their gradients back, with what the convolution sees.
void exchange_gates(LayerEditor& layer, const PolicyContext& context);
/// Gated delta nets: the rule runs chunk by chunk as products, over tensors that pass through memory.
void multiply_by_chunks(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::recurrent
