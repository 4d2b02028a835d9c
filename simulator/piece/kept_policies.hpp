#pragma once
// Tensors that Megatron-LM's layers keep or drop differently from mgplan's own, in attention, MoE, embedding and loss: conditions and edits
// of the table in engine_policies.cpp, which describes each and names its source.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::kept {

// GEMMs: the libraries' scratch is permanent and counted outside the trace.
void drop_product_workspaces(LayerEditor& layer, const PolicyContext& context);

// Attention: projections of which values are views, tensors kept by the core, and its kernels.
[[nodiscard]] bool without_engine(const PolicyContext& context);
void keep_packed_projection(LayerEditor& layer, const PolicyContext& context);
[[nodiscard]] bool latent(const PolicyContext& context);
void keep_key_value_projection(LayerEditor& layer, const PolicyContext& context);
[[nodiscard]] bool exchanges_heads(const PolicyContext& context);
void keep_output_by_heads(LayerEditor& layer, const PolicyContext& context);
[[nodiscard]] bool flash_package(const PolicyContext& context);
void keep_output_by_batch(LayerEditor& layer, const PolicyContext& context);
[[nodiscard]] bool unfused(const PolicyContext& context);
void keep_scores(LayerEditor& layer, const PolicyContext& context);

// Dropout of the residual stream: its masks.
[[nodiscard]] bool drops(const PolicyContext& context);
void keep_dropout_masks(LayerEditor& layer, const PolicyContext& context);
void keep_embedding_mask(LayerEditor& layer, const PolicyContext& context);

// MoE: tables of the routing, and tensors between the experts' GEMMs.
void keep_dense_routing(LayerEditor& layer, const PolicyContext& context);
[[nodiscard]] bool weights_activations(const PolicyContext& context);
void keep_unweighted_activation(LayerEditor& layer, const PolicyContext& context);
void keep_clamped_product(LayerEditor& layer, const PolicyContext& context);

/// Without bias_activation_fusion PyTorch activates one half of a gated MLP's first product and multiplies it with the other one.
[[nodiscard]] bool activates_halves_apart(const PolicyContext& context);
void keep_activated_half(LayerEditor& layer, const PolicyContext& context);

// The vocabulary: gradients of its weights, copies of logits, rows gathered into a permanent buffer outside the trace.
/// False with adapters: the tables are frozen and have no gradients.
[[nodiscard]] bool trains_vocabulary(const PolicyContext& context);
void take_embedding_gradient(LayerEditor& layer, const PolicyContext& context);
[[nodiscard]] bool copies_logits(const PolicyContext& context);
void copy_logits(LayerEditor& head, const PolicyContext& context);
void take_output_weight_gradient(LayerEditor& head, const PolicyContext& context);
[[nodiscard]] bool gathers_rows(const PolicyContext& context);
void drop_gathered_rows(LayerEditor& head, const PolicyContext& context);

}  // namespace mgplan::simulator::kept
