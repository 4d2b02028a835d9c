#pragma once
// What Megatron-LM does otherwise around residual streams that maps mix (megatron/core/transformer/hyper_connection.py of main at d98e8a64
// and of branch dev at d48bd6be): policies of the table in engine_policies.cpp. Below n streams of S bytes are meant.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::streams {

[[nodiscard]] bool mixed_by_kernels(const PolicyContext& context);
/// PyTorch's kernels one by one in place of one for each mix: what they leave between them, and what they read and write again.
void mix_by_kernels(LayerEditor& layer, const PolicyContext& context);

[[nodiscard]] bool mixed_at_once(const PolicyContext& context);
/// --use-fused-mhc: the kernel that multiplies for the maps takes the streams' lengths too, and its backward both gradients.
void measure_with_product(LayerEditor& layer, const PolicyContext& context);

[[nodiscard]] bool in_fp32(const PolicyContext& context);
/// Branch dev computes maps from an fp32 copy of the streams, which stays for the backward, whatever is made again.
void keep_fp32_streams(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::streams
