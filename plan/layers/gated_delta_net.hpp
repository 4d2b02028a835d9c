#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Gated delta net (arXiv 2412.06464; modeling_qwen3_next.py): q, k, v and the output's gate, the decay and the step of each value head,
/// one convolution over q, k and v, a gated norm of each head. Widths in elements.
struct GatedDeltaNet {
    static constexpr std::string_view kKind = "gated_delta_net";
    static constexpr MixerTraits kTraits{.words = "gated delta net"};
    std::int64_t key_heads = 0;
    std::int64_t key_dim = 0;
    std::int64_t value_heads = 0;
    std::int64_t value_dim = 0;
    std::int64_t conv_taps = 0;
    std::int64_t strength = 1;  ///< the most that a step writes; 2 where the state's eigenvalues may be negative (OLMo hybrid)
    double norm_epsilon = 0;    ///< of the gated norm; 0: that of the layer's norms
    bool operator==(const GatedDeltaNet&) const = default;
    MGPLAN_MEMBERS(key_heads, key_dim, value_heads, value_dim, conv_taps, strength, norm_epsilon)
};

void list_tensors(const GatedDeltaNet& net, TensorLister& list);

}  // namespace mgplan
