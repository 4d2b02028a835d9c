#pragma once
// Distribution of the iteration time if the durations of passes vary, sampled from a seed.

#include <cstdint>

#include "simulator/timeline/pipeline_run.hpp"

namespace mgplan::simulator {

/// Parameters of the samples. At most about 2^22 passes are drawn in total; long iterations are drawn less often and with fewer replicas.
struct JitterRequest {
    double deviation = 0;  ///< standard deviation of a pass, relative to its time
    std::uint64_t seed = 1;
    std::int64_t replicas = 1;  ///< data-parallel replicas: an iteration waits for the slowest of them
};

/// Seconds from the first forward until all gradients are reduced.
struct JitterResult {
    int runs = 0;
    std::int64_t replicas = 1;  ///< number drawn for each run
    double mean = 0;
    double p95 = 0;  ///< the smallest value that at least 95 % of the runs do not exceed
};

/// Every pass of every pipeline rank takes 1 + deviation·z times its seconds, at least 0, with independent standard normal z (Box-Muller on
/// std::mt19937_64, so that a seed gives the same numbers on every platform). The ranks of a stage in one replica share one z: they wait
/// for each other in every layer.
[[nodiscard]] JitterResult run_with_jitter(const PipelineProgram& program, PipelineTimes times, const JitterRequest& request);

}  // namespace mgplan::simulator
