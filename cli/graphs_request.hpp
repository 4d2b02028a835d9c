#pragma once
// The request of `mgplan graphs`: a schedule with the captured layers, and with a model also a whole layout.

#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "plan/graphs/graph_slots.hpp"
#include "plan/layout/layout.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/workload.hpp"

namespace mgplan::cli {

/// Values as given.
struct GraphsOptions {
    std::vector<std::string> plan;
    std::optional<std::string> model, assume, layers_per_chunk, scopes, precision, sequence_parallel, policy;
    std::optional<std::int64_t> pp, vpp, microbatches, group_size, tp, cp, ep, etp, micro_batch, sequence;
    std::optional<std::string> capacity_factor;
};

/// Input of the counts, and of the bytes if there is a model.
struct GraphsRequest {
    ScheduleRequest schedule;
    GraphedChunk layers;                  ///< without a model: of every chunk …
    std::vector<GraphedChunk> per_chunk;  ///< … or of each
    std::optional<Workload> workload;     ///< with a model …
    Layout layout;                        ///< … and its layout; the engine says the policy
    EnumSet<CudaGraphScope> scopes;
    GraphPolicy policy = GraphPolicy::slots;
    std::vector<double> capacity_factors;  ///< of padded experts, to compare whole-layer capture with; none without experts
    std::vector<std::string> assumed;
};

void declare_graphs_options(Options& options, GraphsOptions& given);

/// `options` have been parsed into `given`; notes on the model go to `console.err`. Throws ConfigError with all problems.
[[nodiscard]] GraphsRequest read_graphs_request(const Options& options, const GraphsOptions& given, Console& console);

}  // namespace mgplan::cli
