#pragma once
// Layouts as people write them, and as summary() (layout.hpp) prints them.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/layout/layout_request.hpp"
#include "plan/schedule/schedule.hpp"

namespace mgplan {

/// Short name in tables of a module of selective recompute.
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

/// A layout in words: the request, and facts in the words that no request holds or that a reader may fill in.
struct LayoutInWords : LayoutRequest {
    std::optional<std::int64_t> dp = {};    ///< data-parallel ranks, which follow from the rest: for the reader to check
    std::optional<ScheduleKind> runs = {};  ///< the schedule of Megatron-LM, which follows from pp and vpp: for the reader to check
    std::string order_cell = {};            ///< "tp-dp-pp": the order of the axes of more than one rank; empty: not said
    bool says_sequence_parallel = false;    ///< by a word of its own, or as a whole summary does
    bool says_block = false;                ///< how full recompute goes about it
};

/// Reads words between blanks or commas: sizes with or without "=" (tp4 cp=2 ep8 etp1 pp2 vpp4 mbs1), "sp" or "nosp", the cp exchange (p2p,
/// all_gather, a2a), the recompute (none, selective, full, block4, or the modules of selective: layernorm+moe_act), CUDA graphs by their
/// scopes (graphs=attn+moe_router, graphs=none), schedules and switches (switch_words()), in any order; and the forms of these in table
/// cells (4+sp or tp4+sp, 4-sp, 2ag or cp2ag, pp8x4 of pp and vpp, dp8, blk4, norm+act, ov:tp,moe, bf16:g,m, tp-dp-pp, and - for nothing
/// switched on). Omitted sizes are 1, the exchange p2p, the rest none; sequence parallelism is on where tp > 1, but off in words that name
/// the exchange, as a whole summary does, and not sp. Throws ConfigError with all problems: unknown or repeated words, sizes below 1.
[[nodiscard]] LayoutInWords parse_layout_words(std::string_view text);

}  // namespace mgplan
