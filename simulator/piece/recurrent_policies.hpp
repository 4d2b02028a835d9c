#pragma once
// Tensors and steps of Megatron-LM's layers with a state along the sequence that differ from mgplan's own: policies of the table in
// engine_policies.cpp for Piece::recurrent.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::recurrent {

// Conditions: kernels of the layer's mixer (ComputedTraits::megatron_kernels).
[[nodiscard]] bool scans(const PolicyContext& context);
[[nodiscard]] bool applies_delta_rule(const PolicyContext& context);
[[nodiscard]] bool exchanges_gates(const PolicyContext& context);

/// Scans and delta rules run as library kernels, without the tensors that mgplan's own kernels pass through memory. A delta rule holds the
/// tensors of mgplan's sequential one.
void fuse_scans(LayerEditor& layer, const PolicyContext& context);
/// Mamba-2: the scan's output times silu(z), the input of the norm after the fused kernel, is kept besides the scan's output.
void keep_gated_output(LayerEditor& layer, const PolicyContext& context);
/// Gated delta nets keep queries and keys divided by their lengths, for every value head; summed decays, strengths, and the inverted
/// matrices of the chunks.
void keep_unit_keys(LayerEditor& layer, const PolicyContext& context);
/// Under cp the gates are exchanged to the heads and their gradients back, together with the input of the convolution.
void exchange_gates(LayerEditor& layer, const PolicyContext& context);
/// Gated delta nets: the rule runs as GEMMs on chunks, with intermediate tensors in memory.
void multiply_by_chunks(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::recurrent
