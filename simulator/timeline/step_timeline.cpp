#include "simulator/timeline/step_timeline.hpp"

#include <algorithm>

namespace mgplan::simulator {

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
            // Only the first chunk of the first rank is cut by size, and only with overlapped reduction (Megatron-core
            // distributed_data_parallel.py: bucket_size is None behind the first pipeline rank; training.py:
            // disable_bucketing behind the first chunk).
            times.buckets.push_back(r == 0 && c == 0 && training.overlap_grad_reduce ? work.buckets : 1.0);
        }
    }
    return times;
}

StepTimeline step_timeline(const StepInputs& in, const PipelineProgram& program, const std::vector<ChunkCensus>& census,
                           const std::vector<ParameterCount>& chunk_parameters, bool details) {
    const Layout& layout = in.layout;
    const double m = static_cast<double>(layout.num_microbatches);
    const auto ranks = static_cast<std::size_t>(program.pp), chunks = static_cast<std::size_t>(program.chunks);
    const LayerCosts layers = launched_costs(in);
    StepTimeline step;
    for (std::size_t i = 0; i < ranks * chunks; ++i) step.chunks.push_back({chunk_time(in, layers, census[i]), chunk_parameters[i]});

    TimePrediction& time = step.time;
    std::vector<StageTime> stages(ranks);
    double recompute_flops = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        ParameterCount parameters;
        double gather = 0;
        for (std::size_t c = 0; c < chunks; ++c) {
            const ChunkTimes& chunk = step.chunks[r * chunks + c];
            stages[r].forward += chunk.time.forward;
            stages[r].backward += chunk.time.backward;
            stages[r].recompute += chunk.time.recompute;
            stages[r].host += chunk.time.host;
            stages[r].expert_layers += chunk.time.expert_layers;
            stages[r].exposed += chunk.time.exposed;
            recompute_flops += chunk.time.recompute_flops;
            parameters += chunk.parameters;
            if (!in.workload.training.overlap_param_gather) gather += data_parallel_seconds(in, chunk.parameters).gather;
        }
        if (stages[r].total() > stages[static_cast<std::size_t>(time.slowest_stage)].total()) time.slowest_stage = static_cast<int>(r);
        step.optimizer.push_back(optimizer_seconds(in, parameters));
        step.gather.push_back(gather);
    }
    const StageTime& slowest = stages[static_cast<std::size_t>(time.slowest_stage)];

    const PipelineTimes times = pipeline_times(in, program, step.chunks);
    // What a cause costs is what the iteration would be shorter without it: first without communication between ranks of the
    // pipeline and of the data-parallel group, then with the former, then with both.
    PipelineTimes alone = times;
    alone.reduce.clear();
    alone.gather.clear();
    const double with_transfers = program.pp > 1 ? run_pipeline(program, alone).end : 0;
    alone.transfer = 0;
    const double passes_alone = run_pipeline(program, alone).end;
    step.run = run_pipeline(program, times, details);
    step.transfer = times.transfer;
    step.tied_embedding = tied_embedding_seconds(in);
    step.optimizer_begin = step.run.end;
    if (step.tied_embedding > 0)
        step.optimizer_begin =
            std::max(step.optimizer_begin, std::max(step.run.reduced.front(), step.run.reduced.back()) + step.tied_embedding);
    double after = 0, optimizer_of_last = 0, gather_of_last = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        if (step.optimizer[r] + step.gather[r] < after) continue;
        after = step.optimizer[r] + step.gather[r];
        optimizer_of_last = step.optimizer[r];
        gather_of_last = step.gather[r];
    }

    time.compute_seconds = m * (slowest.total() - slowest.exposed.total());
    time.recompute_seconds = m * slowest.recompute;
    time.exposed.tp = m * slowest.exposed.tp;
    time.exposed.cp = m * slowest.exposed.cp;
    time.exposed.ep = m * slowest.exposed.ep;
    time.bubble_seconds = std::max(0.0, passes_alone - m * slowest.total());
    if (program.pp > 1) time.exposed.pp = with_transfers - passes_alone;
    time.exposed.dp = step.run.end - (program.pp > 1 ? with_transfers : passes_alone) + gather_of_last;
    time.exposed.pp += step.optimizer_begin - step.run.end;
    time.optimizer_seconds = optimizer_of_last;
    time.iteration_seconds = step.optimizer_begin + after + in.calibration.iteration_fixed_seconds;
    for (std::size_t r = 0; r < ranks; ++r) {
        step.stages.push_back({step.run.busy[r], step.optimizer_begin - step.run.busy[r], step.run.busy[r] / time.iteration_seconds});
    }
    finish_rates(in, slowest, recompute_flops, time);
    return step;
}

}  // namespace mgplan::simulator
