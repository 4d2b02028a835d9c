#include "cli/simulate_answer.hpp"

#include <ostream>
#include <string>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/layout_page.hpp"
#include "cli/list_writer.hpp"
#include "plan/layout/layout_schedule.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/balanced_layout.hpp"
#include "reports/flag_account.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/model_summary.hpp"
#include "reports/plan_report.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"
#include "reports/time_terms.hpp"
#include "reports/training_report.hpp"

namespace mgplan::cli {
namespace {

/// One line: what it gained, or why there is nothing to gain.
std::string balanced_text(const planner::BalancedLayout& balanced) {
    if (!balanced.why_not.empty()) return fmt::format("\nbalanced stages: the split stays, {}\n", balanced.why_not);
    return fmt::format("\nbalanced stages: --pipeline-layout '{}', {} instead of {}, {:+.2f} %{}\n",
                       *balanced.layout.split->request().pipeline_layout, human_seconds(balanced.seconds),
                       human_seconds(balanced.seconds_before), -100 * (1 - balanced.seconds / balanced.seconds_before),
                       balanced.fitted_before ? "" : "; the split before does not fit in memory");
}

using Json = nlohmann::ordered_json;

/// One rank's memory as text around its own number, the only thing in which ranks of a stage differ.
struct StageText {
    std::string before, after;
};

StageText stage_text(reports::StageMemory stage, const simulator::StageUse* use, std::int64_t limit) {
    stage.first_rank = 0;
    const std::string time = use == nullptr ? "null" : reports::stage_use_to_json(*use).dump();
    const std::string text = fmt::format("\"exact\":{},\"estimated_peak_bytes\":{},\"time\":{},\"memory\":{}", stage.exact,
                                         stage.estimated_peak, time, reports::stage_memory_to_json(stage, limit).dump());
    const std::string key = "\"worst_rank\":";
    const auto at = text.find(key);
    MGPLAN_ASSERT(at != std::string::npos && text[at + key.size()] == '0', "a rank's memory names the rank");
    return {text.substr(0, at + key.size()), text.substr(at + key.size() + 1)};
}

/// Memory and time of every stage's ranks.
struct Stages {
    const std::vector<reports::StageMemory>& memory;
    std::vector<simulator::StageUse> use;  ///< empty where the iteration is too long to be replayed

    [[nodiscard]] const simulator::StageUse* use_of(std::size_t stage) const { return use.empty() ? nullptr : &use[stage]; }
};

/// `json` with memory and time of every global rank as its last field, written rank by rank: there may be millions.
void write_with_ranks(std::ostream& out, const Json& json, const Stages& stages, const Workload& work, const Layout& layout) {
    std::vector<StageText> texts;
    for (std::size_t i = 0; i < stages.memory.size(); ++i)
        texts.push_back(stage_text(stages.memory[i], stages.use_of(i), work.memory_limit));
    std::string head = json.dump(1);
    head.resize(head.rfind("\n}"));
    ListWriter writer(out);
    writer.text(head);
    writer.text(",\n \"ranks\": [");
    for (std::int64_t rank = 0; rank < work.world; ++rank) {
        const std::int64_t stage = stage_of_rank(layout.sizes, rank);
        const StageText& memory = texts[static_cast<std::size_t>(stage)];
        writer.text(rank == 0 ? "\n  {\"rank\":" : ",\n  {\"rank\":");
        writer.number(rank);
        writer.text(",\"stage\":");
        writer.number(stage);
        writer.text(",");
        writer.text(memory.before);
        writer.number(rank);
        writer.text(memory.after);
        writer.text("}");
    }
    writer.text("\n ]\n}\n");
}

/// One row of CSV for each global rank.
void write_csv_of_ranks(std::ostream& out, const Stages& stages, const Workload& work, const Layout& layout) {
    ListWriter writer(out);
    std::vector<reports::Table::Column> columns;
    for (auto& name : reports::stage_memory_csv_columns()) columns.push_back({std::move(name)});
    for (auto& name : reports::stage_use_csv_columns()) columns.push_back({std::move(name)});
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < stages.memory.size(); ++i) {
        reports::Table row(columns);
        auto cells = reports::stage_memory_csv_row(stages.memory[i], work.memory_limit);
        if (const auto* use = stages.use_of(i)) {
            for (auto& cell : reports::stage_use_csv_row(*use)) cells.push_back(std::move(cell));
        }
        row.add_row(std::move(cells));
        const std::string both = row.to_csv();
        const std::size_t header_end = both.find('\n') + 1;
        if (texts.empty()) writer.text("rank,stage," + both.substr(0, header_end));
        texts.push_back(both.substr(header_end));
    }
    for (std::int64_t rank = 0; rank < work.world; ++rank) {
        const std::int64_t stage = stage_of_rank(layout.sizes, rank);
        writer.number(rank);
        writer.text(",");
        writer.number(stage);
        writer.text(",");
        writer.text(texts[static_cast<std::size_t>(stage)]);
    }
}

Json answer_json(const SimulateAnswer& answer, simulator::CostModel& model) {
    const SimulatedLayout& asked = answer.asked;
    Json json{{"model", reports::model_summary_to_json(asked.work.model)},
              {"assumed_architecture", reports::assumed_architecture_to_json(asked.work.model)},
              {"layout", reports::layout_fields(asked.work, asked.layout)},
              {"predicted", reports::prediction_to_json(answer.prediction)},
              {"training", answer.training ? reports::training_to_json(*answer.training) : Json(nullptr)},
              {"batch_source", to_string(asked.batch_source)},
              {"assumed", asked.assumed}};
    reports::add_flag_account(json, asked.flags ? *asked.flags : formats::FlagAccount{});
    if (answer.schedule.order || asked.layout.schedule) {
        const PipelineOrder order = answer.schedule.order ? *answer.schedule.order : LayoutSchedule(asked.layout).order();
        Json live = Json::array();
        for (int rank = 0; rank < order.pp; ++rank) live.push_back(peak_live(order, rank));
        json["schedule"] = Json{{"kind", answer.schedule.kind}, {"chunks", order.chunks}, {"peak_live", live}};
    }
    if (const auto& balanced = answer.balanced) {
        json["balanced"] = Json{{"seconds_before", balanced->seconds_before}, {"seconds", balanced->seconds}, {"gain", balanced->gain()}};
        json["balanced"]["why_not"] = balanced->why_not.empty() ? Json() : Json(balanced->why_not);
    }
    if (answer.disturbed) json["disturbed"] = disturbed_to_json(answer.disturbances, *answer.disturbed);
    if (const auto replay = model.replay_allocator(asked.layout, answer.prediction.memory.worst_stage))
        json["predicted"]["memory"]["allocator_replay"] = reports::reserved_memory_to_json(*replay);
    if (answer.snapshot) json["memory_snapshot"] = reports::snapshot_to_json(*answer.snapshot);
    return json;
}

}  // namespace

std::string SimulateAnswer::text_of_balance() const {
    return balanced ? balanced_text(*balanced) : std::string();
}

std::string SimulateAnswer::text_of_disturbance() const {
    return disturbed ? disturbed_text(disturbances, *disturbed) : std::string();
}

std::vector<std::string> details_of(const SimulateAnswer& answer) {
    std::vector<std::string> details = layout_lines(answer.asked.work, answer.asked.layout);
    if (!answer.asked.assumed.empty()) details.push_back(fmt::format("assumed: {}", fmt::join(answer.asked.assumed, ", ")));
    for (const std::string& text : {answer.text_of_balance(), answer.text_of_disturbance()}) {
        for (const auto& line : split(text, '\n')) {
            if (!line.empty()) details.push_back(line);
        }
    }
    return details;
}

void write_simulate_answer(const Options& options, const SimulateAnswer& answer, simulator::CostModel& model, Console& console) {
    const Workload& work = answer.asked.work;
    const Layout& layout = answer.asked.layout;
    const Stages stages{answer.memories.stages, answer.use};
    if (options.format() == Format::json) {
        const Json json = answer_json(answer, model);
        if (answer.per_rank)
            options.write(console, [&](std::ostream& out) { write_with_ranks(out, json, stages, work, layout); });
        else
            options.write(console, json.dump(1) + "\n");
    } else if (options.format() == Format::csv && answer.per_rank) {
        options.write(console, [&](std::ostream& out) { write_csv_of_ranks(out, stages, work, layout); });
    } else if (options.format() == Format::csv || answer.markdown) {
        reports::PlanReport report;
        report.workload = work;
        report.plans.push_back({with_all_switches(layout, work.model, work.training), answer.prediction});
        report.graphs_searched = true;  // the row alone says which it has
        report.assumed = answer.asked.assumed;
        report.detail = reports::Detail::wide;
        options.write(console, answer.markdown ? reports::plan_report_markdown(report) : reports::plan_report_csv(report));
    } else {
        const auto& flags = answer.asked.flags;
        options.write(console, reports::workload_text(work) + reports::assumed_text(answer.asked.assumed) +
                                   (flags ? reports::flag_account_text(*flags) : std::string()) + "\n" +
                                   reports::layout_text(work, layout, answer.prediction) + answer.text_of_balance() +
                                   (answer.training ? "\ntraining: " + reports::training_text(*answer.training) : std::string()) +
                                   answer.text_of_disturbance() + (answer.snapshot ? reports::snapshot_text(*answer.snapshot) : "") +
                                   (answer.per_rank ? stage_memories_text(answer.memories, work.memory_limit) : std::string()) +
                                   (answer.per_rank && !answer.use.empty() ? reports::stage_use_text(answer.use) : std::string()));
    }
}

}  // namespace mgplan::cli
