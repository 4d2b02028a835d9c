#pragma once
// Frozen weights in 4 bits (plan/layers/adapters.hpp, FrozenStorage::nf4): bitsandbytes writes one in the storage type in front of every
// product that reads it, forward and backward, and frees it after that (autograd/_functions.py, MatMul4Bit).

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::frozen {

[[nodiscard]] bool packs(const PolicyContext& context);
/// Counts the largest weight of the half next to each product.
void hold_unpacked(LayerEditor& layer, const PolicyContext& context);
/// Adds the kernels that unpack.
void unpack(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::frozen
