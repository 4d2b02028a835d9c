#pragma once
// The page of one layout, which `simulate --html` writes and which `plan --html` contains for the first plans.

#include <optional>
#include <string>
#include <vector>

#include "cli/stage_memories.hpp"
#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

/// Returns the page with all simulated values of one layout. `details`: faint lines below the title. `timeline`: nothing if the iteration
/// has too many passes to be replayed; `schedule`: its name.
[[nodiscard]] std::string layout_page(const StageMemories& memories, const Workload& work, const Layout& layout,
                                      const std::vector<std::string>& details, const simulator::Prediction& prediction,
                                      const std::optional<simulator::LayoutTimeline>& timeline, const std::string& schedule);

/// Returns the same for a layout without changes: on the cluster's GPUs, under its own schedule.
[[nodiscard]] std::string layout_page(simulator::CostModel& model, const Workload& work, const Layout& layout,
                                      const simulator::Prediction& prediction);

/// Returns the lines below the title that describe the layout: its summary, other choices, and its layers per stage if a string gives them.
[[nodiscard]] std::vector<std::string> layout_lines(const Workload& work, const Layout& layout);

}  // namespace mgplan::cli
