#pragma once
// The files that describe kinds of parts (plan/parts/layer_parts.hpp), one function each.

#include <span>

#include "plan/parts/layer_parts.hpp"

namespace mgplan {

[[nodiscard]] std::span<const PartKind> plain_part_kinds();         ///< norms, linear maps, single values
[[nodiscard]] std::span<const PartKind> attention_part_kinds();     ///< attention and latent attention
[[nodiscard]] std::span<const PartKind> feed_forward_part_kinds();  ///< MLPs and mixtures of experts
[[nodiscard]] std::span<const PartKind> recurrent_part_kinds();     ///< state-space models, delta nets, convolutions

}  // namespace mgplan
