#pragma once
// A layout as JSON with what its workload and its switches say of it.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::reports {

/// layout_to_json() (plan/plan.hpp), and behind it `dispatcher` (null without experts), `overlap`, `optimizer` and `optimizer_dtypes`:
/// those of the workload, or what the layout switches on.
[[nodiscard]] nlohmann::ordered_json layout_fields(const Workload& workload, const Layout& layout);

/// "act+norm": the modules that selective recompute repeats, "sel" for core_attn alone; "blk2": full recompute of two layers a chunk; else
/// the kind of recompute.
[[nodiscard]] std::string recompute_cell(const Layout& layout);

/// What is switched on for a layout, in few letters: "hybridep ov:tp,moe bf16:g,m"; "-" for nothing. `graphs`: its CUDA graphs too.
[[nodiscard]] std::string switches_cell(const Layout& layout, bool graphs);

/// "selective (layernorm+moe_act)", "full (2 layers a chunk)": the kind of recompute and what of a layout it repeats.
[[nodiscard]] std::string recompute_text(const Layout& layout);

/// All that is on for a layout, whether its search or its workload has it, in the words of switches_cell(), and the scopes of its CUDA
/// graphs: "deepep ov:moe graphs=attn+moe_router"; "-" for nothing.
[[nodiscard]] std::string all_switches_text(const Workload& workload, const Layout& layout);

/// What else changes memory or time and is not as plan assumes it where nothing is said: "engine mgplan", "no overlap of p2p",
/// "sharding full", "optimizer muon", "offload optimizer:0.5".
[[nodiscard]] std::vector<std::string> other_choices(const Workload& workload, const Layout& layout);

}  // namespace mgplan::reports
