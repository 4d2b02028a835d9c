#pragma once
// Where the job comes from that a command is about: a model, Megatron-LM's flags, a record of a launch, Megatron-Bridge's configuration.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/workload_options.hpp"
#include "formats/input/job.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

/// The options that name one, as given.
[[nodiscard]] std::vector<std::string> source_options(const WorkloadOptions& values);
/// Whether it holds a layout and training options, too.
[[nodiscard]] bool is_command(const WorkloadOptions& values);
/// Adds what is wrong with their number, or with options for one of them.
void add_source_problems(const WorkloadOptions& values, Problems& problems);

struct SourcedJob {
    formats::Job job;
    std::optional<std::int64_t> world;  ///< where the source tells
    std::string world_source;           ///< what of it
};
/// Exactly one of the options is given. Throws ConfigError with all problems.
[[nodiscard]] SourcedJob load_job(const Options& options, const WorkloadOptions& values, int compute_capability);

}  // namespace mgplan::cli
