#include "reports/plan_report.hpp"

#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "plan/layout/layout_switches.hpp"
#include "reports/figures.hpp"
#include "reports/layout_cells.hpp"

namespace mgplan::reports {
namespace {

NamedCells csv_cells(const PlannedLayout& plan, const std::string& assumed_architecture) {
    const simulator::TimePrediction& time = plan.prediction.time;
    const simulator::MemoryPrediction& memory = plan.prediction.memory;
    const auto& routing = memory.worst.routing;
    NamedCells cells{{"rank", std::to_string(plan.rank)}};
    const auto add = [&](std::initializer_list<std::string_view> names) {
        for (const auto name : names) cells.emplace_back(name, csv_text(figure(name), time));
    };
    // A column of its own where there is something to say: programs find columns by name.
    if (!assumed_architecture.empty()) cells.emplace_back("assumed_architecture", assumed_architecture);
    for (auto& cell : layout_csv(plan.layout)) cells.push_back(std::move(cell));
    add({"iteration_seconds", "tokens_per_second_per_gpu", "mfu"});
    cells.emplace_back("peak_bytes", std::to_string(memory.worst.peak_bytes()));
    add({"bubble_fraction"});
    cells.emplace_back("p99_bytes", routing ? std::to_string(routing->p99) : std::string());
    cells.emplace_back("limit_bytes", std::to_string(memory.limit_bytes));
    cells.emplace_back("fits", memory.fits() ? "true" : "false");
    cells.emplace_back("order", plan.layout.sizes.order.text());
    add({"compute_seconds", "recompute_seconds", "host_seconds", "bubble_seconds"});
    for (const Figure& row : exposed_figures()) cells.emplace_back(fmt::format("exposed_{}_seconds", row.name), csv_text(row, time));
    add({"optimizer_seconds", "fixed_seconds"});
    cells.emplace_back("recompute_modules", fmt::format("{}", fmt::join(names_in(plan.layout.recompute_modules), " ")));
    cells.emplace_back("cuda_graphs", fmt::format("{}", fmt::join(names_in(plan.layout.cuda_graphs), " ")));
    cells.emplace_back("switched_on",
                       plan.layout.switches ? fmt::format("{}", fmt::join(switch_words(*plan.layout.switches), " ")) : std::string());
    cells.emplace_back("why", fmt::format("{}", fmt::join(words_of(plan.why), " ")));
    cells.emplace_back("recommended", plan.recommended ? "true" : "false");
    add({"adverse_seconds", "imbalance_fraction", "idle_fraction"});
    return cells;
}

}  // namespace

std::vector<std::string_view> words_of(const std::vector<planner::PlanReason>& reasons) {
    std::vector<std::string_view> words;
    for (const planner::PlanReason reason : reasons) words.push_back(to_string(reason));
    return words;
}

std::optional<double> PlanReport::seconds_before(const PlannedLayout& plan) const {
    if (!balanced) return std::nullopt;
    const auto found = balanced->seconds_before.find(plan.layout.split.get());
    if (found == balanced->seconds_before.end()) return std::nullopt;
    return found->second;
}

std::vector<std::pair<std::string_view, std::int64_t>> PlanReport::too_large_rules() const {
    std::vector<std::pair<std::string_view, std::int64_t>> rules;
    const std::int64_t uneven = search.too_large_uneven.count;
    const std::int64_t by_host = search.too_large_by_term[static_cast<std::size_t>(planner::FillingTerm::host)].count;
    if (search.too_large > uneven + by_host) rules.emplace_back(planner::kFits, search.too_large - uneven - by_host);
    if (uneven > 0) rules.emplace_back(planner::kFitsAtP99, uneven);
    if (by_host > 0) rules.emplace_back(planner::kFitsInHost, by_host);
    if (search.too_large_replayed.count > 0) rules.emplace_back(planner::kFitsReplayed, search.too_large_replayed.count);
    return rules;
}

std::string plan_report_csv(const PlanReport& report) {
    const std::string& assumed = report.workload.model.assumed_architecture;
    std::vector<NamedCells> rows;
    for (const PlannedLayout& plan : report.plans) rows.push_back(csv_cells(plan, assumed));
    return table_of(csv_cells(PlannedLayout{}, assumed), rows).to_csv();
}

}  // namespace mgplan::reports
