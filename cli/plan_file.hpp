#pragma once
// Plan files named on the command line.

#include <string>

#include "plan/plan.hpp"
#include "plan/workload.hpp"

namespace mgplan::cli {

/// Reads the plan that --save-plan wrote. Throws ConfigError with all problems: unreadable, no JSON, fields wrong. `option` names
/// the file in messages. Rules between layout and model are the caller's to ask.
[[nodiscard]] Plan read_plan(const std::string& path, const std::string& option = "plan");

/// The same for callers that change nothing of it: also throws for a layout that breaks a rule of its model
/// (planner/constraints).
[[nodiscard]] Plan load_plan(const std::string& path);

/// The plan of one layout of a workload.
[[nodiscard]] Plan plan_of(const Workload& work, const Layout& layout);

/// Writes it for --save-plan, which Options::output_file() has tried. Throws RunError when the file cannot be written.
void save_plan(const std::string& path, const Plan& plan);

}  // namespace mgplan::cli
