#pragma once
// The iteration when its passes do not always take the same: drawn many times from a seed.

#include <cstdint>

#include "simulator/timeline/pipeline_run.hpp"

namespace mgplan::simulator {

/// What is drawn. Passes drawn altogether stay below about 2^22; a long iteration is drawn less often, and of fewer replicas.
struct JitterRequest {
    double deviation = 0;  ///< of a pass, relative to its time
    std::uint64_t seed = 1;
    std::int64_t replicas = 1;  ///< data-parallel: an iteration waits for the slowest of them
};

/// Seconds from the first forward until all gradients are reduced.
struct JitterResult {
    int runs = 0;
    std::int64_t replicas = 1;  ///< drawn for each
    double mean = 0;
    double p95 = 0;  ///< the smallest that at least 95 % of the runs do not exceed
};

/// Every pass of every pipeline rank takes 1 + deviation·z times its seconds and never less than nothing, z drawn from the
/// standard normal distribution, each on its own (Box and Muller's method on std::mt19937_64, so that a seed means the same
/// everywhere). The ranks of a stage in one replica have one z: they wait for each other in every layer.
[[nodiscard]] JitterResult run_with_jitter(const PipelineProgram& program, PipelineTimes times, const JitterRequest& request);

}  // namespace mgplan::simulator
