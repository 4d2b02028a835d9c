#include "simulator/memory/stage_timeline.hpp"

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::simulator {
namespace {

/// Limit on the simulated forwards and backwards of all stages: about ten seconds of work.
constexpr std::int64_t kMostOps = std::int64_t{1} << 27U;

model::TrainingTask task_of(const Workload& workload, const Layout& layout) {
    model::TrainingTask task;
    task.model = workload.model;
    task.batch = workload.batch;
    task.training = workload.training;
    task.layout = layout;
    task.balanced_routing = true;
    return task;
}

void take_tensors(MemoryBreakdown& into, const BytesByCategory& bytes) {
    const auto of = [&](model::MemoryCategory category) { return bytes[static_cast<std::size_t>(category)]; };
    into.parameters = of(model::MemoryCategory::parameters);
    into.gradients = of(model::MemoryCategory::gradients);
    into.optimizer = of(model::MemoryCategory::optimizer);
    into.activations = of(model::MemoryCategory::activations);
    into.communication = of(model::MemoryCategory::communication);
    into.workspace = of(model::MemoryCategory::workspace);
}

}  // namespace

RankMemory exact_memory(const RankMemory& estimate, const RankTimeline& timeline) {
    RankMemory memory = estimate;
    take_tensors(memory.breakdown, timeline.use.at_peak);
    take_tensors(memory.high_water, timeline.use.high_water);
    memory.framework_bytes = timeline.use.peak;
    memory.reserved_bytes = memory.framework_bytes + memory.breakdown.fragmentation;
    memory.shift_routing(memory.peak_bytes() - estimate.peak_bytes());
    return memory;
}

model::KernelTraits kernels_of(const ClusterSpec& cluster) {
    return {.kind = model::DeviceKind::cuda, .architecture = cluster.compute_capability, .fused_attention = true};
}

StageTimelines::StageTimelines(const Workload& workload, const Layout& layout, const model::KernelTraits& stands_for,
                               std::function<RankProbe(int pp_rank)> megatron_ops)
    : task_(task_of(workload, layout)), stands_for_(stands_for), megatron_ops_(std::move(megatron_ops)) {
    MGPLAN_ASSERT(exact() || megatron_ops_, "engine megatron's ops are known");
    if (!layout.cuda_graphs.empty()) {
        why_none_ = "CUDA graphs have no memory timeline yet: what stands here is the search's estimate";
        return;
    }
    if (const std::int64_t ops = 2 * layout.num_microbatches * layout.vpp; ops > kMostOps / layout.sizes.pp) {
        why_none_ = fmt::format("{} forwards and backwards on each of {} stages are too many for a memory timeline", with_thousands(ops),
                                layout.sizes.pp);
        return;
    }
    try {
        if (exact()) model::check_features(task_);
        schedule_.emplace(layout);
    } catch (const ConfigError& error) {
        why_none_ = fmt::format("no memory timeline, what stands here is the search's estimate: {}", error.problems().front());
    }
}

std::optional<StageTimeline> StageTimelines::of(int pp_rank, bool keep_ops) {
    if (!why_none_.empty()) return std::nullopt;
    StageTimeline stage;
    try {
        stage.schedule = schedule_->rank(pp_rank);
        if (exact())
            stage.memory = play(probe_rank(task_, pp_rank, stands_for_), stage.schedule, model::send_depth(*schedule_, pp_rank), keep_ops);
        else
            stage.memory = play(megatron_ops_(pp_rank), stage.schedule, {}, keep_ops);
    } catch (const ConfigError& error) {
        why_none_ = fmt::format("no memory timeline, what stands here is the search's estimate: {}", error.problems().front());
        return std::nullopt;
    }
    return stage;
}

}  // namespace mgplan::simulator
