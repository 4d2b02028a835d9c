#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Kimi delta attention (arXiv 2510.26692; modeling_kimi_linear.py): q, k, v with a convolution each, decay and gate through head_dim
/// values. Widths in elements.
struct KimiDeltaAttention {
    static constexpr std::string_view kKind = "kimi_delta_attention";
    static constexpr MixerTraits kTraits{.words = "Kimi delta attention"};
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t conv_taps = 0;
    bool operator==(const KimiDeltaAttention&) const = default;
    MGPLAN_MEMBERS(heads, head_dim, conv_taps)
};

void list_tensors(const KimiDeltaAttention& attention, TensorLister& list);

}  // namespace mgplan
