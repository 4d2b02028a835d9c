#pragma once
// Tensors kept longer if weight gradients are delayed (Megatron-LM, --delay-wgrad-compute).

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::weights {

[[nodiscard]] bool puts_off_gradients(const PolicyContext& context);
/// Transformer Engine keeps the operands of weight-gradient GEMMs, each layer's input and its output's gradient, until they are run
/// (transformer_engine/pytorch/module/_common.py, WeightGradStore). Megatron-core runs them after the experts' backward, and after that of
/// attention, which includes shared experts' (models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run;
/// models/common/utils.py, _BackwardDWWrapper). Here they are kept at most to the end of their own half-layer.
void keep_operands(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::weights
