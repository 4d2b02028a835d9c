#pragma once
// A layout as JSON with what its workload and its switches say of it.

#include <string>

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

}  // namespace mgplan::reports
