#include "cli/stage_memories.hpp"

#include <cstdlib>
#include <string_view>

#include "plan/layout/stage_ranks.hpp"
#include "plan/text/text.hpp"
#include "simulator/memory/stage_timeline.hpp"

namespace mgplan::cli {
namespace {

bool locale_is_utf8() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        const char* value = std::getenv(name);
        if (value == nullptr || *value == '\0') continue;
        const std::string text = lower_case(value);
        return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
    }
    return false;
}

}  // namespace

StageMemories stage_memories(simulator::CostModel& model, const Workload& workload, const Layout& layout, model::DeviceKind device) {
    const bool on_gpus = device == model::DeviceKind::cuda;
    simulator::StageTimelines timelines(workload, layout, on_gpus ? simulator::kernels_of(workload.cluster) : model::KernelTraits{},
                                        [&](int stage) { return model.megatron_ops(layout, stage); });
    StageMemories found;
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        reports::StageMemory memory;
        memory.stage = stage;
        memory.first_rank = first_rank_of_stage(layout.sizes, stage);
        memory.memory = model.stage_memory(layout, stage);
        memory.estimated_peak = memory.memory.deciding_bytes();
        if (const auto timeline = timelines.of(stage, false)) {
            if (!on_gpus && timelines.exact()) {
                memory.memory.shift_routing(-memory.memory.breakdown.context);
                memory.memory.breakdown.context = memory.memory.high_water.context = 0;
                memory.memory.context_terms = {};
            }
            memory.memory = simulator::exact_memory(memory.memory, timeline->memory);
            memory.exact = timelines.exact();
            memory.peak_op = reports::peak_op_of(*timeline);
        } else if (memory.memory.peak_at) {
            memory.peak_op = reports::peak_op_of(*memory.memory.peak_at);
        }
        found.stages.push_back(std::move(memory));
    }
    found.why_no_timeline = timelines.why_none();
    if (found.why_no_timeline.empty()) found.fullest = timelines.of(reports::fullest(found.stages).stage, true);
    return found;
}

std::optional<reports::MemoryCurve> curve_of(const StageMemories& memories, std::int64_t limit_bytes) {
    if (!memories.fullest) return std::nullopt;
    return reports::MemoryCurve{reports::fullest(memories.stages), *memories.fullest, limit_bytes};
}

std::string stage_memories_text(const StageMemories& memories, std::int64_t limit_bytes) {
    std::string text = reports::stage_memory_text(memories.stages, limit_bytes);
    if (const auto curve = curve_of(memories, limit_bytes)) {
        reports::TextDrawing drawing;
        drawing.unicode = locale_is_utf8();
        return text + reports::memory_timeline_text(*curve, drawing);
    }
    return text + memories.why_no_timeline + "\n";
}

}  // namespace mgplan::cli
