#include "reports/scaling_report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/plan.hpp"
#include "plan/text/text.hpp"
#include "reports/figures.hpp"
#include "reports/layout_cells.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using planner::RunCost;

double speed_of(const ScaledPlan& plan) {
    return planner::tokens_per_second(plan.batch, plan.prediction.time.iteration_seconds);
}

std::optional<RunCost> cost_of(const ScalingReport& report, const ScaledPlan& plan) {
    return planner::run_cost(report.goal, plan.batch, plan.world, plan.prediction.time.iteration_seconds);
}

std::optional<double> efficiency_of(const ScalingReport& report, const ScaledPlan& plan) {
    const ScaledPlan* base = report.base();
    if (base == nullptr) return std::nullopt;
    return planner::scaling_efficiency(speed_of(plan), plan.world, speed_of(*base), base->world);
}

std::string share_text(double share) {
    return fmt::format("{:.1f}%", 100 * share);
}

void add_cost(Json& json, const ScalingReport& report, const BatchSpec& batch, std::int64_t world, double iteration_seconds) {
    const auto cost = planner::run_cost(report.goal, batch, world, iteration_seconds);
    for (const char* name : {"steps", "days", "gpu_hours", "cost"}) json[name] = nullptr;
    if (!cost) return;
    json["steps"] = static_cast<std::int64_t>(cost->steps);
    json["days"] = cost->days;
    json["gpu_hours"] = cost->gpu_hours;
    if (cost->cost) json["cost"] = *cost->cost;
}

Json numbers_of(const ScalingReport& report, const ScaledPlan& plan) {
    const auto& time = plan.prediction.time;
    Json json{{"world", plan.world},
              {"global_batch", plan.batch.global_batch},
              {"sequence", plan.batch.sequence},
              {"iteration_seconds", time.iteration_seconds},
              {"interval_seconds", Json::array({time.interval_low, time.interval_high})},
              {"tokens_per_second", speed_of(plan)},
              {"tokens_per_second_per_gpu", time.tokens_per_second_per_gpu},
              {"mfu", time.mfu},
              {"peak_bytes", plan.prediction.memory.deciding_bytes()},
              {"efficiency", nullptr}};
    if (const auto efficiency = efficiency_of(report, plan)) json["efficiency"] = *efficiency;
    add_cost(json, report, plan.batch, plan.world, time.iteration_seconds);
    json["layout"] = layout_to_json(plan.layout);
    return json;
}

Json changes_to_json(const ScalingReport& report, const ScaledWorld& world) {
    Json changes = Json::array();
    for (const ScalingChange& change : world.changes) {
        Json json{{"change", change.kind}, {"text", change.text}, {"possible", change.plan.has_value()}};
        if (!change.plan) json["why_not"] = change.why_not;
        json["before"] = numbers_of(report, *world.best);
        json["after"] = nullptr;
        if (change.plan) {
            json["after"] = numbers_of(report, *change.plan);
            json["speedup"] = speed_of(*change.plan) / speed_of(*world.best);
        }
        changes.push_back(std::move(json));
    }
    return changes;
}

/// The goal's columns, if requested.
void add_cost_columns(const ScalingReport& report, std::vector<Table::Column>& columns) {
    if (!report.goal.tokens) return;
    columns.insert(columns.end(), {{"days"}, {"GPU-hours"}});
    if (report.goal.gpu_hour_price) columns.push_back({"cost"});
}

void add_cost_cells(const ScalingReport& report, const std::optional<RunCost>& cost, std::vector<std::string>& row) {
    if (!report.goal.tokens) return;
    row.push_back(cost ? amount(cost->days) : "");
    row.push_back(cost ? amount(cost->gpu_hours) : "");
    if (report.goal.gpu_hour_price) row.push_back(cost && cost->cost ? amount(*cost->cost) : "");
}

std::string worlds_text(const ScalingReport& report) {
    std::vector<Table::Column> columns{
        {"GPUs"}, {"batch"},  {std::string(figure("iteration_seconds").heading)}, {"tok/s/GPU"}, {std::string(figure("mfu").heading)},
        {"GiB"},  {"scaling"}};
    add_cost_columns(report, columns);
    columns.push_back({"layout", Align::left});
    Table table(columns);
    for (const ScaledWorld& world : report.worlds) {
        if (!world.best) {
            std::vector<std::string> row(columns.size());
            row.front() = with_thousands(world.world);
            row.back() = "not possible: " + world.why_not;
            table.add_row(std::move(row));
            continue;
        }
        const ScaledPlan& plan = *world.best;
        const auto& time = plan.prediction.time;
        std::vector<std::string> row{with_thousands(world.world),
                                     with_thousands(plan.batch.global_batch),
                                     cell_text("iteration_seconds", time),
                                     cell_text("tokens_per_second_per_gpu", time),
                                     cell_text("mfu", time),
                                     gib(plan.prediction.memory.deciding_bytes()),
                                     share_text(*efficiency_of(report, plan))};
        add_cost_cells(report, cost_of(report, plan), row);
        row.push_back(short_layout(plan.layout));
        table.add_row(std::move(row));
    }
    return table.to_text();
}

std::string changes_text(const ScalingReport& report) {
    std::vector<Table::Column> columns{{"GPUs"}, {"change", Align::left}, {"batch"}, {"tok/s"}, {"differs"}, {"GiB"}};
    if (report.goal.tokens) columns.push_back({"days"});
    if (report.goal.gpu_hour_price) columns.push_back({"cost"});
    columns.push_back({"layout", Align::left});
    Table table(columns);
    const auto add = [&](const ScaledWorld& world, std::string what, const ScaledPlan& plan, bool changed) {
        std::vector<std::string> row{changed ? "" : with_thousands(world.world),
                                     std::move(what),
                                     with_thousands(plan.batch.global_batch),
                                     amount(speed_of(plan)),
                                     changed ? fmt::format("{:+.1f}%", 100 * (speed_of(plan) / speed_of(*world.best) - 1)) : "",
                                     gib(plan.prediction.memory.deciding_bytes())};
        const auto cost = cost_of(report, plan);
        if (report.goal.tokens) row.push_back(amount(cost->days));
        if (report.goal.gpu_hour_price) row.push_back(amount(*cost->cost));
        row.push_back(short_layout(plan.layout));
        table.add_row(std::move(row));
    };
    for (const ScaledWorld& world : report.worlds) {
        if (!world.best) continue;
        add(world, "as it is", *world.best, false);
        for (const ScalingChange& change : world.changes) {
            if (change.plan) {
                add(world, change.text, *change.plan, true);
                continue;
            }
            std::vector<std::string> row(columns.size());
            row[1] = change.text;
            row.back() = "not possible: " + change.why_not;
            table.add_row(std::move(row));
        }
    }
    return table.rows() == 0 ? "" : "\nWhat would change, each searched again (tok/s of all GPUs):\n" + table.to_text();
}

/// At most eight of a set, including the first and the last; of a longer set evenly distributed over its bytes.
std::vector<std::size_t> shown_of(const std::vector<planner::RankedLayout>& set) {
    constexpr std::size_t kShown = 8;
    std::vector<std::size_t> shown;
    if (set.empty()) return shown;
    const double most = static_cast<double>(set.front().peak_bytes), least = static_cast<double>(set.back().peak_bytes);
    for (std::size_t i = 0; i < set.size(); ++i) {
        const double next = most - (most - least) * static_cast<double>(shown.size()) / static_cast<double>(kShown - 1);
        if (set.size() <= kShown || i + 1 == set.size() || static_cast<double>(set[i].peak_bytes) <= next) shown.push_back(i);
    }
    return shown;
}

std::string pareto_text(const ScalingReport& report) {
    std::vector<Table::Column> columns{{"GPUs"}, {"GiB"}, {"s/step"}, {"slower"}};
    if (report.goal.tokens) columns.push_back({"days"});
    columns.push_back({"layout", Align::left});
    Table table(columns);
    std::size_t left_out = 0;
    for (const ScaledWorld& world : report.worlds) {
        if (!world.best) continue;
        const auto shown = shown_of(world.pareto);
        left_out += world.pareto.size() - shown.size();
        for (const std::size_t i : shown) {
            const planner::RankedLayout& point = world.pareto[i];
            std::vector<std::string> row{i == 0 ? with_thousands(world.world) : "", gib(point.peak_bytes),
                                         figure("iteration_seconds").cell(point.iteration_seconds),
                                         share_text(point.iteration_seconds / world.pareto.front().iteration_seconds - 1)};
            if (const auto cost = planner::run_cost(report.goal, world.best->batch, world.world, point.iteration_seconds))
                row.push_back(amount(cost->days));
            row.push_back(short_layout(point.layout));
            table.add_row(std::move(row));
        }
    }
    if (table.rows() == 0) return {};
    return "\nThe fastest layouts in less memory (Pareto set of time and memory):\n" + table.to_text() +
           (left_out > 0 ? fmt::format("{} more in JSON and CSV.\n", left_out) : "");
}

}  // namespace

const ScaledPlan* ScalingReport::base() const {
    const ScaledPlan* smallest = nullptr;
    for (const ScaledWorld& world : worlds) {
        if (world.best && (smallest == nullptr || world.best->world < smallest->world)) smallest = &*world.best;
    }
    return smallest;
}

Json scaling_to_json(const ScalingReport& report) {
    Json list = Json::array();
    for (const ScaledWorld& world : report.worlds) {
        Json json{{"world", world.world}, {"possible", world.best.has_value()}};
        if (!world.best) {
            json["why_not"] = world.why_not;
            list.push_back(std::move(json));
            continue;
        }
        json.update(numbers_of(report, *world.best));
        json["pareto"] = Json::array();
        for (const auto& point : world.pareto) {
            Json entry{{"iteration_seconds", point.iteration_seconds}, {"peak_bytes", point.peak_bytes}};
            add_cost(entry, report, world.best->batch, world.world, point.iteration_seconds);
            entry["layout"] = layout_to_json(point.layout);
            json["pareto"].push_back(std::move(entry));
        }
        json["changes"] = changes_to_json(report, world);
        list.push_back(std::move(json));
    }
    return list;
}

std::string scaling_text(const ScalingReport& report) {
    std::string text = fmt::format("{} on {}, {}", report.model, report.cluster, report.precision);
    if (report.goal.tokens) text += fmt::format(", {} tokens", amount(*report.goal.tokens));
    if (report.goal.gpu_hour_price) text += fmt::format(" at {} for a GPU-hour", amount(*report.goal.gpu_hour_price));
    text += "\n" + assumed_text(report.assumed) + "\n" + worlds_text(report);
    if (const ScaledPlan* base = report.base())
        text += fmt::format("scaling: tokens per second and GPU against {}.\n", counted(base->world, "GPU"));
    if (report.goal.tokens) text += "days: all steps in a row, without restarts, evaluations and checkpoints.\n";
    return text + changes_text(report) + pareto_text(report);
}

namespace {

/// A row of CSV with all its columns.
NamedCells csv_cells(const ScalingReport& report, std::int64_t world, const std::string& kind, std::int64_t gpus, const BatchSpec& batch,
                     const planner::RankedLayout& point) {
    const auto number = [](double value) { return fmt::format("{:.9g}", value); };
    const double speed = planner::tokens_per_second(batch, point.iteration_seconds);
    const ScaledPlan* base = report.base();
    const auto cost = planner::run_cost(report.goal, batch, gpus, point.iteration_seconds);
    NamedCells cells{{"world", std::to_string(world)},
                     {"kind", kind},
                     {"possible", "true"},
                     {"why_not", ""},
                     {"gpus", std::to_string(gpus)},
                     {"global_batch", std::to_string(batch.global_batch)},
                     {"sequence", std::to_string(batch.sequence)},
                     {"iteration_seconds", number(point.iteration_seconds)},
                     {"tokens_per_second", number(speed)},
                     {"peak_bytes", std::to_string(point.peak_bytes)},
                     {"efficiency", base ? number(planner::scaling_efficiency(speed, gpus, speed_of(*base), base->world)) : ""},
                     {"steps", cost ? fmt::format("{:.0f}", cost->steps) : ""},
                     {"days", cost ? number(cost->days) : ""},
                     {"gpu_hours", cost ? number(cost->gpu_hours) : ""},
                     {"cost", cost && cost->cost ? number(*cost->cost) : ""}};
    for (auto& cell : layout_csv(point.layout)) cells.push_back(std::move(cell));
    cells.emplace_back("order", point.layout.sizes.order.text());
    return cells;
}

}  // namespace

std::string scaling_csv(const ScalingReport& report) {
    std::vector<NamedCells> rows;
    const auto add = [&](std::int64_t world, const std::string& kind, std::int64_t gpus, const BatchSpec& batch,
                         const planner::RankedLayout& point) { rows.push_back(csv_cells(report, world, kind, gpus, batch, point)); };
    const auto add_impossible = [&](std::int64_t world, const std::string& kind, const std::string& why_not) {
        rows.push_back({{"world", std::to_string(world)}, {"kind", kind}, {"possible", "false"}, {"why_not", why_not}});
    };
    const auto as_point = [](const ScaledPlan& plan) {
        return planner::RankedLayout{plan.layout, plan.prediction.time.iteration_seconds, plan.prediction.memory.deciding_bytes()};
    };
    for (const ScaledWorld& world : report.worlds) {
        if (!world.best) {
            add_impossible(world.world, "best", world.why_not);
            continue;
        }
        add(world.world, "best", world.world, world.best->batch, as_point(*world.best));
        for (const ScalingChange& change : world.changes) {
            if (change.plan)
                add(world.world, change.kind, change.plan->world, change.plan->batch, as_point(*change.plan));
            else
                add_impossible(world.world, change.kind, change.why_not);
        }
        for (const auto& point : world.pareto) add(world.world, "pareto", world.world, world.best->batch, point);
    }
    return table_of(csv_cells(report, 0, "", 1, {}, {{}, 1, 0}), rows).to_csv();
}

}  // namespace mgplan::reports
