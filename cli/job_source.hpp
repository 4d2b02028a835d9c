#pragma once
// The source of a command's job: a model, Megatron-LM's flags, a record of a launch, Megatron-Bridge's configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/workload_options.hpp"
#include "formats/input/job.hpp"
#include "formats/megatron/bridge_launch.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

/// The options that name one, as given.
[[nodiscard]] std::vector<std::string> source_options(const WorkloadOptions& values);
/// Returns true if the source holds a layout and training options, too.
[[nodiscard]] bool is_command(const WorkloadOptions& values);
/// Returns true if a command states a layout for the model of --model.
[[nodiscard]] bool has_model_and_command(const WorkloadOptions& values);
/// Adds problems with their number, or with options for one of them.
void add_source_problems(const WorkloadOptions& values, Problems& problems);

/// Puts a file that was named without an option where it belongs, by its contents; returns what it was read as, for the answer's first
/// line.
[[nodiscard]] std::string settle_source(const std::string& path, WorkloadOptions& values);

/// The launch of a recipe of Megatron-Bridge that a script starts; nothing for other files. Throws ConfigError for a launch that the
/// recipe's script refuses.
[[nodiscard]] std::optional<formats::BridgeLaunch> bridge_launch_in(const std::string& path, const WorkloadOptions& values);

struct SourcedJob {
    formats::Job job{};                   ///< only without problems
    std::optional<std::int64_t> world{};  ///< if the source gives it
    std::string world_source{};           ///< the part of the source that gives it
    Problems problems{};                  ///< of a source that gives the world whatever else is wrong with it
};
/// Exactly one of the options is given. Throws ConfigError with all problems of sources that then give no world.
[[nodiscard]] SourcedJob load_job(const Options& options, const WorkloadOptions& values, int compute_capability);

}  // namespace mgplan::cli
