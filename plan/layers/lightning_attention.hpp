#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Lightning attention (arXiv 2401.04658; modeling_minimax.py): q, k, v, a gate of the output and a norm over all heads. Widths in
/// elements.
struct LightningAttention {
    static constexpr std::string_view kKind = "lightning_attention";
    static constexpr MixerTraits kTraits{.words = "lightning attention"};
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    bool operator==(const LightningAttention&) const = default;
    MGPLAN_MEMBERS(heads, head_dim)
};

void list_tensors(const LightningAttention& attention, TensorLister& list);

}  // namespace mgplan
