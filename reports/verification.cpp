#include "reports/verification.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/run_report.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

/// A number of a rank's memory that differs from the prediction.
struct ByteDifference {
    int rank;
    std::string field;
    std::int64_t measured, predicted;
};

struct ByteComparison {
    std::size_t fields = 0;
    std::vector<ByteDifference> different;
};

ByteComparison compare_bytes(const runtime::RunValues& run) {
    ByteComparison result;
    for (const auto& rank : run.ranks) {
        const auto measured = memory_numbers(rank.measured.memory), predicted = memory_numbers(rank.predicted.memory);
        for (std::size_t i = 0; i < measured.size(); ++i) {
            ++result.fields;
            if (measured[i].second != predicted[i].second)
                result.different.push_back({rank.rank, measured[i].first, measured[i].second, predicted[i].second});
        }
    }
    return result;
}

std::string milliseconds(double seconds) {
    return fmt::format("{:.3f}", seconds * 1e3);
}

std::string signed_milliseconds(double seconds) {
    return fmt::format("{:+.3f}", seconds * 1e3);
}

std::string signed_percent(double share) {
    return fmt::format("{:+.1f}%", 100 * share);
}

bool all_measured(const TimeComparison& time) {
    return std::all_of(time.parts.begin(), time.parts.end(), [](const TimePart& part) { return part.measured.has_value(); });
}

std::string parts_text(const TimeComparison& time) {
    if (time.parts.empty()) return "";
    const bool measured = all_measured(time);
    std::vector<Table::Column> columns{{"part of an iteration", Align::left}, {"predicted\nms"}};
    // Without times of the parts: the time that each alone would need to explain the difference.
    if (measured) {
        columns.insert(columns.end(), {{"measured\nms"}, {"difference\nms"}, {"of the\ndifference"}});
    } else {
        columns.push_back({"it alone would\nhave to be"});
    }
    Table table(std::move(columns));
    const double all = time.measured - time.predicted;
    for (const auto& part : time.parts) {
        if (!measured) {
            const double needed = part.predicted > 0 ? (part.predicted + all) / part.predicted : 0;
            table.add_row({part.name, milliseconds(part.predicted),
                           part.predicted <= 0 || needed > 100 ? ""
                           : needed < 0                        ? "cannot"
                                                               : fmt::format("x {:.2f}", needed)});
            continue;
        }
        const double difference = *part.measured - part.predicted;
        table.add_row({part.name, milliseconds(part.predicted), milliseconds(*part.measured), signed_milliseconds(difference),
                       all != 0 ? fmt::format("{:.0f}%", 100 * difference / all) : ""});
    }
    if (measured) {
        table.add_row({"all", milliseconds(time.predicted), milliseconds(time.measured), signed_milliseconds(all), ""});
    } else {
        table.add_row({"all", milliseconds(time.predicted), ""});
    }
    return table.to_text();
}

std::string ops_text(const TimeComparison& time) {
    Table table({{"op", Align::left}, {"count"}, {"predicted\ncount"}, {"predicted\nms"}, {"measured\nms"}, {"difference\nms"}});
    for (const auto& op : time.ops) {
        const auto count = [](double value) { return fmt::format("{:.4g}", value); };
        if (op.communication) {
            table.add_row({op.op, count(op.count), "", "", milliseconds(op.measured), ""});
        } else {
            table.add_row({op.op, count(op.count), count(op.predicted_count), milliseconds(op.predicted), milliseconds(op.measured),
                           signed_milliseconds(op.measured - op.predicted)});
        }
    }
    return table.to_text();
}

std::string verdict_text(const TimeComparison& time) {
    std::string text = fmt::format("iteration: predicted {:.4g} s, measured {:.4g} s, error {} of the measured time\n", time.predicted,
                                   time.measured, signed_percent(time.error()));
    if (!time.why_not_judged.empty()) return text + fmt::format("The time is not judged: {}.\n", time.why_not_judged);
    return text + fmt::format("The time {} the tolerance of {:.3g} %.\n", time.misses() ? "misses" : "is within", 100 * time.tolerance);
}

Json time_json(const TimeComparison& time) {
    Json parts = Json::array(), ops = Json::array();
    for (const auto& part : time.parts) {
        parts.push_back(Json{{"part", part.name},
                             {"predicted_seconds", part.predicted},
                             {"measured_seconds", part.measured ? Json(*part.measured) : Json()}});
    }
    for (const auto& op : time.ops) {
        ops.push_back(Json{{"op", op.op},
                           {"count", op.count},
                           {"predicted_count", op.communication ? Json() : Json(op.predicted_count)},
                           {"predicted_seconds", op.communication ? Json() : Json(op.predicted)},
                           {"measured_seconds", op.measured}});
    }
    return Json{{"predicted_seconds", time.predicted},
                {"measured_seconds", time.measured},
                {"error", time.error()},
                {"tolerance", time.tolerance},
                {"judged", time.why_not_judged.empty()},
                {"why_not_judged", time.why_not_judged.empty() ? Json() : Json(time.why_not_judged)},
                {"misses", time.why_not_judged.empty() ? Json(time.misses()) : Json()},
                {"parts", parts},
                {"ops", ops}};
}

std::string dumped(const Json& json) {
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void add_time(Table& table, const TimeComparison& time) {
    const auto add = [&](const char* kind, const std::string& name, std::optional<double> measured, double predicted) {
        table.add_row({kind, "", name, measured ? fmt::format("{}", *measured) : "", fmt::format("{}", predicted),
                       measured ? fmt::format("{}", *measured - predicted) : ""});
    };
    add("time", "iteration_seconds", time.measured, time.predicted);
    for (const auto& part : time.parts) add("part", part.name, part.measured, part.predicted);
    for (const auto& op : time.ops) {
        if (op.communication)
            table.add_row({"op", "", op.op, fmt::format("{}", op.measured), "", ""});
        else
            add("op", op.op, op.measured, op.predicted);
    }
}

Table csv_table() {
    return Table({{"kind"}, {"index"}, {"name"}, {"measured"}, {"predicted"}, {"difference"}});
}

}  // namespace

std::string verification_text(const Verification& verification) {
    const runtime::RunValues& run = verification.run;
    std::string text = fmt::format("{} rank{} as {} on {}, {} step{}\n\n", run.ranks.size(), run.ranks.size() == 1 ? "" : "s",
                                   run.transport, run.device, run.steps.size(), run.steps.size() == 1 ? "" : "s");
    const ByteComparison bytes = compare_bytes(run);
    if (bytes.different.empty()) {
        text += fmt::format("bytes: {} numbers of {} ranks, every one as predicted\n", bytes.fields, run.ranks.size());
    } else {
        text += fmt::format("bytes: {} of {} numbers differ\n", bytes.different.size(), bytes.fields);
        Table table({{"rank"}, {"bytes", Align::left}, {"measured"}, {"predicted"}, {"difference"}});
        constexpr std::size_t kMost = 50;
        for (std::size_t i = 0; i < std::min(kMost, bytes.different.size()); ++i) {
            const ByteDifference& each = bytes.different[i];
            table.add_row({std::to_string(each.rank), each.field, with_thousands(each.measured), with_thousands(each.predicted),
                           with_thousands(each.measured - each.predicted)});
        }
        text += table.to_text();
        if (bytes.different.size() > kMost) text += fmt::format("and {} more; --format json has all\n", bytes.different.size() - kMost);
    }
    if (!run.collectives.empty()) {
        Table table(
            {{"group", Align::left}, {"op", Align::left}, {"count"}, {"predicted"}, {"payload bytes"}, {"predicted"}, {"", Align::left}});
        for (const auto& each : run.collectives) {
            const bool equal = each.measured.count == each.predicted_count && each.measured.payload_bytes == each.predicted_payload_bytes;
            table.add_row({each.measured.group, each.measured.op, with_thousands(each.measured.count), with_thousands(each.predicted_count),
                           with_thousands(each.measured.payload_bytes), with_thousands(each.predicted_payload_bytes),
                           equal ? "" : "differs"});
        }
        text += "\ncollectives of all ranks\n" + table.to_text();
    }
    const TimeComparison& time = verification.time;
    text += fmt::format("\ntime{}, predicted with {}\n",
                        run.emulated_partners ? " of this rank without its partners, communication left out on both sides" : "",
                        verification.cluster) +
            verdict_text(time) + "\n" + parts_text(time);
    if (!time.ops.empty()) {
        text += "\nops of one iteration, average of a rank; what waits for partners has no predicted time of its own\n" + ops_text(time);
    } else {
        text += "\nThere are no times of single ops: inside of CUDA graphs they are not timed, and a single step on a GPU is not.\n";
    }
    if (!verification.holds()) return text + "\nThe prediction does not hold.\n";
    return text + (time.why_not_judged.empty() ? "\nThe prediction holds.\n" : "\nAll bytes are as predicted; the time was not judged.\n");
}

std::string verification_json(const Verification& verification) {
    const ByteComparison bytes = compare_bytes(verification.run);
    Json different = Json::array(), collectives = Json::array();
    for (const auto& each : bytes.different) {
        different.push_back(Json{{"rank", each.rank},
                                 {"field", each.field},
                                 {"measured", each.measured},
                                 {"predicted", each.predicted},
                                 {"difference", each.measured - each.predicted}});
    }
    for (const auto& each : verification.run.collectives) {
        collectives.push_back(Json{{"group", each.measured.group},
                                   {"op", each.measured.op},
                                   {"count", each.measured.count},
                                   {"predicted_count", each.predicted_count},
                                   {"payload_bytes", each.measured.payload_bytes},
                                   {"predicted_payload_bytes", each.predicted_payload_bytes}});
    }
    return dumped(Json{{"holds", verification.holds()},
                       {"as_predicted", verification.run.as_predicted},
                       {"bytes", Json{{"fields", bytes.fields}, {"different", different}}},
                       {"collectives", collectives},
                       {"cluster", verification.cluster},
                       {"time", time_json(verification.time)},
                       {"run", Json::parse(run_report_json(verification.run))}});
}

std::string verification_csv(const Verification& verification) {
    Table table = csv_table();
    for (const auto& rank : verification.run.ranks) {
        const auto measured = memory_numbers(rank.measured.memory), predicted = memory_numbers(rank.predicted.memory);
        for (std::size_t i = 0; i < measured.size(); ++i) {
            table.add_row({"byte", std::to_string(rank.rank), measured[i].first, std::to_string(measured[i].second),
                           std::to_string(predicted[i].second), std::to_string(measured[i].second - predicted[i].second)});
        }
    }
    for (const auto& each : verification.run.collectives) {
        const auto add = [&](const char* what, std::int64_t measured, std::int64_t predicted) {
            table.add_row({"collective", "", fmt::format("{} {} {}", each.measured.group, each.measured.op, what), std::to_string(measured),
                           std::to_string(predicted), std::to_string(measured - predicted)});
        };
        add("count", each.measured.count, each.predicted_count);
        add("payload_bytes", each.measured.payload_bytes, each.predicted_payload_bytes);
    }
    add_time(table, verification.time);
    return table.to_csv();
}

bool LogVerification::memory_misses(const LoggedRankMemory& rank) const {
    const auto measured = static_cast<double>(rank.measured_allocated);
    return std::abs(static_cast<double>(rank.predicted_allocated) - measured) > memory_tolerance * measured;
}

bool LogVerification::holds() const {
    return !(time.why_not_judged.empty() && time.misses()) &&
           std::none_of(memory.begin(), memory.end(), [&](const LoggedRankMemory& rank) { return memory_misses(rank); });
}

namespace {

std::string name_of_rank(const LoggedRankMemory& rank) {
    return rank.rank ? std::to_string(*rank.rank) : "fullest";
}

}  // namespace

std::string log_verification_text(const LogVerification& verification) {
    std::string text = verification.workload;
    text += fmt::format("{}: median of {} steady line{}, quartiles {:.4g} and {:.4g} s\n\ntime, predicted with {}\n", verification.log,
                        verification.lines, verification.lines == 1 ? "" : "s", verification.lower_quartile, verification.upper_quartile,
                        verification.cluster);
    text += verdict_text(verification.time);
    if (verification.logged_tflops) {
        text += fmt::format("throughput: logged {:.1f} TFLOP/s per GPU, predicted {:.1f}\n", *verification.logged_tflops,
                            verification.predicted_tflops.value_or(0));
    }
    if (verification.flops_ratio && std::abs(*verification.flops_ratio - 1) > 0.03) {
        text += fmt::format(
            "The log counts {:.2f} times the FLOPs of this model and batch: are these the arguments and the world of the job?\n",
            *verification.flops_ratio);
    }
    text += "\nA log tells whole iterations; what each part alone would have to be to explain the difference:\n" +
            parts_text(verification.time);
    if (!verification.memory.empty()) {
        Table table({{"rank"}, {"stage"}, {"max allocated"}, {"predicted"}, {"error"}, {"max reserved"}, {"predicted"}, {"", Align::left}});
        for (const auto& rank : verification.memory) {
            table.add_row({name_of_rank(rank), std::to_string(rank.stage), human_bytes(rank.measured_allocated),
                           human_bytes(rank.predicted_allocated),
                           signed_percent(static_cast<double>(rank.predicted_allocated) /
                                              static_cast<double>(std::max<std::int64_t>(1, rank.measured_allocated)) -
                                          1),
                           human_bytes(rank.measured_reserved), human_bytes(rank.predicted_reserved),
                           verification.memory_misses(rank) ? "misses" : ""});
        }
        text += "\nmemory of PyTorch's allocator\n" + table.to_text();
    } else {
        text += "\nThe log has no report of memory.\n";
    }
    if (verification.refit) {
        const RefitResult& refit = *verification.refit;
        text += fmt::format("\nrefit: efficiencies of compute x {:.3f}, of communication x {:.3f}; predicts {:.4g} s instead of {:.4g} s\n",
                            refit.compute_factor, refit.communication_factor, refit.predicted_after, refit.predicted_before);
        if (refit.at_bound)
            text +=
                "The factors are at their bounds (0.5 to 2) and do not explain the whole difference: something else is not as assumed.\n";
        text += fmt::format("wrote {}; use it with --cluster {}\n", refit.file, refit.file);
    }
    return text + (verification.holds() ? "\nThe prediction holds.\n" : "\nThe prediction does not hold.\n");
}

std::string log_verification_json(const LogVerification& verification) {
    Json memory = Json::array();
    for (const auto& rank : verification.memory) {
        memory.push_back(Json{{"rank", rank.rank ? Json(*rank.rank) : Json()},
                              {"stage", rank.stage},
                              {"max_allocated_bytes", rank.measured_allocated},
                              {"predicted_framework_bytes", rank.predicted_allocated},
                              {"max_reserved_bytes", rank.measured_reserved},
                              {"predicted_reserved_bytes", rank.predicted_reserved},
                              {"misses", verification.memory_misses(rank)}});
    }
    const auto optional = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
    Json json{{"holds", verification.holds()},
              {"log", verification.log},
              {"cluster", verification.cluster},
              {"lines", verification.lines},
              {"quartiles_seconds", {verification.lower_quartile, verification.upper_quartile}},
              {"time", time_json(verification.time)},
              {"logged_tflops_per_gpu", optional(verification.logged_tflops)},
              {"predicted_tflops_per_gpu", optional(verification.predicted_tflops)},
              {"flops_ratio", optional(verification.flops_ratio)},
              {"memory", memory},
              {"refit", Json()}};
    if (const auto& refit = verification.refit) {
        json["refit"] = Json{{"file", refit->file},
                             {"compute_factor", refit->compute_factor},
                             {"communication_factor", refit->communication_factor},
                             {"predicted_seconds_before", refit->predicted_before},
                             {"predicted_seconds_after", refit->predicted_after},
                             {"at_bound", refit->at_bound}};
    }
    return dumped(json);
}

std::string log_verification_csv(const LogVerification& verification) {
    Table table = csv_table();
    add_time(table, verification.time);
    for (const auto& rank : verification.memory) {
        const auto add = [&](const char* name, std::int64_t measured, std::int64_t predicted) {
            table.add_row({"byte", name_of_rank(rank), name, std::to_string(measured), std::to_string(predicted),
                           std::to_string(measured - predicted)});
        };
        add("max_allocated_bytes", rank.measured_allocated, rank.predicted_allocated);
        add("max_reserved_bytes", rank.measured_reserved, rank.predicted_reserved);
    }
    return table.to_csv();
}

}  // namespace mgplan::reports
