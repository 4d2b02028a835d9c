#pragma once
// What is kept longer where gradients of weights are put off (Megatron-LM, --delay-wgrad-compute).

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::weights {

[[nodiscard]] bool puts_off_gradients(const PolicyContext& context);
/// Transformer Engine keeps what the products of weight gradients read, each layer's input and its output's gradient, until they are asked
/// for (transformer_engine/pytorch/module/_common.py, WeightGradStore). Megatron-core asks behind the experts' backward, and behind that of
/// attention, for shared experts' too (models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run;
/// models/common/utils.py, _BackwardDWWrapper). Here each half of a layer waits for its own end at most.
void keep_operands(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::weights
