#pragma once
// A made-up timeline of one stage for the tests of what draws it.

#include <algorithm>

#include "reports/memory_timeline.hpp"
#include "simulator/memory/stage_timeline.hpp"

namespace mgplan::reports::testing {

/// The timeline of a 1F1B stage with `warmup` forwards ahead: 1000 bytes held (600 parameters, 400 optimizer), 100 of activations for every
/// microbatch alive, and 50 more while an op runs; 30 bytes of context.
struct SmallTimeline {
    explicit SmallTimeline(std::int64_t microbatches = 4, std::int64_t warmup = 1) {
        using model::MemoryCategory;
        const auto set = [](simulator::TimelineOp& op, std::int64_t alive) {
            op.at_begin[static_cast<std::size_t>(MemoryCategory::parameters)] = 600;
            op.at_begin[static_cast<std::size_t>(MemoryCategory::optimizer)] = 400;
            op.at_begin[static_cast<std::size_t>(MemoryCategory::activations)] = 100 * alive;
            op.live = 1000 + 100 * alive;
            op.at_peak = op.at_begin;
        };
        const auto add = [](simulator::TimelineOp& op, MemoryCategory category, std::int64_t bytes, std::string_view tensor) {
            op.at_peak[static_cast<std::size_t>(category)] += bytes;
            op.peak = op.live + bytes;
            op.tensor = tensor;
        };
        auto& memory = timeline.memory;
        set(memory.begin, 0);
        memory.begin.peak = memory.begin.live;
        std::int64_t alive = 0, forwards = 0, backwards = 0;
        while (backwards < microbatches) {
            const bool forward = forwards < microbatches && alive <= warmup;
            simulator::TimelineOp op;
            op.op = PipelineOp{forward ? Pass::forward : Pass::backward, 0, static_cast<std::int32_t>(forward ? forwards++ : backwards++)};
            op.index = std::ssize(memory.ops);
            set(op, alive);
            add(op, forward ? MemoryCategory::activations : MemoryCategory::workspace, forward ? 100 : 50,
                forward ? "output <of> & \"layer\"" : "scratch");
            alive += forward ? 1 : -1;
            timeline.schedule.ops.push_back(*op.op);
            memory.ops.push_back(op);
        }
        timeline.schedule.warmup = warmup;
        set(memory.end, 0);
        add(memory.end, MemoryCategory::optimizer, 20, "fp32 gradients");
        const auto peak =
            std::max_element(memory.ops.begin(), memory.ops.end(), [](const auto& a, const auto& b) { return a.peak < b.peak; });
        memory.use.peak = peak->peak;
        memory.use.at_peak = memory.use.high_water = peak->at_peak;
        memory.peak_op = peak->index;
        memory.peak_part = simulator::StepPart::passes;
        memory.peak_tensor = peak->tensor;

        stage.stage = 2;
        stage.first_rank = 16;
        simulator::RankMemory estimate;
        estimate.breakdown.context = estimate.high_water.context = 30;
        stage.memory = simulator::exact_memory(estimate, memory);
        stage.exact = true;
        stage.estimated_peak = 1200;
        stage.peak_op = peak_op_of(timeline);
    }
    SmallTimeline(const SmallTimeline&) = delete;

    [[nodiscard]] MemoryCurve curve(std::int64_t limit) const { return {stage, timeline, limit}; }

    simulator::StageTimeline timeline;
    StageMemory stage;
};

}  // namespace mgplan::reports::testing
