#pragma once
// A layout as JSON, including settings from its workload and its switches.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::reports {

/// layout_to_json() (plan/plan.hpp), then `dispatcher` (null without experts), `overlap`, `optimizer` and `optimizer_dtypes`: those of the
/// workload, or those that the layout switches on.
[[nodiscard]] nlohmann::ordered_json layout_fields(const Workload& workload, const Layout& layout);

/// "act+norm": the modules of selective recompute, "sel" for core_attn alone; "blk2": full recompute of two layers a chunk; else the kind
/// of recompute.
[[nodiscard]] std::string recompute_cell(const Layout& layout);

/// The layout's switches in short form: "hybridep ov:tp,moe bf16:g,m"; "-" for none. `graphs`: includes its CUDA graphs.
[[nodiscard]] std::string switches_cell(const Layout& layout, bool graphs);

/// "selective (layernorm+moe_act)", "full (2 layers a chunk)": the kind of recompute and the recomputed parts.
[[nodiscard]] std::string recompute_text(const Layout& layout);

/// "tp2+sp dp8 pp4 mbs1 full recompute": without values that are 1 or usual; etp if it is not tp, or with ep. Layouts that differ in the
/// plan table have different texts.
[[nodiscard]] std::string short_layout(const Layout& layout);

/// All active switches, from the layout or the workload, in the form of switches_cell(), and the scopes of its CUDA graphs: "deepep ov:moe
/// graphs=attn+moe_router"; "-" for none.
[[nodiscard]] std::string all_switches_text(const Workload& workload, const Layout& layout);

/// Other settings that change memory or time and differ from the defaults of `plan`: "engine mgplan", "no overlap of p2p", "sharding full",
/// "optimizer muon", "offload optimizer:0.5".
[[nodiscard]] std::vector<std::string> other_choices(const Workload& workload, const Layout& layout);

}  // namespace mgplan::reports
