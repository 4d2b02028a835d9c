#pragma once
// Megatron-LM's flags for layers that differ in their mixer: a pattern of letters for layers of one half (core/models/hybrid), or gated
// delta nets between layers of attention (experimental_attention_variant). Writing them throws ConfigError for layers that Megatron-LM has
// no flags for.

#include "formats/megatron/flag_rows.hpp"

namespace mgplan::formats {

/// True if a pattern gives the number of a model's layers, their kinds, and with | their stages.
[[nodiscard]] bool layers_by_pattern(const ModelSpec& model);

}  // namespace mgplan::formats
