#include "reports/side_by_side_report.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/parameters/adapters_of_model.hpp"
#include "plan/text/text.hpp"
#include "reports/blind_accuracy.hpp"
#include "reports/figures.hpp"
#include "reports/layout_cells.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/plan_report.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using planner::PlannedLayout;

/// Number of columns of options in one table.
constexpr std::size_t kColumnsOfTable = 4;

std::string batch_text(const Workload& work) {
    return fmt::format("{} x {} tokens", with_thousands(work.batch.global_batch), with_thousands(work.batch.sequence));
}

/// "4T", "1.5T", "300B": a number of tokens as --tokens takes it.
std::string large_count(double tokens) {
    constexpr double kBillion = 1e9, kTrillion = 1e12;
    return tokens < kTrillion ? fmt::format("{:.6g}B", tokens / kBillion) : fmt::format("{:.6g}T", tokens / kTrillion);
}

std::string precision_of(const SideOption& option) {
    return std::string(precision_text(option.workload.training));
}

/// True if all options have the same text.
template <class Text>
bool in_all(const SideBySide& compared, Text text) {
    return std::ranges::all_of(compared.options, [&](const SideOption& option) { return text(option) == text(compared.options.front()); });
}

std::string batch_of(const SideOption& option) {
    return batch_text(option.workload);
}

/// "512 dgx-h100", with the precision and the batch where options differ in them.
std::string name_of(const SideBySide& compared, const SideOption& option) {
    std::string name = fmt::format("{} {}", with_thousands(option.workload.world), option.workload.cluster.name);
    if (!in_all(compared, precision_of)) name += " " + precision_of(option);
    if (!in_all(compared, batch_of)) name += " " + batch_of(option);
    return name;
}

/// A row of the table: a figure of each option.
struct Row {
    std::string label;
    std::function<std::string(const SideOption& option)> cell;
    bool of_plan = true;        ///< "-" without a plan
    bool if_different = false;  ///< omitted where all options have the same cell
};

std::string memory_text(const simulator::MemoryPrediction& memory) {
    return fmt::format("{} of {}", gib(memory.deciding_bytes()), gib(memory.limit_bytes));
}

/// "22 % (bias -22 %), 10 blind dense runs on H100"
std::string accuracy_cell(const SideOption& option) {
    const auto found = option.plan->layout.engine == Engine::megatron ? blind_accuracy(option.workload) : std::optional<BlindAccuracy>();
    if (!found) return "unknown";
    return fmt::format("{:.0f} % (bias {:+.0f} %), {} blind {} runs{}", 100 * found->mean_error, 100 * found->bias, found->runs,
                       found->family, found->gpu.empty() ? "" : " on " + found->gpu);
}

std::vector<Row> rows_of(const SideBySide& compared) {
    using Option = const SideOption&;
    const auto figure_row = [](std::string label, std::string_view name) {
        return Row{std::move(label), [name](Option o) { return cell_text(name, o.plan->prediction.time); }};
    };
    std::vector<Row> rows{
        // Blanks after the commas, where a long cell is broken.
        {"cluster", [](Option o) { return fmt::format("{}", fmt::join(split(o.workload.cluster.name, ','), ", ")); }, false},
        {"precision", precision_of, false, true},
        {"batch", batch_of, false, true},
        {"layout", [](Option o) { return o.plan ? short_layout(o.plan->layout) : o.why_not; }, false},
        {"would fit with", [](Option o) { return o.remedy; }, false},
        figure_row("s/step", "iteration_seconds"),
        figure_row("s/step, worst", "adverse_seconds"),
        figure_row("tokens/s per GPU", "tokens_per_second_per_gpu"),
        figure_row("TFLOP/s per GPU", "model_tflops_per_gpu"),
        {"peak GiB", [](Option o) { return memory_text(o.plan->prediction.memory); }},
        {"free GiB",
         [](Option o) {
             const simulator::MemoryPrediction& memory = o.plan->prediction.memory;
             return gib(memory.limit_bytes - memory.deciding_bytes());
         }},
    };
    const auto goal_row = [&](std::string label, auto value) {
        rows.push_back({std::move(label), [value](Option o) {
                            const auto cost = o.run_cost();
                            const std::optional<double> number = cost ? value(*cost) : std::nullopt;
                            return number ? amount(*number) : "-";
                        }});
    };
    const auto any = [&](auto has) { return std::ranges::any_of(compared.options, has); };
    if (any([](Option o) { return o.goal.tokens.has_value(); })) {
        goal_row("days", [](const planner::RunCost& run) { return std::optional(run.days); });
        goal_row("GPU-hours", [](const planner::RunCost& run) { return std::optional(run.gpu_hours); });
    }
    if (any([](Option o) { return o.goal.gpu_hour_price.has_value(); })) {
        rows.push_back({"price, GPU-hour", [](Option o) { return o.goal.gpu_hour_price ? amount(*o.goal.gpu_hour_price) : "-"; }, false});
        goal_row("cost", [](const planner::RunCost& run) { return run.cost; });
    }
    rows.push_back({"accuracy", [](Option o) { return accuracy_cell(o); }});
    std::erase_if(rows, [&](const Row& row) {
        const auto is_empty = [&](Option o) { return !row.of_plan && row.cell(o).empty(); };
        return std::ranges::all_of(compared.options, is_empty) || (row.if_different && in_all(compared, row.cell));
    });
    return rows;
}

/// Tables of kColumnsOfTable options each.
std::string tables_text(const SideBySide& compared) {
    const std::vector<Row> rows = rows_of(compared);
    std::string text;
    for (std::size_t first = 0; first < compared.options.size(); first += kColumnsOfTable) {
        const std::size_t last = std::min(first + kColumnsOfTable, compared.options.size());
        std::vector<Table::Column> columns{{"", Align::left}};
        for (std::size_t i = first; i < last; ++i) columns.push_back({counted(compared.options[i].workload.world, "GPU"), Align::left});
        Table table(columns);
        for (const Row& row : rows) {
            std::vector<std::string> cells{row.label};
            for (std::size_t i = first; i < last; ++i) {
                const SideOption& option = compared.options[i];
                cells.push_back(row.of_plan && !option.plan ? "-" : row.cell(option));
            }
            table.add_row(std::move(cells));
        }
        text += "\n" + table.to_text();
    }
    return text;
}

/// The option with the smallest value; nothing where one option alone has a value, or several have the smallest.
template <class Value>
const SideOption* smallest(const SideBySide& compared, Value value) {
    const SideOption* found = nullptr;
    std::size_t count = 0;
    for (const SideOption& option : compared.options) {
        if (!option.plan || !value(option)) continue;
        ++count;
        if (found == nullptr || *value(option) < *value(*found)) found = &option;
    }
    const auto ties = [&](const SideOption& option) {
        return &option != found && option.plan && value(option) && *value(option) == *value(*found);
    };
    return count > 1 && std::ranges::none_of(compared.options, ties) ? found : nullptr;
}

/// Names the option that is best by time, by GPU-hours and by cost.
std::string best_text(const SideBySide& compared) {
    std::vector<std::string> words;
    const auto add = [&](std::string_view what, const SideOption* option) {
        if (option == nullptr) return;
        const std::string name = name_of(compared, *option);
        const auto has_name = [&](const SideOption& other) { return name_of(compared, other) == name; };
        const bool apart = std::ranges::count_if(compared.options, has_name) == 1;
        words.push_back(
            fmt::format("{}: {}{}", what, name, apart ? "" : fmt::format(" (column {})", option - compared.options.data() + 1)));
    };
    const auto by_run = [](auto value) {
        return [value](const SideOption& option) {
            const auto cost = option.run_cost();
            return cost ? std::optional<double>(value(*cost)) : std::nullopt;
        };
    };
    add("most tokens/s", smallest(compared, [](const SideOption& option) {
            return std::optional(-planner::tokens_per_second(option.workload.batch, option.plan->prediction.time.iteration_seconds));
        }));
    add("fewest GPU-hours", smallest(compared, by_run([](const planner::RunCost& run) { return run.gpu_hours; })));
    const auto cost = [](const SideOption& option) { return option.run_cost() ? option.run_cost()->cost : std::nullopt; };
    add("lowest cost", smallest(compared, cost));
    return in_lines(words.empty() ? "" : fmt::format("{}\n", fmt::join(words, "; ")), 0);
}

/// The assumptions of all options, then those of some, with the option's name.
std::string assumptions_text(const SideBySide& compared) {
    const auto has = [](const SideOption& option, const std::string& text) {
        return std::ranges::find(option.assumed, text) != option.assumed.end();
    };
    const auto all_have = [&](const std::string& text) {
        return std::ranges::all_of(compared.options, [&](const SideOption& option) { return has(option, text); });
    };
    std::vector<std::string> shared, own;
    for (const SideOption& option : compared.options) {
        for (const std::string& text : option.assumed) {
            std::vector<std::string>& list = all_have(text) ? shared : own;
            std::string words = all_have(text) ? text : fmt::format("{} on {}", text, name_of(compared, option));
            if (std::ranges::find(list, words) == list.end()) list.push_back(std::move(words));
        }
    }
    shared.insert(shared.end(), own.begin(), own.end());
    return assumed_text(shared);
}

/// "batch:   …" where the batches are not given, or differ.
std::string batches_text(const SideBySide& compared) {
    const auto differs = [&](const SideOption& option) {
        const BatchSpec& first = compared.options.front().workload.batch;
        return option.workload.batch.global_batch * option.workload.batch.sequence != first.global_batch * first.sequence;
    };
    std::string text;
    if (std::ranges::any_of(compared.options, differs))
        text = "differs in tokens: compare tokens/s, not s/step";
    else if (compared.batch_source != BatchSource::given)
        text = fmt::format("{}, the same tokens for all; the comparison depends on it: --global-batch N",
                           compared.batch_source == BatchSource::published ? "the model's own" : "assumed for the largest world");
    constexpr std::string_view kHead = "batch:   ";
    return text.empty() ? "" : in_lines(fmt::format("{}{}\n", kHead, text), kHead.size());
}

/// A number in JSON, or null.
Json number(const std::optional<double>& value) {
    return value ? Json(*value) : Json();
}

}  // namespace

std::optional<planner::RunCost> SideOption::run_cost() const {
    if (!plan) return std::nullopt;
    return planner::run_cost(goal, workload.batch, workload.world, plan->prediction.time.iteration_seconds);
}

std::string side_by_side_text(const SideBySide& compared) {
    const SideOption& first = compared.options.front();
    std::string text = first.workload.model.name;
    if (in_all(compared, batch_of)) text += fmt::format(", batch of {}", batch_of(first));
    if (in_all(compared, precision_of)) text += fmt::format(", {}", precision_of(first));
    if (first.goal.tokens) text += fmt::format(", {} tokens", large_count(*first.goal.tokens));
    if (first.workload.model.adapters) text += ", " + adapters_text(first.workload.model);
    text =
        in_lines(text + "\n", 0) + assumptions_text(compared) + batches_text(compared) + tables_text(compared) + "\n" + best_text(compared);
    text += "worst: s/step in adverse conditions. peak, free: of the fullest GPU.\n";
    if (first.goal.tokens) text += "days: all steps in a row, without restarts, evaluations and checkpoints.\n";
    text += "accuracy: mean error of s/step on published runs that nobody had tuned for.\n";
    return text + in_lines(fmt::format("next: plan {} and the other options shows all plans of the first column.\n", first.options), 6);
}

std::string side_by_side_json(const SideBySide& compared) {
    Json list = Json::array();
    for (const SideOption& option : compared.options) {
        const Workload& work = option.workload;
        const auto of_time = [&](std::string_view name) {
            return option.plan ? Json(figure(name).value(option.plan->prediction.time)) : Json();
        };
        const auto cost = option.run_cost();
        list.push_back(Json{{"world", work.world},
                            {"cluster", work.cluster.name},
                            {"precision", precision_text(work.training)},
                            {"global_batch", work.batch.global_batch},
                            {"sequence", work.batch.sequence},
                            {"plan", option.plan ? plan_to_json(work, *option.plan) : Json()},
                            {"why_not", option.plan ? Json() : Json(option.why_not)},
                            {"would_fit_with", option.remedy.empty() ? Json() : Json(option.remedy)}});
        for (const char* name : {"iteration_seconds", "adverse_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu"})
            list.back()[name] = of_time(name);
        list.back().update(Json{{"days", number(cost ? std::optional(cost->days) : std::nullopt)},
                                {"cost", number(cost ? cost->cost : std::nullopt)},
                                {"gpu_hours", number(cost ? std::optional(cost->gpu_hours) : std::nullopt)},
                                {"gpu_hour_price", number(option.goal.gpu_hour_price)},
                                {"accuracy", accuracy_to_json(work, option.plan ? option.plan->layout.engine : Engine::megatron)},
                                {"assumed", option.assumed}});
    }
    return Json{{"model", compared.options.front().workload.model.name},
                {"tokens", number(compared.options.front().goal.tokens)},
                {"batch_source", to_string(compared.batch_source)},
                {"options", std::move(list)}}
               .dump(1) +
           "\n";
}

namespace {

NamedCells csv_cells(const SideOption& option) {
    const Workload& work = option.workload;
    const auto real = [](const std::optional<double>& value) { return value ? fmt::format("{:.9g}", *value) : std::string(); };
    NamedCells cells{{"world", std::to_string(work.world)},
                     {"cluster", work.cluster.name},
                     {"precision", std::string(precision_text(work.training))},
                     {"global_batch", std::to_string(work.batch.global_batch)},
                     {"sequence", std::to_string(work.batch.sequence)},
                     {"why_not", option.why_not},
                     {"would_fit_with", option.remedy},
                     {"gpu_hour_price", real(option.goal.gpu_hour_price)}};
    const PlannedLayout none;
    const PlannedLayout& plan = option.plan ? *option.plan : none;
    const auto add = [&](std::string name, std::string cell) { cells.emplace_back(std::move(name), option.plan ? std::move(cell) : ""); };
    for (const char* name : {"iteration_seconds", "adverse_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu"})
        add(name, csv_text(figure(name), plan.prediction.time));
    add("peak_bytes", std::to_string(plan.prediction.memory.deciding_bytes()));
    add("limit_bytes", std::to_string(plan.prediction.memory.limit_bytes));
    const auto cost = option.run_cost();
    cells.emplace_back("days", real(cost ? std::optional(cost->days) : std::nullopt));
    cells.emplace_back("gpu_hours", real(cost ? std::optional(cost->gpu_hours) : std::nullopt));
    cells.emplace_back("cost", real(cost ? cost->cost : std::nullopt));
    for (auto& [name, cell] : layout_csv(plan.layout)) add(name, cell);
    return cells;
}

}  // namespace

std::string side_by_side_csv(const SideBySide& compared) {
    std::vector<NamedCells> rows;
    for (const SideOption& option : compared.options) rows.push_back(csv_cells(option));
    return table_of(rows.front(), rows).to_csv();
}

}  // namespace mgplan::reports
