#include "reports/plan_report.hpp"

#include <fmt/format.h>

#include "plan/layout/layout_switches.hpp"
#include "reports/layout_cells.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {

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
    std::vector<Table::Column> columns{{"rank"}};
    // A separate column if it has a value: programs find columns by name.
    const std::string& assumed = report.workload.model.assumed_architecture;
    if (!assumed.empty()) columns.push_back({"assumed_architecture"});
    for (const auto& name : layout_csv_columns()) columns.push_back({name});
    for (const char* name : {"iteration_seconds",
                             "tokens_per_second_per_gpu",
                             "mfu",
                             "peak_bytes",
                             "bubble_fraction",
                             "p99_bytes",
                             "limit_bytes",
                             "fits",
                             "order",
                             "compute_seconds",
                             "recompute_seconds",
                             "host_seconds",
                             "bubble_seconds",
                             "exposed_tp_seconds",
                             "exposed_cp_seconds",
                             "exposed_ep_seconds",
                             "exposed_dp_seconds",
                             "exposed_pp_seconds",
                             "optimizer_seconds",
                             "fixed_seconds",
                             "recompute_modules",
                             "cuda_graphs",
                             "switched_on"})
        columns.push_back({name});
    Table table(columns);
    for (const PlannedLayout& plan : report.plans) {
        const auto& p = plan.prediction;
        std::vector<std::string> row{std::to_string(plan.rank)};
        if (!assumed.empty()) row.push_back(assumed);
        for (auto& cell : layout_csv_row(plan.layout)) row.push_back(std::move(cell));
        for (std::string cell :
             {fmt::format("{:.9g}", p.time.iteration_seconds), fmt::format("{:.9g}", p.time.tokens_per_second_per_gpu),
              fmt::format("{:.6g}", p.time.mfu), std::to_string(p.memory.worst.peak_bytes()),
              fmt::format("{:.6g}", p.time.bubble_fraction()),
              p.memory.worst.routing ? std::to_string(p.memory.worst.routing->p99) : std::string(), std::to_string(p.memory.limit_bytes),
              std::string(p.memory.fits() ? "true" : "false"), plan.layout.sizes.order.text()})
            row.push_back(std::move(cell));
        const auto& t = p.time;
        for (const double seconds : {t.compute_seconds, t.recompute_seconds, t.host_seconds, t.bubble_seconds, t.exposed.tp, t.exposed.cp,
                                     t.exposed.ep, t.exposed.dp, t.exposed.pp, t.optimizer_seconds, t.fixed_seconds()})
            row.push_back(fmt::format("{:.9g}", seconds));
        row.push_back(fmt::format("{}", fmt::join(names_in(plan.layout.recompute_modules), " ")));
        row.push_back(fmt::format("{}", fmt::join(names_in(plan.layout.cuda_graphs), " ")));
        row.push_back(plan.layout.switches ? fmt::format("{}", fmt::join(switch_words(*plan.layout.switches), " ")) : std::string());
        table.add_row(std::move(row));
    }
    return table.to_csv();
}

}  // namespace mgplan::reports
