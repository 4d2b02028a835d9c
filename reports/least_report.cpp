#include "reports/least_report.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/parameters/adapters_of_model.hpp"
#include "plan/text/text.hpp"
#include "reports/figures.hpp"
#include "reports/layout_cells.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

/// Figures of each row, by name.
constexpr std::string_view kFigures[] = {"iteration_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu"};

/// All rows in the order of the table.
std::vector<const LeastGpus*> rows_of(const LeastReport& least) {
    std::vector<const LeastGpus*> rows{&least.given};
    for (const auto* list : {&least.without, &least.fixes}) {
        for (const LeastGpus& row : *list) rows.push_back(&row);
    }
    return rows;
}

std::string first_cell(const LeastGpus& row) {
    return row.change.empty() ? "as given" : row.change;
}

std::string rows_text(const LeastReport& least) {
    Table table({{"", Align::left}, {"GPUs"}, {"s/step"}, {"tok/s"}, {"TFLOP/s"}, {"GiB"}, {"layout", Align::left}});
    for (const LeastGpus* row : rows_of(least)) {
        std::vector<std::string> cells{first_cell(*row)};
        if (row->plan) {
            cells.push_back(with_thousands(row->workload.world));
            for (const std::string_view name : kFigures) cells.push_back(cell_text(name, row->plan->prediction.time));
            cells.push_back(gib(row->plan->prediction.memory.deciding_bytes()));
            cells.push_back(short_layout(row->plan->layout));
        } else {
            cells.push_back(fmt::format("> {}", with_thousands(row->up_to)));
            cells.insert(cells.end(), std::size(kFigures) + 1, "-");
        }
        table.add_row(std::move(cells));
    }
    return table.to_text();
}

std::string batch_text(const LeastReport& least) {
    if (least.batch_source == BatchSource::given) return "";
    constexpr std::string_view kHead = "batch:   ";
    return in_lines(fmt::format("{}{}, the same on every number of GPUs; figures depend on it: --global-batch N\n", kHead,
                                least.batch_source == BatchSource::published ? "the model's own" : "assumed for one node"),
                    kHead.size());
}

/// The answer in one sentence.
std::string answer_text(const LeastReport& least) {
    std::string text;
    if (least.given.plan) {
        const std::string gpus = counted(least.given.workload.world, "GPU");
        text = fmt::format("{} at least, with {} of {} free on each.", gpus, human_bytes(least.headroom_bytes),
                           human_bytes(least.workload.memory_limit));
    } else {
        text = fmt::format("No layout fits on up to {}; {}.", counted(least.given.up_to, "GPU"), least.why_not);
        if (!least.would_fit_with.empty()) text += fmt::format(" It would fit with {}.", least.would_fit_with);
    }
    return in_lines(text + "\n", 0);
}

std::string legend(const LeastReport& least) {
    std::string text =
        fmt::format("layout: the {}{}; tok/s, TFLOP/s: per GPU; GiB: of the fullest GPU.\n", least.by_memory ? "smallest" : "fastest",
                    least.workload.model.moe ? " among sizes near those that come first without overlaps and CUDA graphs" : "");
    if (!least.without.empty())
        text += fmt::format("as given: the search uses recompute{} where they help.\n", least.workload.model.adapters ? "" : " and FSDP");
    return in_lines(text, 0);
}

/// Fields of a row in JSON; null without a plan.
Json figures_json(const LeastGpus& row) {
    Json json{{"gpus", row.plan ? Json(row.workload.world) : Json()}, {"tried_up_to", row.up_to}};
    for (const std::string_view name : kFigures)
        json[std::string(name)] = row.plan ? Json(figure(name).value(row.plan->prediction.time)) : Json();
    json["plan"] =
        row.plan ? Json{{"layout", layout_fields(row.workload, row.plan->layout)}, {"predicted", prediction_to_json(row.plan->prediction)}}
                 : Json();
    return json;
}

/// `key`: of the change.
Json changes_json(const std::vector<LeastGpus>& rows, const char* key) {
    Json list = Json::array();
    for (const LeastGpus& row : rows) {
        list.push_back(Json{{key, row.change}});
        list.back().update(figures_json(row));
    }
    return list;
}

NamedCells csv_cells(const LeastGpus& row) {
    NamedCells cells{{"change", row.change}};
    const planner::PlannedLayout none;
    const planner::PlannedLayout& plan = row.plan ? *row.plan : none;
    const auto add = [&](std::string name, std::string cell) { cells.emplace_back(std::move(name), row.plan ? std::move(cell) : ""); };
    add("gpus", std::to_string(row.workload.world));
    for (const std::string_view name : kFigures) add(std::string(name), csv_text(figure(name), plan.prediction.time));
    add("peak_bytes", std::to_string(plan.prediction.memory.deciding_bytes()));
    for (auto& [name, cell] : layout_csv(plan.layout)) add(name, cell);
    return cells;
}

}  // namespace

std::string least_text(const LeastReport& least) {
    const Workload& work = least.workload;
    std::string text =
        in_lines(fmt::format("{} on {}, batch of {} x {} tokens, {}\n", work.model.name, work.cluster.name,
                             with_thousands(work.batch.global_batch), with_thousands(work.batch.sequence), precision_text(work.training)),
                 0);
    if (work.model.adapters) text += in_lines(adapters_text(work.model) + "\n", 0);
    text += assumed_text(least.assumed) + batch_text(least) + answer_text(least) + "\n" + rows_text(least) + "\n" + legend(least);
    if (!least.given.plan) return text;
    return text + in_lines(fmt::format("next: plan --world {} {} and the other options ranks all layouts there.\n",
                                       least.given.workload.world, least.options),
                           6);
}

std::string least_json(const LeastReport& least) {
    const Workload& work = least.workload;
    Json json{{"model", work.model.name},
              {"cluster", work.cluster.name},
              {"precision", precision_text(work.training)},
              {"adapters", work.model.adapters ? Json(adapters_text(work.model)) : Json()},
              {"global_batch", work.batch.global_batch},
              {"sequence", work.batch.sequence},
              {"batch_source", to_string(least.batch_source)},
              {"headroom_bytes", least.headroom_bytes},
              {"assumed", least.assumed}};
    json.update(figures_json(least.given));
    json["why_not"] = least.why_not.empty() ? Json() : Json(least.why_not);
    json["would_fit_with"] = least.would_fit_with.empty() ? Json() : Json(least.would_fit_with);
    json["fixes"] = changes_json(least.fixes, "fix");
    json["without"] = changes_json(least.without, "without");
    return json.dump(1) + "\n";
}

std::string least_csv(const LeastReport& least) {
    std::vector<NamedCells> rows;
    for (const LeastGpus* row : rows_of(least)) rows.push_back(csv_cells(*row));
    return table_of(rows.front(), rows).to_csv();
}

}  // namespace mgplan::reports
