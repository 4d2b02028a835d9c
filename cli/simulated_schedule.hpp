#pragma once
// The schedule that `simulate` replays: the layout's own, or another one of the same model chunks (--kind).

#include <optional>
#include <string>
#include <vector>

#include "plan/schedule/pipeline_order.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

struct SimulatedSchedule {
    std::string kind;                    ///< "1f1b", "zb-v", …
    std::optional<PipelineOrder> order;  ///< of a split schedule; nothing: the layout's own
};

/// `kind`: argument of --kind, "auto" without it. Throws ConfigError if the layout cannot run it.
[[nodiscard]] SimulatedSchedule simulated_schedule(const std::string& kind, const Layout& layout);

/// Throws ConfigError if the schedule has too many passes to be replayed one by one.
void check_replayable(const std::string& option, const Layout& layout);

/// Returns the layout's timeline under the schedule, event by event (simulator::CostModel::timeline).
[[nodiscard]] simulator::LayoutTimeline timeline_of(simulator::CostModel& model, const Layout& layout, const SimulatedSchedule& schedule,
                                                    bool details, const std::vector<double>& slowdown);

/// Writes the iteration as a trace to `out`, with memory counters if the schedule is the layout's own and there is a memory timeline.
void write_trace(std::ostream& out, simulator::CostModel& model, const simulator::LayoutTimeline& timeline, const Workload& workload,
                 const Layout& layout, const SimulatedSchedule& schedule, const std::string& title);

}  // namespace mgplan::cli
