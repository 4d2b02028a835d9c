#include "reports/diagnosis.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kDiagnosisWidth = 120;
/// Logged FLOPs that differ by more mean another job.
constexpr double kOtherJob = 0.03;

std::string signed_seconds(double seconds) {
    return fmt::format("{}{}", seconds < 0 ? "-" : "+", human_seconds(std::abs(seconds)));
}

std::string bytes_with_sign(std::int64_t bytes) {
    return fmt::format("{}{}", bytes < 0 ? "-" : "+", human_bytes(std::abs(bytes)));
}

std::string bytes_or_dash(std::int64_t bytes) {
    return bytes > 0 ? human_bytes(bytes) : "-";
}

std::string step_text(const Diagnosis& d) {
    std::string text = fmt::format("{}: {} of {}, quartiles {} and {}{}\n", d.log, counted(d.lines, "steady step"), d.framework,
                                   human_seconds(d.lower_quartile), human_seconds(d.upper_quartile),
                                   d.updates > 1 ? fmt::format(", each of {} updates", d.updates) : "");
    Table table({{"", Align::left}, {"measured"}, {"predicted"}, {"80 % interval"}, {"difference"}});
    table.add_row({"step", human_seconds(d.measured), human_seconds(d.predicted.iteration_seconds),
                   fmt::format("{} to {}", human_seconds(d.predicted.interval_low), human_seconds(d.predicted.interval_high)),
                   fmt::format("{} ({:+.1f} %)", signed_seconds(d.gap()), 100 * d.gap() / d.predicted.iteration_seconds)});
    return text + "\n" + table.to_text();
}

std::string causes_text(const Diagnosis& d) {
    std::string text;
    if (!d.shown.empty()) {
        Table table({{"shown by the log", Align::left}, {"seconds"}, {"evidence", Align::left}, {"what changes it", Align::left}});
        for (const ShownCause& cause : d.shown) table.add_row({cause.name, signed_seconds(cause.seconds), cause.evidence, cause.lever});
        text += "\n" + table.to_text(kDiagnosisWidth);
    }
    if (d.as_predicted())
        return text + fmt::format("\nThe measured step is within {:.0f} % of the prediction: nothing is left to explain.\n",
                                  100 * kNothingToExplain);
    const auto possible = d.possible();
    text += fmt::format("\nunexplained: {}{}\n", signed_seconds(d.gap() < 0 ? -d.unexplained() : d.unexplained()),
                        possible.empty() ? ", and no single change below moves the prediction there" : "");
    if (!possible.empty()) {
        text += "The log does not show which of these holds. Each alone changes the prediction by:\n\n";
        Table table({{"if", Align::left}, {"seconds"}, {"of the gap"}, {"what changes it", Align::left}});
        for (const auto& one : possible) {
            const std::string change =
                one.kind == planner::ChangeKind::not_effective ? fmt::format("{}: {}", one.name, one.change) : one.change;
            table.add_row({change, signed_seconds(one.seconds),
                           fmt::format("{:.0f} %", 100 * std::min(1.0, one.seconds / (d.gap() == 0 ? 1 : d.gap()))), one.lever});
        }
        text += table.to_text(kDiagnosisWidth);
    }
    return text;
}

std::string unused_text(const Diagnosis& d) {
    if (d.unused.empty()) return "";
    Table table({{"off in this job", Align::left}, {"would save"}, {"what switches it on", Align::left}});
    for (const auto& one : d.unused) table.add_row({one.name, human_seconds(one.saved_seconds), one.lever});
    return "\n" + table.to_text(kDiagnosisWidth);
}

std::string memory_text(const Diagnosis& d) {
    if (d.memory.empty()) return "\nThe log has no report of memory.\n";
    Table table({{"rank"}, {"stage"}, {"allocated"}, {"predicted"}, {"reserved"}, {"predicted"}, {"difference"}});
    for (const auto& rank : d.memory)
        table.add_row({rank.rank ? std::to_string(*rank.rank) : "fullest", std::to_string(rank.stage),
                       bytes_or_dash(rank.measured_allocated), human_bytes(rank.predicted_allocated), bytes_or_dash(rank.measured_reserved),
                       human_bytes(rank.predicted_reserved), bytes_with_sign(rank.measured_reserved - rank.predicted_reserved)});
    std::string text = "\nmemory of PyTorch's allocator, at most\n" + table.to_text();
    if (d.memory_causes.empty()) return text;
    Table causes({{"more memory", Align::left}, {"bytes"}, {"evidence", Align::left}, {"what changes it", Align::left}});
    for (const auto& cause : d.memory_causes)
        causes.add_row({cause.name, cause.bytes != 0 ? bytes_with_sign(cause.bytes) : "-", cause.evidence, cause.lever});
    return text + "\n" + causes.to_text(kDiagnosisWidth);
}

}  // namespace

bool Diagnosis::as_predicted() const {
    return std::abs(gap()) <= kNothingToExplain * predicted.iteration_seconds;
}

double Diagnosis::unexplained() const {
    double left = std::abs(gap());
    if (gap() < 0) return left;  // the log shows only what takes time
    for (const ShownCause& cause : shown) left -= cause.seconds;
    return std::max(0.0, left);
}

std::vector<planner::WhatIf> Diagnosis::possible() const {
    std::vector<planner::WhatIf> towards;
    if (as_predicted()) return towards;
    std::copy_if(changes.begin(), changes.end(), std::back_inserter(towards),
                 [this](const planner::WhatIf& one) { return (one.seconds > 0) == (gap() > 0); });
    return towards;
}

std::string diagnosis_text(const Diagnosis& d) {
    std::string text = d.workload + step_text(d);
    if (d.flops_ratio && std::abs(*d.flops_ratio - 1) > kOtherJob)
        text += fmt::format(
            "The log counts {:.2f} times the FLOPs of this model and batch: are these the arguments and the world of the job?\n",
            *d.flops_ratio);
    text += causes_text(d);
    if (d.pauses > 0)
        text += in_lines(fmt::format("\n{} of {} steps take more than 1.5 times the median: {} a step on average (evaluation, checkpoints, "
                                     "data; --eval-interval, "
                                     "--save-interval, --async-save, --num-workers)\n",
                                     d.pauses, d.lines, signed_seconds(d.pause_seconds)),
                         2);
    return text + unused_text(d) + memory_text(d);
}

std::string diagnosis_json(const Diagnosis& d) {
    Json shown = Json::array(), possible = Json::array(), unused = Json::array(), memory = Json::array(), causes = Json::array();
    for (const auto& one : d.shown)
        shown.push_back({{"name", one.name}, {"seconds", one.seconds}, {"evidence", one.evidence}, {"lever", one.lever}});
    for (const auto& one : d.possible())
        possible.push_back({{"name", one.name},
                            {"change", one.change},
                            {"kind", one.kind == planner::ChangeKind::assumption ? "assumption" : "not effective"},
                            {"seconds", one.seconds},
                            {"lever", one.lever}});
    for (const auto& one : d.unused) unused.push_back({{"name", one.name}, {"saved_seconds", one.saved_seconds}, {"lever", one.lever}});
    const auto bytes = [](std::int64_t value) { return value > 0 ? Json(value) : Json(); };
    for (const auto& rank : d.memory)
        memory.push_back({{"rank", rank.rank ? Json(*rank.rank) : Json()},
                          {"stage", rank.stage},
                          {"max_allocated_bytes", bytes(rank.measured_allocated)},
                          {"predicted_framework_bytes", rank.predicted_allocated},
                          {"max_reserved_bytes", bytes(rank.measured_reserved)},
                          {"predicted_reserved_bytes", rank.predicted_reserved}});
    for (const auto& one : d.memory_causes)
        causes.push_back(
            {{"name", one.name}, {"bytes", one.bytes}, {"shown", one.shown}, {"evidence", one.evidence}, {"lever", one.lever}});
    const Json json{{"log", d.log},
                    {"framework", d.framework},
                    {"source", d.source},
                    {"cluster", d.cluster},
                    {"lines", d.lines},
                    {"updates", d.updates},
                    {"step",
                     {{"measured_seconds", d.measured},
                      {"quartiles_seconds", {d.lower_quartile, d.upper_quartile}},
                      {"predicted_seconds", d.predicted.iteration_seconds},
                      {"interval_seconds", {d.predicted.interval_low, d.predicted.interval_high}},
                      {"gap_seconds", d.gap()},
                      {"as_predicted", d.as_predicted()}}},
                    {"shown", shown},
                    {"unexplained_seconds", d.unexplained()},
                    {"possible", possible},
                    {"unused_switches", unused},
                    {"pauses", {{"steps", d.pauses}, {"mean_seconds", d.pause_seconds}}},
                    {"memory", memory},
                    {"memory_causes", causes},
                    {"flops_ratio", d.flops_ratio ? Json(*d.flops_ratio) : Json()}};
    return json.dump(1) + "\n";
}

std::string diagnosis_csv(const Diagnosis& d) {
    Table table({{"kind"}, {"name"}, {"value"}, {"what changes it"}});
    const auto add = [&](const char* kind, const std::string& name, double value, const std::string& lever) {
        table.add_row({kind, name, fmt::format("{:.6g}", value), lever});
    };
    add("step", "measured_seconds", d.measured, "");
    add("step", "predicted_seconds", d.predicted.iteration_seconds, "");
    for (const auto& one : d.shown) add("shown", one.name, one.seconds, one.lever);
    add("unexplained", "seconds", d.unexplained(), "");
    for (const auto& one : d.possible()) add("possible", one.name, one.seconds, one.lever);
    for (const auto& one : d.unused) add("unused", one.name, one.saved_seconds, one.lever);
    add("pause", "mean_seconds", d.pause_seconds, "");
    for (const auto& one : d.memory_causes) table.add_row({"memory", one.name, std::to_string(one.bytes), one.lever});
    return table.to_csv();
}

}  // namespace mgplan::reports
