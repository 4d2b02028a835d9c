#pragma once
// Differences of Megatron-LM for mixed residual streams (megatron/core/transformer/hyper_connection.py of main at d98e8a64 and of branch
// dev at d48bd6be): policies of the table in engine_policies.cpp. Comments below use n streams of S bytes.

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::streams {

[[nodiscard]] bool mixed_by_kernels(const PolicyContext& context);
/// Replaces the single kernel of each mix by PyTorch's kernels: adds their intermediate tensors and their further reads and writes.
void mix_by_kernels(LayerEditor& layer, const PolicyContext& context);

[[nodiscard]] bool mixed_at_once(const PolicyContext& context);
/// --use-fused-mhc: the kernel that multiplies for the maps also computes the streams' lengths, and its backward both gradients.
void measure_with_product(LayerEditor& layer, const PolicyContext& context);

[[nodiscard]] bool in_fp32(const PolicyContext& context);
/// Branch dev computes maps from an fp32 copy of the streams, which is kept for the backward, whatever is recomputed.
void keep_fp32_streams(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::streams
