#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Gated short convolution (modeling_lfm2.py): hidden -> 3·hidden, a convolution of each channel, hidden -> hidden.
struct ShortConvolution {
    static constexpr std::string_view kKind = "short_convolution";
    static constexpr MixerTraits kTraits{.words = "short convolution"};
    std::int64_t conv_taps = 0;
    bool operator==(const ShortConvolution&) const = default;
    MGPLAN_MEMBERS(conv_taps)
};

void list_tensors(const ShortConvolution& convolution, TensorLister& list);

}  // namespace mgplan
