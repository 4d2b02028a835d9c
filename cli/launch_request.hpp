#pragma once
// The options of `mgplan launch` and the job they describe.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "jobs/job.hpp"
#include "plan/plan.hpp"

namespace mgplan::cli {

struct LaunchRequest {
    std::vector<std::string> plan;
    std::optional<std::string> via;
    std::string job = "mgplan";
    std::optional<std::string> script;
    bool dry_run = false;
    bool detach = false;
    std::optional<std::int64_t> nodes;
    std::optional<std::int64_t> gpus_per_node;
    std::optional<std::string> partition;
    std::optional<std::int64_t> segment;
    std::optional<std::string> hostfile;
    std::optional<std::int64_t> steps;
    std::string device = "cpu";
    std::optional<std::string> checkpoint;
    std::optional<std::int64_t> checkpoint_every;
    bool resume = false;
    std::int64_t max_restarts = 0;
    /// Arguments after "--": for `mgplan run`, or for Megatron-LM's script.
    std::vector<std::string> more;

    void declare(Options& options);
    [[nodiscard]] bool megatron() const { return job == "megatron"; }
};

/// Checks the request by itself: options that exclude each other, arguments after "--" that run does not have,
/// an engine that this machine does not have (not with --dry-run). Throws ConfigError with every problem.
void check(const LaunchRequest& request);

/// Number of nodes, and of ranks on each. placement_of() throws ConfigError where the plan's world does not fill the nodes evenly.
struct Placement {
    int nodes = 1;
    int ranks_per_node = 1;
};
[[nodiscard]] Placement placement_of(const LaunchRequest& request, const Plan& plan);

/// Returns the job, with `folder` for its files; `format` is that of rank 0's report.
[[nodiscard]] jobs::Job job_of(const LaunchRequest& request, const Plan& plan, const std::string& id, const std::string& folder,
                               std::string_view format);

}  // namespace mgplan::cli
