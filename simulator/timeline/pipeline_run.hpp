#pragma once
// One iteration of a pipeline program as discrete events: when each pass begins and ends on its rank's compute stream, when its
// result has arrived, and what gradient reductions and parameter gathers do beside it on the rank's dp stream.

#include <cstdint>
#include <vector>

#include "simulator/timeline/pipeline_program.hpp"

namespace mgplan::simulator {

/// Seconds. Vectors by chunk are indexed rank · chunks + chunk.
struct PipelineTimes {
    std::vector<double> passes;  ///< by PipelineProgram::slot
    double transfer = 0;         ///< from one rank to a neighbour
    /// Transfers go on beside the passes, one after the other in each direction (Megatron-LM's overlap_p2p_comm). Otherwise the
    /// sending rank waits until its message is gone: Megatron-LM's compute stream waits for the communication
    /// (pipeline_parallel/p2p_communication.py).
    bool overlap_transfers = false;
    /// Data-parallel work of every chunk; empty: none.
    std::vector<double> reduce, gather;
    std::vector<double> buckets;  ///< into which both are cut; 1: not
    bool overlap_reduce = false;  ///< else it follows the last pass of the rank
    bool overlap_gather = false;  ///< else it is not part of the run: it follows the optimizer
    std::vector<double> factors;  ///< by op: how many times its seconds it takes; empty: once
    double overlap_cost = 0;      ///< share of its time that hidden communication takes from the pass beside it
};

/// A piece of work on a rank's dp stream.
struct DataParallelEvent {
    std::uint16_t rank = 0, chunk = 0;
    bool gather = false;
    double begin = 0, end = 0;
};

struct PipelineRun {
    std::vector<double> last_pass;  ///< by rank: end of its last pass, and of the message it waits for to be sent
    std::vector<double> busy;       ///< by rank: inside passes
    std::vector<double> reduced;    ///< by rank: its gradients are complete
    double end = 0;                 ///< the last of reduced
    // Where details are asked for:
    std::vector<double> begins, ends, arrivals;  ///< by op
    std::vector<DataParallelEvent> data_parallel;
};

/// The program must have no deadlock.
[[nodiscard]] PipelineRun run_pipeline(const PipelineProgram& program, const PipelineTimes& times, bool details = false);

}  // namespace mgplan::simulator
