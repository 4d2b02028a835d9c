#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Norms of a Mamba block's step and of both maps of its state.
enum class InnerNorms : std::uint8_t { none, weighted, unweighted };
constexpr auto words_of(InnerNorms /*type*/) {
    return std::array<std::string_view, 3>{"none", "weighted", "unweighted"};
}

/// Mamba (arXiv 2312.00752, section 3.4). Widths in elements.
struct Mamba {
    static constexpr std::string_view kKind = "mamba";
    static constexpr MixerTraits kTraits{.words = "Mamba", .timed_at_least = "the selective scan of Mamba"};
    std::int64_t inner_width = 0;
    std::int64_t state_size = 0;
    std::int64_t conv_taps = 0;
    std::int64_t dt_rank = 0;  ///< values that the steps come from
    bool conv_bias = true;
    InnerNorms inner_norms = InnerNorms::none;  ///< weighted: Jamba; unweighted: Falcon Mamba
    bool operator==(const Mamba&) const = default;
    MGPLAN_MEMBERS(inner_width, state_size, conv_taps, dt_rank, conv_bias, inner_norms)
};

void list_tensors(const Mamba& mamba, TensorLister& list);

}  // namespace mgplan
