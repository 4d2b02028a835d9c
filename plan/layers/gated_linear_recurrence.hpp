#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// The recurrent block of RecurrentGemma (arXiv 2402.19427, section 2.3): two branches, a convolution, a gated linear recurrence whose
/// gates are block-diagonal over the heads. Widths in elements.
struct GatedLinearRecurrence {
    static constexpr std::string_view kKind = "gated_linear_recurrence";
    static constexpr MixerTraits kTraits{.words = "gated linear recurrence",
                                         .timed_at_least = "the gated linear recurrence of RecurrentGemma"};
    std::int64_t width = 0;
    std::int64_t heads = 0;
    std::int64_t conv_taps = 0;
    bool operator==(const GatedLinearRecurrence&) const = default;
    MGPLAN_MEMBERS(width, heads, conv_taps)
};

void list_tensors(const GatedLinearRecurrence& recurrence, TensorLister& list);

}  // namespace mgplan
