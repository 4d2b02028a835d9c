#pragma once
// The search space of `plan`: that of its options, widened and narrowed by the model, a Megatron-LM command and --search.

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/workload_options.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"

namespace mgplan::cli {

/// Confines tp and ep to fast links if no option gives their sizes.
void confine(Workload& workload, const planner::SearchSpace& space);

/// Sets the recompute modules by the model, unless --recompute-modules was given.
void settle_for_model(const Options& options, const ModelSpec& model, planner::SearchSpace& space);

/// Takes choices that a search does not make from the Megatron-LM command in `resolved`, unless an option gives them.
void keep_of_command(const Options& options, ResolvedWorkload& resolved, planner::SearchSpace& space);

/// Adds the axes of --search and --dispatcher that nothing else pins. Throws ConfigError for contradictions.
void add_axes(const Options& options, const PlanOptions& values, const ResolvedWorkload& resolved, const WorkloadOptions& job,
              planner::SearchSpace& space);

/// Refuses scopes of CUDA graphs that the job's model cannot have, and dispatchers of experts' tokens of which none that is searched goes
/// with its graphs, type of tokens, GPUs and flags, whatever the sizes of a layout are. Throws ConfigError with the problems of each,
/// and the dispatchers that would do.
void check_graphs_and_dispatchers(const PlanOptions& values, const planner::SearchSpace& space, const Workload& workload);

/// Refuses a layout string that suits the model on no pipeline: wrong numbers of layers, E or L out of place. Throws ConfigError.
void check_pipeline_layout(const std::string& text, const ModelSpec& model);

/// Returns the assumptions of a single layout without those that each row of a search decides.
[[nodiscard]] std::vector<std::string> without_what_is_searched(std::vector<std::string> assumed, const Workload& workload,
                                                                const planner::SearchSpace& space);

/// Says on console.err which options change nothing, here because of what the others leave to search.
void note_idle_options(const Options& options, const WorkloadOptions& workload, const PlanOptions& values, const ModelSpec& model,
                       Console& console);

}  // namespace mgplan::cli
