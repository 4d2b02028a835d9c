#include "cli/plan_details.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include "cli/layout_page.hpp"
#include "cli/output_file.hpp"
#include "cli/plan_file.hpp"
#include "plan/allowed_processors.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/text/text.hpp"
#include "planner/plan_families.hpp"
#include "planner/ranking.hpp"
#include "planner/run_parallel.hpp"
#include "planner/search_points.hpp"
#include "planner/sharded_jobs.hpp"
#include "reports/layout_fields.hpp"
#include "reports/search_page.hpp"

namespace mgplan::cli {
namespace {

/// Returns the plan with all switches in its layout, so that its words name them.
reports::ComparedPlan in_words(const Workload& workload, reports::ComparedPlan plan) {
    plan.layout = with_all_switches(plan.layout, workload.model, workload.training);
    return plan;
}

}  // namespace

void explain(reports::PlanReport& report, simulator::CostModel& model, std::size_t index) {
    const auto& best = report.search.best;
    const auto plan_at = [&](std::size_t i) {
        return in_words(report.workload, {i + 1, best[i].layout, model.predict_exactly(best[i].layout)});
    };
    const reports::ComparedPlan plan = plan_at(index);
    report.explained = reports::PlannedLayout{best[index].layout, plan.prediction, plan.rank, {}};
    if (index + 1 < best.size()) report.comparison = reports::PlanComparison{plan, plan_at(index + 1)};
}

namespace {

/// Returns true if a layout in words leaves out sizes that most jobs have. False for the name of a file.
bool leaves_sizes_out(const std::string& given, const ModelSpec& model) {
    std::error_code none;
    if (std::filesystem::exists(given, none)) return false;
    const auto names = [words = " " + given](std::string_view size) {
        return words.find(fmt::format(" {}", size)) != std::string::npos || words.find(fmt::format(",{}", size)) != std::string::npos;
    };
    return !names("tp") || !names("pp") || !names("mbs") || (model.moe && !names("ep"));
}

/// Bytes that the device, or else the host, lacks.
std::int64_t missing_bytes(const simulator::MemoryPrediction& memory) {
    return std::max(memory.deciding_bytes() - memory.limit_bytes, memory.host_missing());
}

}  // namespace

void compare(reports::PlanReport& report, simulator::CostModel& model, const Layout& layout, const std::string& given,
             const planner::ComparedRank& rank) {
    const Layout& first = report.search.best.front().layout;
    const std::string name = std::filesystem::path(given).filename().string();
    report.compared = reports::ComparedLayout{
        {reports::differing_fields(plan_of(report.workload, first), plan_of(report.workload, layout)),
         {in_words(report.workload, {1, first, model.predict_exactly(first)}),
          in_words(report.workload, {rank.rank, layout, model.predict_exactly(layout), name.empty() ? given : name})}},
        rank,
        leaves_sizes_out(given, report.workload.model)};
}

void add_too_large(reports::PlanReport& report, simulator::CostModel& whole) {
    Workload judged = report.workload;
    judged.memory_limit = report.search.limit_bytes;
    simulator::CostModel model(judged, whole);
    const planner::TooLarge& replayed = report.search.too_large_replayed;
    // As the ranking, simulate and check replay it: the allocator has the whole card, of which plans may use a part.
    const auto closely = [&](const Layout& layout) {
        simulator::MemoryPrediction memory = whole.replayed_memory(layout);
        memory.limit_bytes = judged.memory_limit;
        return memory;
    };
    // The search's estimate if that alone does not fit.
    const auto missing = [&](const Layout& layout) {
        simulator::MemoryPrediction memory = closely(layout);
        return memory.fits() ? model.memory(layout) : memory;
    };
    const auto add_nearest = [&](const Layout& layout, simulator::MemoryPrediction memory) {
        std::vector<planner::Remedy> remedies;  // none exist for a host that is too small
        const planner::ShardedJob job = planner::job_of(judged, layout);
        if (memory.host_fits()) remedies = planner::remedies(job.workload, job.own(layout), planner::simulator_cost_model());
        for (planner::Remedy& remedy : remedies) remedy.layout = job.merged(remedy.layout);
        report.nearest.push_back({layout, std::move(memory), std::move(remedies)});
    };
    if (report.plans.empty()) {
        if (replayed.count > 0) add_nearest(replayed.nearest->layout, closely(replayed.nearest->layout));
        // The search keeps one member of each family; the replayed one's family is shown already.
        for (const auto& miss : report.search.nearest) {
            const auto alike = [&](const auto& shown) { return planner::same_family(shown.layout, miss.layout); };
            if (std::none_of(report.nearest.begin(), report.nearest.end(), alike)) add_nearest(miss.layout, missing(miss.layout));
        }
        // The search ranked by estimates.
        std::stable_sort(report.nearest.begin(), report.nearest.end(),
                         [](const auto& a, const auto& b) { return missing_bytes(a.memory) < missing_bytes(b.memory); });
    }
    const auto add = [&](std::optional<planner::FillingTerm> term, const planner::TooLarge& found) {
        if (found.count > 0) report.too_large.push_back({term, found.count, found.nearest->layout, missing(found.nearest->layout), false});
    };
    for (std::size_t term = 0; term < planner::kFillingTerms; ++term)
        add(static_cast<planner::FillingTerm>(term), report.search.too_large_by_term[term]);
    add(std::nullopt, report.search.too_large_uneven);
    if (replayed.count > 0)
        report.too_large.push_back({std::nullopt, replayed.count, replayed.nearest->layout, closely(replayed.nearest->layout), true});
    std::stable_sort(report.too_large.begin(), report.too_large.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
}

NearestMiss nearest_miss(reports::PlanReport& report) {
    simulator::CostModel model(report.workload);
    add_too_large(report, model);
    NearestMiss miss{fmt::format("no layout fits in {}", human_bytes(report.search.limit_bytes)), ""};
    if (report.search.headroom_missed) miss.why_not = "no layout leaves the headroom";
    if (report.nearest.empty()) return miss;
    const reports::NearestMiss& nearest = report.nearest.front();
    miss.why_not +=
        fmt::format("; the nearest, {}, needs {}", reports::short_layout(nearest.layout), human_bytes(nearest.memory.deciding_bytes()));
    if (!nearest.remedies.empty()) miss.remedy = nearest.remedies.front().change;
    return miss;
}

std::string search_page_of(const reports::PlanReport& report, simulator::CostModel& model, int threads) {
    constexpr std::size_t kSimulations = 5;
    reports::SearchPage page;
    page.points = planner::search_points(model, report.search, threads);
    page.simulations.resize(std::min(page.points.size(), kSimulations));
    std::vector<std::unique_ptr<simulator::CostModel>> models(page.simulations.size());
    for (auto& one : models) one = std::make_unique<simulator::CostModel>(report.workload, model);
    planner::run_parallel(page.simulations.size(), static_cast<std::size_t>(threads > 0 ? threads : allowed_processors()),
                          [&](std::size_t i, std::size_t) {
                              const reports::PlannedLayout& plan = page.points[i].plan;
                              page.simulations[i] = layout_page(*models[i], report.workload, plan.layout, plan.prediction);
                          },
                          {});
    return reports::search_page(report, page);
}

void write_search_page(const std::string& path, const std::string& page) {
    if (!write_output_file(path, [&](std::ostream& out) { out << page; }))
        throw RunError(fmt::format("--html {}: the file cannot be written any more; is the disk full?", path));
}

}  // namespace mgplan::cli
