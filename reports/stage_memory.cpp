#include "reports/stage_memory.hpp"

#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "reports/byte_units.hpp"
#include "reports/memory_terms.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using simulator::StepPart;

std::string_view kind_of(StepPart part, Pass pass) {
    switch (part) {
        case StepPart::held:
            return "held";
        case StepPart::begin:
            return "step_begin";
        case StepPart::end:
            return "step_end";
        case StepPart::passes:
            break;
    }
    return to_string(pass);
}

}  // namespace

std::string PeakOp::text() const {
    if (kind == "held") return "all the time: buffers and optimizer state";
    const std::string where = chunk && microbatch    ? fmt::format("{} of chunk {}, microbatch {}", kind, *chunk, *microbatch)
                              : chunk                ? fmt::format("{} of chunk {}", kind, *chunk)
                              : kind == "step_begin" ? "begin of the step"
                                                     : "end of the step";
    return tensor.empty() ? where : where + ": " + tensor;
}

PeakOp peak_op_of(const simulator::StageTimeline& timeline) {
    const simulator::RankTimeline& memory = timeline.memory;
    PeakOp peak;
    PipelineOp op;
    if (memory.peak_part == StepPart::passes) {
        op = timeline.schedule.ops[static_cast<std::size_t>(memory.peak_op)];
        peak.chunk = op.chunk;
        peak.microbatch = op.microbatch;
    }
    peak.kind = kind_of(memory.peak_part, op.pass);
    peak.tensor = memory.peak_tensor;
    return peak;
}

PeakOp peak_op_of(const simulator::PeakInstant& instant) {
    PeakOp peak;
    peak.kind = kind_of(instant.op == 0 ? StepPart::end : StepPart::passes, instant.op > 0 ? Pass::forward : Pass::backward);
    if (instant.op != 0) peak.chunk = std::abs(instant.op) - 1;
    peak.tensor = instant.tensor;
    return peak;
}

const StageMemory& fullest(const std::vector<StageMemory>& stages) {
    MGPLAN_ASSERT(!stages.empty(), "a layout has a stage");
    return *std::max_element(stages.begin(), stages.end(),
                             [](const StageMemory& a, const StageMemory& b) { return a.memory.peak_bytes() < b.memory.peak_bytes(); });
}

Json stage_memory_to_json(const StageMemory& stage, std::int64_t limit_bytes) {
    Json json = rank_memory_to_json(stage.memory, stage.first_rank, limit_bytes);
    json["peak_op"] = nullptr;
    if (stage.peak_op) {
        json["peak_op"] = Json{{"kind", stage.peak_op->kind}, {"chunk", nullptr}, {"microbatch", nullptr}, {"tensor", nullptr}};
        if (stage.peak_op->chunk) json["peak_op"]["chunk"] = *stage.peak_op->chunk;
        if (stage.peak_op->microbatch) json["peak_op"]["microbatch"] = *stage.peak_op->microbatch;
        if (!stage.peak_op->tensor.empty()) json["peak_op"]["tensor"] = stage.peak_op->tensor;
    }
    return json;
}

std::vector<std::string> stage_memory_csv_columns() {
    std::vector<std::string> columns{"exact",       "peak_bytes",      "p50_bytes",      "p99_bytes",           "worst_bytes",
                                     "limit_bytes", "framework_bytes", "reserved_bytes", "estimated_peak_bytes"};
    for (const MemoryTerm& term : memory_terms({})) {
        std::string name(term.name);
        std::replace(name.begin(), name.end(), ' ', '_');
        columns.push_back(name);
    }
    for (const char* name : {"peak_op_kind", "peak_op_chunk", "peak_op_microbatch", "peak_op_tensor"}) columns.emplace_back(name);
    return columns;
}

std::vector<std::string> stage_memory_csv_row(const StageMemory& stage, std::int64_t limit_bytes) {
    const simulator::RankMemory& m = stage.memory;
    std::vector<std::string> row{stage.exact ? "true" : "false", std::to_string(m.peak_bytes())};
    for (const auto quantile : {&simulator::RoutedPeaks::p50, &simulator::RoutedPeaks::p99, &simulator::RoutedPeaks::worst})
        row.push_back(m.routing ? std::to_string((*m.routing).*quantile) : "");
    for (const std::int64_t bytes : {limit_bytes, m.framework_bytes, m.reserved_bytes, stage.estimated_peak})
        row.push_back(std::to_string(bytes));
    for (const MemoryTerm& term : memory_terms(m.breakdown)) row.push_back(std::to_string(term.bytes));
    const PeakOp op = stage.peak_op.value_or(PeakOp{});
    row.push_back(op.kind);
    row.push_back(op.chunk ? std::to_string(*op.chunk) : "");
    row.push_back(op.microbatch ? std::to_string(*op.microbatch) : "");
    row.push_back(op.tensor);
    return row;
}

std::string estimate_text(const std::vector<StageMemory>& stages) {
    const bool routed = std::any_of(stages.begin(), stages.end(), [](const StageMemory& s) { return s.memory.routing.has_value(); });
    return routed ? "estimate: what the search judges by, at p99 of the routing skew. peak: with even routing."
                  : "estimate: what the search judges by.";
}

std::string stage_memory_text(const std::vector<StageMemory>& stages, std::int64_t limit_bytes) {
    const ByteUnit unit = unit_for(fullest(stages).memory.peak_bytes());
    // Terms that no stage has get no column.
    const auto terms = memory_terms({});
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < terms.size(); ++i) {
        if (std::any_of(stages.begin(), stages.end(), [&](const StageMemory& s) { return memory_terms(s.memory.breakdown)[i].bytes > 0; }))
            shown.push_back(i);
    }
    std::vector<Table::Column> columns{{"stage"}};
    for (const auto i : shown) columns.push_back({std::string(terms[i].heading)});
    columns.push_back({"peak"});
    Table categories(columns);
    const bool all_exact = std::all_of(stages.begin(), stages.end(), [](const StageMemory& s) { return s.exact; });
    const bool routed = std::any_of(stages.begin(), stages.end(), [](const StageMemory& s) { return s.memory.routing.has_value(); });
    std::vector<Table::Column> peak_columns{{"stage"}, {"rank"}, {"peak"}};
    if (routed) peak_columns.push_back({"p99"});
    peak_columns.insert(peak_columns.end(), {{"framework"}, {"reserved"}, {"limit"}, {"estimate"}, {"op at the peak", Align::left}});
    Table peaks(peak_columns);
    for (const StageMemory& stage : stages) {
        const simulator::RankMemory& m = stage.memory;
        std::vector<std::string> row{std::to_string(stage.stage)};
        for (const auto i : shown) row.push_back(unit.text(memory_terms(m.breakdown)[i].bytes));
        row.push_back(unit.text(m.peak_bytes()));
        categories.add_row(std::move(row));
        row = {std::to_string(stage.stage), std::to_string(stage.first_rank), unit.text(m.peak_bytes())};
        if (routed) row.push_back(unit.text(m.deciding_bytes()));
        row.insert(row.end(), {unit.text(m.framework_bytes), unit.text(m.reserved_bytes), unit.text(limit_bytes),
                               unit.text(stage.estimated_peak), stage.peak_op ? stage.peak_op->text() : "not known"});
        peaks.add_row(std::move(row));
    }
    std::string text = fmt::format("\nmemory of each stage's ranks at the peak ({})\n", unit.name) + categories.to_text(kTerminalColumns) +
                       "\n" + peaks.to_text(kTerminalColumns);
    text += all_exact ? "Exact: every tensor of the step, op by op.\n" + in_lines(estimate_text(stages), 0) + "\n"
                      : "Estimated: the layers' tensors, put together over the schedule.\n";
    return text;
}

}  // namespace mgplan::reports
