#pragma once
// Tensors that Megatron-LM's --fine-grained-activation-offloading moves to the host: policies of the table in engine_policies.cpp. Source:
// megatron/core/pipeline_parallel/fine_grained_activation_offload.py and the modules that use it (attention.py, multi_latent_attention.py,
// transformer_layer.py, moe/experts.py).

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::host {

/// True if inputs of any module are offloaded.
[[nodiscard]] bool offloads(const PolicyContext& context);

/// True if experts keep their unquantised input tokens for the first GEMM, whose fp8 copy is not offloaded (experts.py,
/// set_save_original_input).
[[nodiscard]] bool keeps_expert_rows(const PolicyContext& context);

/// Moves all tensors above the minimum size that a chosen module keeps for its backward to the host at the end of the half-layer's forward,
/// and back at the begin of its backward; LayerEditor::to_host() counts the copies. Norms fused with the following projection belong to
/// that module.
void leave_inputs(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::host
