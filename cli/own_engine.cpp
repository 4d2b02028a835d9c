#include "cli/own_engine.hpp"

#include <fmt/core.h>

#include "cli/stage_memories.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

void refuse_what_own_engine_cannot_hold(const Plan& plan, const Layout& layout, model::DeviceKind device) {
    Layout own = layout;
    own.engine = Engine::mgplan;
    const Workload work = workload_of(plan);
    simulator::CostModel model(work);
    if (model.memory(own).fits()) return;
    const StageMemories memories = stage_memories(model, work, own, device);
    const reports::StageMemory& worst = reports::fullest(memories.stages);
    const std::int64_t needed = worst.memory.deciding_bytes();
    if (needed <= work.memory_limit) return;
    throw ConfigError(fmt::format(
        "engine = {} of the plan, and run and verify train with mgplan's own engine, which needs {} on rank {} (stage {}), more "
        "than the {} of a GPU of {}; use a plan of mgplan --engine mgplan, more recompute or a smaller micro-batch",
        to_string(plan.layout.engine), human_bytes(needed), worst.first_rank, worst.stage, human_bytes(work.memory_limit),
        plan.cluster.name));
}

}  // namespace mgplan::cli
