#pragma once
// What Megatron-LM's --fine-grained-activation-offloading leaves in the host's memory: policies of the table in engine_policies.cpp.
// Source: megatron/core/pipeline_parallel/fine_grained_activation_offload.py and the modules that enter it (attention.py,
// multi_latent_attention.py, transformer_layer.py, moe/experts.py).

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::host {

/// Whether modules' inputs wait there.
[[nodiscard]] bool offloads(const PolicyContext& context);

/// Whether experts keep the rows as they come for their first product, whose fp8 copy is not offloaded (experts.py,
/// set_save_original_input).
[[nodiscard]] bool keeps_expert_rows(const PolicyContext& context);

/// All that a chosen module keeps for its backward and that is large enough leaves at the end of the half's forward and is back at the
/// begin of its backward; LayerEditor::to_host() counts the copies. Norms that are one with the projection behind them belong to that.
void leave_inputs(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::host
