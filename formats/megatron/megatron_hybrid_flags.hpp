#pragma once
// Megatron-LM's flags for layers that differ in their mixer: a pattern of letters for layers of one half (core/models/hybrid), or gated
// delta nets between layers of attention (experimental_attention_variant).

#include <vector>

#include "formats/megatron/megatron_job.hpp"
#include "plan/plan.hpp"

namespace mgplan::formats {

struct HybridFlags {
    std::vector<MegatronFlag> flags;  ///< names without dashes in front
    bool by_pattern = false;          ///< the pattern says the number of layers, their kinds, and with | their stages
};

/// Nothing for models without compositions. Throws ConfigError for layers that Megatron-LM has no flags for.
[[nodiscard]] HybridFlags hybrid_flags(const Plan& plan);

}  // namespace mgplan::formats
