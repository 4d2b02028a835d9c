#pragma once
// Norms of the residual stream.

#include "plan/layers/layer_terms.hpp"

namespace mgplan {

struct Norm {
    Normalization kind = Normalization::rms_norm;
    bool weight = true;  ///< without one it has no bias either (OLMo 1)
    bool bias = false;   ///< next to the weight (LayerNorm)
    double epsilon = 1e-5;
    bool operator==(const Norm&) const = default;
    MGPLAN_MEMBERS(kind, weight, bias, epsilon)
};

/// The norms of a layer, all of one form.
struct Norms {
    Norm norm;
    bool before = true;  ///< in front of each half
    bool after = false;  ///< of what each half gives, in front of its addition to the residual stream (Gemma 2, OLMo 2)
    LayerOrder order = LayerOrder::sequential;
    bool operator==(const Norms&) const = default;
    MGPLAN_MEMBERS(norm, before, after, order)
};

}  // namespace mgplan
