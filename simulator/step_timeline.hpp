#pragma once
// The exact time of one iteration: the pipeline run event by event, then the tied embedding's all-reduce, optimizer and
// parameter gather. Durations of passes are those of step_parts.hpp, as in the closed form.

#include <vector>

#include "simulator/step_time.hpp"
#include "simulator/timeline/pipeline_run.hpp"

namespace mgplan::simulator {

/// A chunk of a rank, for whoever shows the run.
struct ChunkTimes {
    StageTime time;
    ParameterCount parameters;
};

struct StepTimeline {
    TimePrediction time;
    std::vector<StageUse> stages;
    PipelineRun run;                 ///< details where asked for
    PipelineTimes times;             ///< of which it is the run
    std::vector<ChunkTimes> chunks;  ///< by rank · chunks + chunk
    double transfer = 0;             ///< seconds of one message between ranks
    double optimizer_begin = 0;      ///< every rank's gradients are complete: the gradient norm needs them all
    double tied_embedding = 0;       ///< seconds before it
    std::vector<double> optimizer;   ///< seconds by rank
    std::vector<double> gather;      ///< seconds by rank behind the optimizer
};

/// Durations of the passes of a program made of the layout's chunks: `split` schedules have the gradient of weights apart.
/// `chunks` in the program's own numbering.
[[nodiscard]] PipelineTimes pipeline_times(const StepInputs& inputs, const PipelineProgram& program, const std::vector<ChunkTimes>& chunks);

/// `chunk_parameters` and `census` by rank · chunks + chunk. `slowdown`: how many times as long each rank computes (stragglers.hpp),
/// communication and transfers as ever; empty: as long as all.
[[nodiscard]] StepTimeline step_timeline(const StepInputs& inputs, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                                         const std::vector<ParameterCount>& chunk_parameters, bool details = false,
                                         const std::vector<double>& slowdown = {});
/// Its iteration_seconds alone, without what their causes are: one run in place of three.
[[nodiscard]] double step_timeline_seconds(const StepInputs& inputs, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                                           const std::vector<ParameterCount>& chunk_parameters);

}  // namespace mgplan::simulator
