#pragma once
// Memory of every stage of one layout, exact where there is a timeline: what `simulate --per-rank` and `--html` show.

#include <optional>
#include <string>
#include <vector>

#include "model/device/kernel_traits.hpp"
#include "plan/workload.hpp"
#include "reports/memory_timeline.hpp"
#include "reports/stage_memory.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

struct StageMemories {
    std::vector<reports::StageMemory> stages;
    std::optional<simulator::StageTimeline> fullest;  ///< of the fullest stage, op by op
    std::string why_no_timeline;                      ///< one line; empty where there is one
};

/// `device`: cuda, the cluster's GPUs; or cpu, the ranks that `mgplan run` trains on the CPU, which have no context.
[[nodiscard]] StageMemories stage_memories(simulator::CostModel& model, const Workload& workload, const Layout& layout,
                                           model::DeviceKind device);

/// Returns the curve to draw in text and on a page; nothing without a timeline. Refers to `memories`.
[[nodiscard]] std::optional<reports::MemoryCurve> curve_of(const StageMemories& memories, std::int64_t limit_bytes);

/// Returns tables of all stages, and the drawing of the fullest or the reason why there is none. Draws in Unicode if the environment's
/// locale is UTF-8 (POSIX: LC_ALL, else LC_CTYPE, else LANG).
[[nodiscard]] std::string stage_memories_text(const StageMemories& memories, std::int64_t limit_bytes);

}  // namespace mgplan::cli
