#pragma once
// Layouts as people write them, and as summary() (layout.hpp) prints them.

#include <array>
#include <string_view>

#include "plan/layout/layout_request.hpp"

namespace mgplan {

/// What tables call a module of selective recompute.
struct ModuleInShort {
    RecomputeModule module;
    std::string_view name;
};
inline constexpr std::array<ModuleInShort, 8> kModulesInShort{{{RecomputeModule::core_attn, "attn"},
                                                               {RecomputeModule::mla_up_proj, "up"},
                                                               {RecomputeModule::layernorm, "norm"},
                                                               {RecomputeModule::mlp, "mlp"},
                                                               {RecomputeModule::moe, "moe"},
                                                               {RecomputeModule::moe_act, "act"},
                                                               {RecomputeModule::shared_experts, "shared"},
                                                               {RecomputeModule::mhc, "streams"}}};

/// Reads words between blanks or commas: sizes with or without "=" (tp4 cp=2 ep8 etp1 pp2 vpp4 mbs1), "sp" or "nosp", how cp ranks exchange
/// (p2p, all_gather, a2a), the recompute (none, selective, full, block4, or the modules of selective: layernorm+moe_act), CUDA graphs by
/// their scopes (graphs=attn+moe_router, graphs=none) and what is switched on (switch_words()), in any order; and what the cells of tables
/// write for these (blk4, norm+act, ov:tp,moe, bf16:g,m). What is left out is 1, p2p and none; sequence parallelism is on where tp > 1, but
/// off in words that name the exchange, as a whole summary does, and not sp. Throws ConfigError with all problems: words that are not known
/// or stand twice, sizes below 1.
[[nodiscard]] LayoutRequest parse_layout_words(std::string_view text);

}  // namespace mgplan
