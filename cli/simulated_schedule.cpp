#include "cli/simulated_schedule.hpp"

#include <vector>

#include <fmt/core.h>

#include "plan/layout/layout_schedule.hpp"
#include "plan/text/errors.hpp"
#include "reports/timeline_trace.hpp"
#include "simulator/memory/stage_timeline.hpp"
#include "simulator/step_trace.hpp"

namespace mgplan::cli {
SimulatedSchedule simulated_schedule(const std::string& kind, const Layout& layout) {
    const auto split = parse_split_schedule(kind);
    const std::string_view own = schedule_name(layout);
    if (layout.schedule) {
        check_replayable("--schedule", layout);
        if (kind != "auto" && kind != own)
            throw ConfigError(
                fmt::format("--kind {} replays another schedule than the layout's own, {}, whose chunks and engine it would not have; drop "
                            "--kind, or make "
                            "a layout without --schedule",
                            kind, own));
        return {std::string(own), std::nullopt};
    }
    if (!split) {
        if (kind != "auto" && kind != own) {
            throw ConfigError(fmt::format("--kind {} does not run on pp = {} and vpp = {}; use --kind {}, or {}", kind, layout.sizes.pp,
                                          layout.vpp, own,
                                          kind == "none"   ? "--pp 1"
                                          : kind == "1f1b" ? "--pp of 2 or more with --vpp 1"
                                                           : "--pp and --vpp of 2 or more"));
        }
        return {std::string(own), std::nullopt};
    }
    const int chunks = chunks_of(*split);
    if (layout.vpp != chunks) {
        throw ConfigError(fmt::format("--kind {} has {} a rank, but vpp = {}; use --vpp {}", kind,
                                      chunks == 1 ? "one model chunk" : "two model chunks", layout.vpp, chunks));
    }
    check_replayable("--kind", layout);
    SplitScheduleRequest request;
    request.kind = *split;
    request.pp = static_cast<int>(layout.sizes.pp);
    request.microbatches = layout.num_microbatches;
    return {kind, split_order(request)};
}

void check_replayable(const std::string& option, const Layout& layout) {
    const std::int64_t passes = simulator::CostModel::passes(layout);
    if (passes <= simulator::kMostReplayedPasses) return;
    throw ConfigError(
        fmt::format("{} replays {} forwards and backwards one by one (pp {}, vpp {}, {} microbatches), and more than {} are "
                    "too many; use a smaller --global-batch or a larger --micro-batch",
                    option, passes, layout.sizes.pp, layout.vpp, layout.num_microbatches, simulator::kMostReplayedPasses));
}

simulator::LayoutTimeline timeline_of(simulator::CostModel& model, const Layout& layout, const SimulatedSchedule& schedule, bool details,
                                      const std::vector<double>& slowdown) {
    return schedule.order ? model.timeline(layout, *schedule.order, details, slowdown) : model.timeline(layout, details, slowdown);
}

void write_trace(std::ostream& out, simulator::CostModel& model, const simulator::LayoutTimeline& timeline, const Workload& workload,
                 const Layout& layout, const SimulatedSchedule& schedule, const std::string& title) {
    std::vector<std::optional<simulator::StageTimeline>> memory;
    if (!schedule.order) {
        simulator::StageTimelines timelines(workload, layout, simulator::kernels_of(workload.cluster),
                                            [&](int stage) { return model.megatron_ops(layout, stage); });
        for (int stage = 0; timelines.why_none().empty() && stage < static_cast<int>(layout.sizes.pp); ++stage)
            memory.push_back(timelines.of(stage, true));
    }
    reports::write_timeline_trace(out, simulator::timeline_trace(timeline, memory, reports::kMostTraceEvents), title);
}

}  // namespace mgplan::cli
