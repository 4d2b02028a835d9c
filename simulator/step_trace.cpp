#include "simulator/step_trace.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace mgplan::simulator {
namespace {

std::string_view letter(Pass pass) {
    switch (pass) {
        case Pass::forward:
            return "F";
        case Pass::backward:
        case Pass::input_gradient:
            return "B";
        case Pass::weight_gradient:
            return "W";
    }
    return "?";
}

/// "F3", or with chunks "F3 chunk 1".
std::string pass_name(const ProgramOp& op, int chunks) {
    return chunks > 1 ? fmt::format("{}{} chunk {}", letter(op.pass), op.microbatch, op.chunk)
                      : fmt::format("{}{}", letter(op.pass), op.microbatch);
}

/// Number of microbatches drawn at each end of the iteration.
std::int64_t drawn_at_either_end(const PipelineProgram& program, std::int64_t microbatches, std::size_t most_slices) {
    // A pass may add three exposed parts, a transfer and two counters.
    const std::size_t most = most_slices / 7;
    if (program.ops.size() <= most) return microbatches;
    const double share = static_cast<double>(most) / static_cast<double>(program.ops.size());
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(microbatches) * share / 2));
}

}  // namespace

TimelineTrace timeline_trace(const LayoutTimeline& timeline, const std::vector<std::optional<StageTimeline>>& memory_by_rank,
                             std::size_t most) {
    const PipelineProgram& program = *timeline.program;
    const StepTimeline& step = timeline.step;
    const PipelineRun& run = step.run;
    std::int64_t microbatches = 0;
    for (const ProgramOp& op : program.ops) microbatches = std::max<std::int64_t>(microbatches, op.microbatch + 1);
    const std::int64_t ends = drawn_at_either_end(program, microbatches, most);
    const bool all = 2 * ends >= microbatches;
    TimelineTrace trace;
    trace.ranks = program.pp;
    if (!all) {
        trace.left_out_begin = ends;
        trace.left_out_end = microbatches - ends;
    }
    const auto add = [&](int rank, Stream stream, std::string name, double begin, double end) {
        if (end > begin) trace.slices.push_back({static_cast<std::uint16_t>(rank), stream, begin, end, std::move(name)});
    };
    // Memory: next timeline entry of each rank, by its index in the rank's schedule.
    std::vector<std::size_t> memory_at(static_cast<std::size_t>(program.pp), 0);
    std::vector<std::int64_t> place(memory_at.size(), 0);
    const auto memory_of = [&](std::size_t rank) -> const RankTimeline* {
        return rank < memory_by_rank.size() && memory_by_rank[rank] ? &memory_by_rank[rank]->memory : nullptr;
    };
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const ProgramOp& op = program.ops[i];
        const std::int64_t own_place = place[op.rank]++;
        const auto* memory = memory_of(op.rank);
        const TimelineOp* held = nullptr;
        if (memory != nullptr) {
            std::size_t& at = memory_at[op.rank];
            while (at < memory->ops.size() && memory->ops[at].index < own_place) ++at;
            if (at < memory->ops.size() && memory->ops[at].index == own_place) held = &memory->ops[at];
        }
        if (!all && op.microbatch >= ends && op.microbatch < microbatches - ends) continue;
        const std::string name = pass_name(op, program.chunks);
        const double begin = run.begins[i], end = run.ends[i];
        add(op.rank, Stream::compute, name, begin, end);
        if (held != nullptr) {
            trace.memory.push_back({op.rank, begin, held->live});
            trace.memory.push_back({op.rank, (begin + end) / 2, held->peak});
        }
        const StageTime& time = step.chunks[static_cast<std::size_t>(op.rank) * static_cast<std::size_t>(program.chunks) + op.chunk].time;
        GroupSeconds exposed;
        if (op.pass == Pass::forward) exposed = time.exposed_forward;
        if (op.pass == Pass::backward || op.pass == Pass::input_gradient) {
            exposed = {time.exposed.tp - time.exposed_forward.tp, time.exposed.cp - time.exposed_forward.cp,
                       time.exposed.ep - time.exposed_forward.ep};
        }
        double at = std::max(begin, end - exposed.total());
        for (const auto& [stream, seconds] :
             {std::pair(Stream::tp, exposed.tp), std::pair(Stream::cp, exposed.cp), std::pair(Stream::ep, exposed.ep)}) {
            add(op.rank, stream, name + " exposed", at, std::min(end, at + seconds));
            at += seconds;
        }
        if (op.sends) add(op.rank, Stream::p2p, "send " + name, run.arrivals[i] - step.transfer, run.arrivals[i]);
    }
    for (const DataParallelEvent& event : run.data_parallel)
        add(event.rank, Stream::dp, fmt::format("{} chunk {}", event.gather ? "gather parameters" : "reduce gradients", event.chunk),
            event.begin, event.end);
    for (int r = 0; r < program.pp; ++r) {
        const auto rank = static_cast<std::size_t>(r);
        if (step.tied_embedding > 0 && (r == 0 || r == program.pp - 1))
            add(r, Stream::p2p, "all-reduce tied embedding", step.optimizer_begin - step.tied_embedding, step.optimizer_begin);
        const double updated = step.optimizer_begin + step.optimizer[rank];
        add(r, Stream::compute, "optimizer", step.optimizer_begin, updated);
        add(r, Stream::dp, "gather parameters", updated, updated + step.gather[rank]);
    }
    return trace;
}

PipelinePicture pipeline_picture(const LayoutTimeline& timeline) {
    const PipelineProgram& program = *timeline.program;
    const StepTimeline& step = timeline.step;
    PipelinePicture picture;
    picture.ranks = program.pp;
    picture.chunks = program.chunks;
    picture.passes.reserve(program.ops.size());
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const ProgramOp& op = program.ops[i];
        picture.passes.push_back({step.run.begins[i], step.run.ends[i], op.microbatch, op.rank, op.chunk, op.pass});
    }
    for (const DataParallelEvent& event : step.run.data_parallel) picture.data_parallel.push_back({event.begin, event.end, event.rank});
    picture.optimizer_begin = step.optimizer_begin;
    picture.optimizer = step.optimizer;
    picture.gather = step.gather;
    return picture;
}

void join_pairs(PipelinePicture& picture, const Layout& layout) {
    std::vector<std::vector<DrawnPass*>> ranks(static_cast<std::size_t>(picture.ranks));
    for (DrawnPass& pass : picture.passes) ranks[pass.rank].push_back(&pass);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        std::vector<DrawnPass*>& passes = ranks[rank];
        std::ranges::stable_sort(passes, {}, &DrawnPass::begin);
        const std::int64_t behind = picture.ranks - 1 - static_cast<std::int64_t>(rank);
        const std::int64_t alone = picture.ranks == 1 ? 1
                                   : layout.vpp == 1  ? behind
                                                      : (layout.vpp - 1) * layout.group_size + 2 * behind + 1;
        for (auto i = static_cast<std::size_t>(alone); i + 1 < passes.size(); i += 2) {
            DrawnPass &first = *passes[i], &second = *passes[i + 1];
            constexpr double kWait = 0.01;  // of both passes
            const bool waits = second.begin - first.end > kWait * (second.end - first.begin);
            if ((first.pass == Pass::forward) == (second.pass == Pass::forward) || waits) continue;
            second.begin = first.begin;
            first.end = second.end;
            first.paired = second.paired = true;
        }
    }
}

}  // namespace mgplan::simulator
