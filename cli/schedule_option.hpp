#pragma once
// --schedule: pipeline schedules that Megatron-LM does not have, which mgplan's own engine runs.

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/workload_options.hpp"
#include "plan/schedule/pipeline_order.hpp"

namespace mgplan::cli {

/// Returns "auto", which is Megatron-LM's schedule for the layout's pp and vpp, and the names of the others.
[[nodiscard]] std::vector<std::string> schedule_choices();

/// Returns the other schedules among the words, each once.
[[nodiscard]] std::vector<SplitSchedule> split_schedules_in(const std::vector<std::string>& words);

/// Such a schedule needs --engine mgplan: takes that engine, with a message, if none is named. Throws ConfigError for --engine megatron
/// and for a Megatron-LM command without --engine mgplan.
void imply_engine(SplitSchedule schedule, const Options& options, ResolvedWorkload& resolved, Console& console);

}  // namespace mgplan::cli
