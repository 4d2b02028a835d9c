#pragma once
// Plan files named on the command line.

#include <span>
#include <string>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"

namespace mgplan::cli {

/// Reads the plan that --save-plan wrote. Throws ConfigError with all problems: unreadable, no JSON, fields wrong. `option` names
/// the file in messages. The caller checks rules between layout and model.
[[nodiscard]] Plan read_plan(const std::string& path, const std::string& option = "plan");

/// Does the same, and throws ConfigError for a model with layers that have no price (refuse_counted_only()).
[[nodiscard]] Plan read_priced_plan(const std::string& path, const std::string& option = "plan");

/// Does the same as read_plan() for the plan that the positional PLAN of a command names, or whose text it was given as `text`.
[[nodiscard]] Plan read_asked_plan(const Options& options, const std::string& path, const char* text = "PLAN");

/// Does the same for callers that do not change the plan: also throws for a layout that breaks a rule of its model
/// (planner/constraints).
[[nodiscard]] Plan load_plan(const std::string& path);
/// Does the same for the positional PLAN of a command. Throws ConfigError for every option in `held` that is given together with it: the
/// plan states what these say.
[[nodiscard]] Plan load_asked_plan(const Options& options, const std::string& path, std::span<const char* const> held = {},
                                   const char* text = "PLAN");

/// Returns the plan of one layout of a workload; `batches`: of a command.
[[nodiscard]] Plan plan_of(const Workload& work, const Layout& layout, const BatchSchedule& batches = {});

/// Calls `console.plans` with the plan, if it is set.
void hand_over_plan(const Console& console, const Workload& work, const Layout& layout, const BatchSchedule& batches = {});

/// Writes the file of --save-plan, which Options::output_file() has checked. Throws RunError if it cannot be written.
void save_plan(const std::string& path, const Plan& plan);

}  // namespace mgplan::cli
