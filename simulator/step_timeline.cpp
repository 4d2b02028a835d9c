#include "simulator/step_timeline.hpp"

#include <algorithm>
#include <utility>

namespace mgplan::simulator {

namespace {

/// Time of a chunk on a rank with `factor` times the compute time.
StageTime slowed(StageTime time, double factor) {
    const double exposed_forward = time.exposed_forward.total(), exposed_backward = time.exposed.total() - exposed_forward;
    time.forward = (time.forward - exposed_forward) * factor + exposed_forward;
    time.backward = (time.backward - exposed_backward) * factor + exposed_backward;
    for (double* part : {&time.weight, &time.recompute, &time.host, &time.expert_layers}) *part *= factor;
    for (ModuleWork& work : time.modules.works) work.seconds *= factor;
    return time;
}

/// Returns each stage's time for a microbatch; adds the seconds of optimizer and parameter gather to `step`, and FLOPs of all to
/// `recompute_flops`.
std::vector<StageTime> stage_times(const StepInputs& in, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                                   const std::vector<double>& slowdown, StepTimeline& step, double& recompute_flops) {
    const auto ranks = static_cast<std::size_t>(program.pp), chunks = static_cast<std::size_t>(program.chunks);
    const double m = static_cast<double>(in.layout.num_microbatches);
    std::vector<StageTime> stages(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        ParameterCount parameters;
        double gather = 0;
        for (std::size_t c = 0; c < chunks; ++c) {
            const ChunkTimes& chunk = step.chunks[r * chunks + c];
            stages[r].forward += chunk.time.forward;
            stages[r].backward += chunk.time.backward;
            stages[r].recompute += chunk.time.recompute;
            stages[r].waiting += chunk.time.waiting;
            stages[r].host += chunk.time.host;
            stages[r].expert_layers += chunk.time.expert_layers;
            stages[r].exposed += chunk.time.exposed;
            stages[r].exposed_data += chunk.time.exposed_data;
            stages[r].modules.add(chunk.time.modules, 1);
            recompute_flops += chunk.time.recompute_flops;
            parameters += chunk.parameters;
            if (!in.workload.training.overlap_param_gather) gather += data_parallel_seconds(in, chunk.parameters).gather;
        }
        if (stages[r].total() > stages[static_cast<std::size_t>(step.time.slowest_stage)].total())
            step.time.slowest_stage = static_cast<int>(r);
        ChunkCensus held;
        for (std::size_t c = 0; c < chunks; ++c) held += census[r * chunks + c];
        step.optimizer.push_back(optimizer_seconds(in, parameters, held, m * stages[r].total()) * (slowdown.empty() ? 1.0 : slowdown[r]));
        step.gather.push_back(gather);
    }
    return stages;
}

}  // namespace

PipelineTimes pipeline_times(const StepInputs& in, const PipelineProgram& program, const std::vector<ChunkTimes>& chunks) {
    const TrainingSpec& training = in.workload.training;
    PipelineTimes times;
    times.passes.resize(program.slots());
    times.transfer = transfer_seconds(in);
    times.overlap_transfers = program.chunks > 1 && training.overlap_p2p;
    times.overlap_reduce = training.overlap_grad_reduce;
    times.overlap_gather = training.overlap_param_gather;
    times.overlap_cost = in.calibration.overlap_cost;
    for (int r = 0; r < program.pp; ++r) {
        for (int c = 0; c < program.chunks; ++c) {
            const ChunkTimes& chunk =
                chunks[static_cast<std::size_t>(r) * static_cast<std::size_t>(program.chunks) + static_cast<std::size_t>(c)];
            times.passes[program.slot(r, c, Pass::forward)] = chunk.time.forward;
            times.passes[program.slot(r, c, Pass::backward)] = chunk.time.backward;
            times.passes[program.slot(r, c, Pass::input_gradient)] = chunk.time.backward - chunk.time.weight;
            times.passes[program.slot(r, c, Pass::weight_gradient)] = chunk.time.weight;
            const DataParallelSeconds work = data_parallel_seconds(in, chunk.parameters);
            times.reduce.push_back(work.reduce);
            times.gather.push_back(work.gather);
            // Only the first chunk of the first rank is cut into buckets by size, and only with overlapped reduction (Megatron-core
            // distributed_data_parallel.py: bucket_size is None after the first pipeline rank; training.py: disable_bucketing after the
            // first chunk).
            times.buckets.push_back(r == 0 && c == 0 && training.overlap_grad_reduce ? work.buckets : 1.0);
        }
    }
    return times;
}

namespace {

/// A simulated step, with the data from which its causes are computed.
struct PlayedStep {
    StepTimeline step;  ///< iteration_seconds, slowest_stage and optimizer_seconds are set, other causes not yet
    std::vector<StageTime> stages;
    double recompute_flops = 0;
    double after_passes = 0, gather_of_last = 0;  ///< seconds of the rank that is busy for longest after the passes
};

PlayedStep play_step(const StepInputs& in, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                     const std::vector<ParameterCount>& chunk_parameters, bool details, const std::vector<double>& slowdown) {
    const auto ranks = static_cast<std::size_t>(program.pp), chunks = static_cast<std::size_t>(program.chunks);
    PlayedStep played;
    StepTimeline& step = played.step;
    const auto factor = [&](std::size_t rank) { return slowdown.empty() ? 1.0 : slowdown[rank]; };
    PassTimes times(in);
    step.chunks.reserve(ranks * chunks);
    for (std::size_t i = 0; i < ranks * chunks; ++i)
        step.chunks.push_back({slowed(times.chunk(census[i]), factor(i / chunks)), chunk_parameters[i]});
    played.stages = stage_times(in, program, census, slowdown, step, played.recompute_flops);
    step.times = pipeline_times(in, program, step.chunks);
    step.run = run_pipeline(program, step.times, details);
    step.transfer = step.times.transfer;
    step.tied_embedding = tied_embedding_seconds(in);
    step.optimizer_begin = step.run.end;
    if (step.tied_embedding > 0)
        step.optimizer_begin =
            std::max(step.optimizer_begin, std::max(step.run.reduced.front(), step.run.reduced.back()) + step.tied_embedding);
    for (std::size_t r = 0; r < ranks; ++r) {
        if (step.optimizer[r] + step.gather[r] < played.after_passes) continue;
        played.after_passes = step.optimizer[r] + step.gather[r];
        step.time.optimizer_seconds = step.optimizer[r];
        played.gather_of_last = step.gather[r];
    }
    step.time.iteration_seconds = step.optimizer_begin + played.after_passes + host_seconds(in.calibration, in.layout.engine).iteration;
    return played;
}

}  // namespace

double step_timeline_seconds(const StepInputs& in, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                             const std::vector<ParameterCount>& chunk_parameters) {
    return play_step(in, program, census, chunk_parameters, false, {}).step.time.iteration_seconds;
}

StepTimeline step_timeline(const StepInputs& in, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                           const std::vector<ParameterCount>& chunk_parameters, bool details, const std::vector<double>& slowdown) {
    const double m = static_cast<double>(in.layout.num_microbatches);
    const auto ranks = static_cast<std::size_t>(program.pp);
    PlayedStep played = play_step(in, program, census, chunk_parameters, details, slowdown);
    StepTimeline& step = played.step;
    const double after = played.after_passes, gather_of_last = played.gather_of_last;

    TimePrediction& time = step.time;
    const StageTime& slowest = played.stages[static_cast<std::size_t>(time.slowest_stage)];

    // The cost of a cause is the time that the iteration would save without it: first without communication between pipeline ranks and of
    // the data-parallel group, then with the former, then with both.
    PipelineTimes alone = step.times;
    alone.reduce.clear();
    alone.gather.clear();
    const double with_transfers = program.pp > 1 ? run_pipeline(program, alone).end : 0;
    alone.transfer = 0;
    const double passes_alone = run_pipeline(program, alone).end;

    time.compute_seconds = m * (slowest.total() - slowest.exposed.total() - slowest.exposed_data);
    time.recompute_seconds = m * slowest.recompute;
    time.host_seconds = m * slowest.waiting;
    time.exposed.tp = m * slowest.exposed.tp;
    time.exposed.cp = m * slowest.exposed.cp;
    time.exposed.ep = m * slowest.exposed.ep;
    time.bubble_seconds = std::max(0.0, passes_alone - m * slowest.total());
    if (program.pp > 1) time.exposed.pp = with_transfers - passes_alone;
    time.exposed.dp = step.run.end - (program.pp > 1 ? with_transfers : passes_alone) + gather_of_last + m * slowest.exposed_data;
    time.exposed.pp += step.optimizer_begin - step.run.end;
    for (std::size_t r = 0; r < ranks; ++r) {
        const StageTime& stage = played.stages[r];
        StageUse use;
        use.compute_seconds = m * (stage.total() - stage.exposed.total() - stage.exposed_data);
        use.recompute_seconds = m * stage.recompute;
        use.host_seconds = m * stage.waiting;
        use.exposed = {m * stage.exposed.tp, m * stage.exposed.cp, m * stage.exposed.ep,
                       time.exposed.dp - gather_of_last + step.gather[r] + m * (stage.exposed_data - slowest.exposed_data),
                       time.exposed.pp};
        use.optimizer_seconds = step.optimizer[r];
        use.bubble_seconds = std::max(0.0, passes_alone - m * stage.total()) + after - step.optimizer[r] - step.gather[r];
        use.fixed_seconds = host_seconds(in.calibration, in.layout.engine).iteration;
        use.utilisation = use.compute_seconds / time.iteration_seconds;
        step.stages.push_back(use);
        time.imbalance_seconds += (use.bubble_seconds - time.bubble_seconds) / program.pp;
    }
    finish_rates(in, slowest, played.recompute_flops, time);
    return std::move(played.step);
}

}  // namespace mgplan::simulator
