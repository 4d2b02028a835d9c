#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// A dense MLP. Widths in elements.
struct Mlp {
    static constexpr std::string_view kKind = "mlp";
    std::int64_t width = 0;  ///< before doubling for a gated one
    Activation activation = Activation::silu;
    bool gated = true;  ///< SwiGLU and kin: the first matrix is twice as wide
    bool bias = false;
    double gate_multiplier = 1;    ///< of the gate, in front of the activation (Falcon-H1)
    double output_multiplier = 1;  ///< of what the MLP gives
    bool operator==(const Mlp&) const = default;
    MGPLAN_MEMBERS(width, activation, gated, bias, gate_multiplier, output_multiplier)
};

void list_tensors(const Mlp& mlp, TensorLister& list);

}  // namespace mgplan
