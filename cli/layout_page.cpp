#include "cli/layout_page.hpp"

#include <fmt/format.h>

#include "cli/simulated_schedule.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/switched_layout.hpp"
#include "reports/html_page.hpp"
#include "reports/iteration_page.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/memory_page.hpp"
#include "simulator/step_trace.hpp"

namespace mgplan::cli {

std::string layout_page(const StageMemories& memories, const Workload& work, const Layout& layout, const std::vector<std::string>& details,
                        const simulator::Prediction& prediction, const std::optional<simulator::LayoutTimeline>& timeline,
                        const std::string& schedule) {
    std::string title = reports::workload_text(work);
    title.pop_back();  // its newline
    reports::MemoryPage memory;
    memory.stages = memories.stages;
    memory.limit_bytes = work.memory_limit;
    memory.why_no_curve = memories.why_no_timeline;
    std::string pipeline =
        fmt::format("<p>The iteration has more than {} passes, too many to replay one by one.</p>\n", simulator::kMostReplayedPasses);
    if (timeline) {
        simulator::PipelinePicture picture = simulator::pipeline_picture(*timeline);
        const Layout whole = with_all_switches(layout, work.model, work.training);
        if (whole.switches && whole.switches->overlap_moe) simulator::join_pairs(picture, layout);
        pipeline = reports::pipeline_section(picture, schedule);
    }
    return reports::html_page(title, details,
                              reports::figures_section(prediction) + reports::time_section(prediction) + pipeline +
                                  reports::memory_section(memory, curve_of(memories, work.memory_limit)) +
                                  reports::groups_section(layout, work.cluster.gpus_per_node));
}

std::string layout_page(simulator::CostModel& model, const Workload& work, const Layout& layout, const simulator::Prediction& prediction) {
    std::optional<simulator::LayoutTimeline> timeline;
    if (simulator::CostModel::passes(layout) <= simulator::kMostReplayedPasses) timeline = model.timeline(layout, true);
    return layout_page(stage_memories(model, work, layout, model::DeviceKind::cuda), work, layout, layout_lines(work, layout), prediction,
                       timeline, simulated_schedule("auto", layout).kind);
}

std::vector<std::string> layout_lines(const Workload& work, const Layout& layout) {
    std::vector<std::string> lines{summary(layout, work.model, work.training)};
    if (const auto others = reports::other_choices(work, layout); !others.empty())
        lines.push_back(fmt::format("{}", fmt::join(others, ", ")));
    if (const auto& string = layout.split->request().pipeline_layout) lines.push_back(fmt::format("layers per stage: {}", *string));
    return lines;
}

}  // namespace mgplan::cli
