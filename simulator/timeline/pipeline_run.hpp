#pragma once
// Event simulation of one iteration of a pipeline program: begin and end of each pass on its rank's compute stream, arrival of its result,
// and gradient reductions and parameter gathers on the rank's dp stream.

#include <cstdint>
#include <vector>

#include "simulator/timeline/pipeline_program.hpp"

namespace mgplan::simulator {

/// Durations in seconds. Vectors by chunk have the index rank · chunks + chunk.
struct PipelineTimes {
    std::vector<double> passes;  ///< by PipelineProgram::slot
    double transfer = 0;         ///< from one rank to a neighbour
    /// True: transfers run in parallel with the passes, one after the other in each direction (Megatron-LM's overlap_p2p_comm). False: the
    /// sending rank waits until its message is sent, as Megatron-LM's compute stream waits for the communication
    /// (pipeline_parallel/p2p_communication.py).
    bool overlap_transfers = false;
    /// Seconds of data-parallel communication of every chunk; empty: none.
    std::vector<double> reduce, gather;
    std::vector<double> buckets;  ///< number of buckets of both; 1: not divided
    bool overlap_reduce = false;  ///< false: the reduction follows the rank's last pass
    bool overlap_gather = false;  ///< false: the gather follows the optimizer and is not part of the run
    std::vector<double> factors;  ///< by op: factor on its seconds; empty: 1
    double overlap_cost = 0;      ///< share of its time by which hidden communication slows down the concurrent pass
};

/// One gather or reduction on a rank's dp stream.
struct DataParallelEvent {
    std::uint16_t rank = 0, chunk = 0;
    bool gather = false;
    double begin = 0, end = 0;
};

struct PipelineRun {
    std::vector<double> last_pass;  ///< by rank: end of its last pass, and of the send that it waits for
    std::vector<double> busy;       ///< by rank: seconds inside passes
    std::vector<double> reduced;    ///< by rank: time at which its gradients are complete
    double end = 0;                 ///< the largest element of reduced
    // Set only with details:
    std::vector<double> begins, ends, arrivals;  ///< by op
    std::vector<DataParallelEvent> data_parallel;
};

/// The program must have no deadlock.
[[nodiscard]] PipelineRun run_pipeline(const PipelineProgram& program, const PipelineTimes& times, bool details = false);

}  // namespace mgplan::simulator
