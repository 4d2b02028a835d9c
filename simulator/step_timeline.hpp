#pragma once
// Exact time of one iteration: the pipeline simulated event by event, then the all-reduce of a tied embedding, the optimizer and the
// parameter gather. Passes take the durations of step_parts.hpp, as in the closed form.

#include <vector>

#include "simulator/step_time.hpp"
#include "simulator/timeline/pipeline_run.hpp"

namespace mgplan::simulator {

/// Time and parameters of one chunk of a rank, for reports.
struct ChunkTimes {
    StageTime time;
    ParameterCount parameters;
};

struct StepTimeline {
    TimePrediction time;
    std::vector<StageUse> stages;
    PipelineRun run;                 ///< with details if requested
    PipelineTimes times;             ///< the durations that `run` used
    std::vector<ChunkTimes> chunks;  ///< index = rank · chunks + chunk
    double transfer = 0;             ///< seconds of one message between ranks
    double optimizer_begin = 0;      ///< when every rank's gradients are complete: the gradient norm needs them all
    double tied_embedding = 0;       ///< seconds of its all-reduce, before the optimizer
    std::vector<double> optimizer;   ///< seconds by rank
    std::vector<double> gather;      ///< seconds by rank, after the optimizer
};

/// Durations of the passes of a program over the layout's chunks; split backwards have the gradient of weights as a separate pass.
/// `chunks`: in the program's numbering.
[[nodiscard]] PipelineTimes pipeline_times(const StepInputs& inputs, const PipelineProgram& program, const std::vector<ChunkTimes>& chunks);

/// `chunk_parameters` and `census` (layer counts): index = rank · chunks + chunk. `slowdown`: factor on each rank's compute time
/// (stragglers.hpp), not on communication and transfers; empty: 1 for all.
[[nodiscard]] StepTimeline step_timeline(const StepInputs& inputs, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                                         const std::vector<ParameterCount>& chunk_parameters, bool details = false,
                                         const std::vector<double>& slowdown = {});
/// iteration_seconds alone, without causes: one simulation instead of three.
[[nodiscard]] double step_timeline_seconds(const StepInputs& inputs, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                                           const std::vector<ParameterCount>& chunk_parameters);

}  // namespace mgplan::simulator
