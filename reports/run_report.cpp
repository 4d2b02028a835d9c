#include "reports/run_report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using runtime::ByteCounts;
using runtime::kByteCategories;
using runtime::MemoryValues;
using runtime::RankUse;
using runtime::RankValues;
using runtime::RunValues;
using runtime::StepValues;

/// All categories of a prediction; those that the runtime never has on this device are 0.
Json bytes_json(const ByteCounts& bytes) {
    Json json{{"parameters", bytes[0]},   {"gradients", bytes[1]}, {"optimizer", bytes[2]}, {"activations", bytes[3]},
              {"graph_static_inputs", 0}, {"graph_boundary", 0},   {"graph_objects", 0},    {"communication", bytes[4]},
              {"workspace", bytes[5]},    {"context", 0},          {"fragmentation", 0}};
    return json;
}

bool has_graphs(const RankUse& use) {
    return use.graphs.forward_graphs + use.graphs.backward_graphs > 0;
}
bool has_graphs(const RankValues& rank) {
    return has_graphs(rank.measured) || has_graphs(rank.predicted);
}

/// Name and value of every count of a rank's graphs.
std::vector<std::pair<std::string, std::int64_t>> graph_counts(const runtime::GraphValues& graphs) {
    return {{"forward_graphs", graphs.forward_graphs},
            {"backward_graphs", graphs.backward_graphs},
            {"slots", graphs.slots},
            {"static_input_bytes", graphs.static_input_bytes},
            {"boundary_bytes", graphs.boundary_bytes}};
}

Json graphs_json(const runtime::GraphValues& graphs) {
    Json json = Json::object();
    for (const auto& [name, value] : graph_counts(graphs)) json[name] = value;
    json["boundary"] = Json::array();
    for (const auto& [name, bytes] : graphs.boundary) json["boundary"].push_back({{"name", name}, {"bytes", bytes}});
    return json;
}

struct GraphNumber {
    std::string name;
    std::int64_t measured = 0, predicted = 0;
};

/// Counts of a rank's graphs, then the boundary tensors of either side.
std::vector<GraphNumber> graph_numbers(const RankValues& rank) {
    std::vector<GraphNumber> numbers;
    const auto measured = graph_counts(rank.measured.graphs), predicted = graph_counts(rank.predicted.graphs);
    for (std::size_t i = 0; i < measured.size(); ++i) numbers.push_back({measured[i].first, measured[i].second, predicted[i].second});
    const auto bytes_of = [](const runtime::GraphValues& graphs, const std::string& name) {
        const auto found =
            std::find_if(graphs.boundary.begin(), graphs.boundary.end(), [&](const auto& each) { return each.name == name; });
        return found == graphs.boundary.end() ? 0 : found->bytes;
    };
    // The difference contains the tensors of both sides.
    for (const auto& [name, difference] : rank.difference.graphs.boundary)
        numbers.push_back({"boundary " + name, bytes_of(rank.measured.graphs, name), bytes_of(rank.predicted.graphs, name)});
    return numbers;
}

Json use_json(const RankUse& use) {
    Json collectives = Json::array();
    for (const auto& each : use.collectives)
        collectives.push_back(Json{{"group", each.group}, {"op", each.op}, {"count", each.count}, {"payload_bytes", each.payload_bytes}});
    // All tensors on a CPU come from this allocator, so that a framework would report its peak.
    return Json{{"peak_bytes", use.memory.peak_bytes},
                {"framework_bytes", use.memory.peak_bytes},
                {"reserved_bytes", use.memory.reserved_bytes},
                {"host_bytes", use.memory.host_bytes},
                {"arena_bytes", use.memory.arena_bytes},
                {"fallback_bytes", use.memory.fallback_bytes},
                {"breakdown", bytes_json(use.memory.breakdown)},
                {"high_water", bytes_json(use.memory.high_water)},
                {"graphs", graphs_json(use.graphs)},
                {"collectives", collectives}};
}

/// Quality of the arena's plan; null with a pool.
Json arena_json(const RunValues& values, const RankValues& rank) {
    if (values.memory == runtime::MemoryMode::pool) return {};
    const auto bound = static_cast<double>(rank.arena.lower_bound_bytes);
    const auto over = static_cast<double>(rank.arena.planned_bytes - rank.arena.lower_bound_bytes);
    return Json{{"planned_bytes", rank.arena.planned_bytes},
                {"lower_bound_bytes", rank.arena.lower_bound_bytes},
                {"waste", bound > 0 ? over / bound : 0.0}};
}

std::string number(double value) {
    return std::isnan(value) ? "NaN" : fmt::format("{:.6g}", value);
}

std::string signed_bytes(std::int64_t bytes) {
    return bytes > 0 ? "+" + with_thousands(bytes) : with_thousands(bytes);
}

/// Steps to print: all of a short run, else the first, the last, and some between.
std::vector<std::size_t> shown_steps(std::size_t steps) {
    constexpr std::size_t kMost = 40;
    std::vector<std::size_t> shown;
    if (steps <= kMost) {
        for (std::size_t i = 0; i < steps; ++i) shown.push_back(i);
    } else {
        for (std::size_t i = 0; i < kMost; ++i) shown.push_back(i * (steps - 1) / (kMost - 1));
    }
    return shown;
}

std::string steps_text(const RunValues& values) {
    const bool has_auxiliary_loss = !values.steps.empty() && values.steps.front().auxiliary_loss;
    std::vector<Table::Column> columns{{"step"}, {"loss"}, {"gradient norm"}, {"learning rate"}, {"seconds"}, {"", Align::left}};
    if (has_auxiliary_loss) columns.insert(columns.begin() + 2, {"auxiliary loss"});
    const std::size_t depths = values.steps.empty() ? 0 : values.steps.front().mtp_losses.size();
    for (std::size_t k = depths; k-- > 0;) columns.insert(columns.begin() + 2, {fmt::format("mtp loss {}", k + 1)});
    Table table(std::move(columns));
    for (const auto i : shown_steps(values.steps.size())) {
        const StepValues& step = values.steps[i];
        std::vector<std::string> row{std::to_string(values.steps_before + static_cast<std::int64_t>(i) + 1),
                                     number(step.loss),
                                     number(step.grad_norm),
                                     number(step.learning_rate),
                                     fmt::format("{:.4f}", step.seconds),
                                     step.skipped ? "left out: not finite" : ""};
        if (has_auxiliary_loss) row.insert(row.begin() + 2, number(step.auxiliary_loss.value_or(0)));
        for (std::size_t k = depths; k-- > 0;) row.insert(row.begin() + 2, number(step.mtp_losses[k]));
        table.add_row(std::move(row));
    }
    return table.to_text();
}

std::string ranks_text(const std::vector<int>& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (!text.empty()) text += ", ";
        text += last > i + 1 ? fmt::format("{} to {}", ranks[i], ranks[last]) : std::to_string(ranks[i]);
        i = last > i + 1 ? last + 1 : i + 1;
    }
    return text;
}

std::string memory_text(const RunValues& values) {
    Table table({{"ranks", Align::left}, {"bytes", Align::left}, {"measured"}, {"predicted"}, {"difference"}});
    std::vector<std::pair<const RankValues*, std::vector<int>>> kinds;
    for (const auto& rank : values.ranks) {
        const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) {
            return kind.first->measured.memory == rank.measured.memory && kind.first->predicted.memory == rank.predicted.memory;
        });
        if (same == kinds.end())
            kinds.push_back({&rank, {rank.rank}});
        else
            same->second.push_back(rank.rank);
    }
    for (const auto& [rank, ranks] : kinds) {
        const MemoryValues &a = rank->measured.memory, &b = rank->predicted.memory, &d = rank->difference.memory;
        table.add_row({ranks_text(ranks), "peak", with_thousands(a.peak_bytes), with_thousands(b.peak_bytes), signed_bytes(d.peak_bytes)});
        for (std::size_t i = 0; i < kByteCategories.size(); ++i) {
            table.add_row({"", std::string(kByteCategories[i]), with_thousands(a.high_water[i]), with_thousands(b.high_water[i]),
                           signed_bytes(d.high_water[i])});
        }
        table.add_row({"", "reserved", with_thousands(a.reserved_bytes), with_thousands(b.reserved_bytes), signed_bytes(d.reserved_bytes)});
        if (a.host_bytes > 0 || b.host_bytes > 0)
            table.add_row({"", "on the host", with_thousands(a.host_bytes), with_thousands(b.host_bytes), signed_bytes(d.host_bytes)});
        if (values.memory == runtime::MemoryMode::pool) continue;
        table.add_row({"", "arena", with_thousands(a.arena_bytes), with_thousands(b.arena_bytes), signed_bytes(d.arena_bytes)});
        table.add_row(
            {"", "next to it", with_thousands(a.fallback_bytes), with_thousands(b.fallback_bytes), signed_bytes(d.fallback_bytes)});
    }
    return table.to_text();
}

std::string graphs_text(const RunValues& values) {
    Table table({{"rank"}, {"graphs", Align::left}, {"measured"}, {"predicted"}, {"difference"}, {"pieces"}, {"nodes"}});
    for (const auto& rank : values.ranks) {
        if (!has_graphs(rank)) continue;
        bool first = true;
        for (const auto& [name, measured, predicted] : graph_numbers(rank)) {
            table.add_row({first ? std::to_string(rank.rank) : "", name, with_thousands(measured), with_thousands(predicted),
                           signed_bytes(measured - predicted), first ? with_thousands(rank.graph_pieces) : "",
                           first ? with_thousands(rank.graph_nodes) : ""});
            first = false;
        }
    }
    return table.to_text();
}

std::string collectives_text(const RunValues& values) {
    Table table({{"group", Align::left}, {"op", Align::left}, {"count"}, {"predicted"}, {"payload bytes"}, {"predicted"}, {"difference"}});
    for (const auto& each : values.collectives) {
        table.add_row({each.measured.group, each.measured.op, with_thousands(each.measured.count), with_thousands(each.predicted_count),
                       with_thousands(each.measured.payload_bytes), with_thousands(each.predicted_payload_bytes),
                       signed_bytes(each.measured.payload_bytes - each.predicted_payload_bytes)});
    }
    return table.to_text();
}

std::string ops_text(const RunValues& values) {
    std::map<std::string, std::pair<std::int64_t, double>> sums;
    double all = 0;
    for (const auto& rank : values.ranks) {
        for (const auto& op : rank.ops) {
            auto& sum = sums[op.op];
            sum.first += op.count;
            sum.second += op.seconds;
            all += op.seconds;
        }
    }
    std::vector<std::pair<std::string, std::pair<std::int64_t, double>>> ordered(sums.begin(), sums.end());
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
    Table table({{"op", Align::left}, {"count"}, {"seconds"}, {"share"}});
    for (const auto& [name, sum] : ordered) {
        table.add_row({name, with_thousands(sum.first), fmt::format("{:.4f}", sum.second),
                       fmt::format("{:.1f}%", all > 0 ? 100 * sum.second / all : 0.0)});
    }
    return table.to_text();
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> memory_numbers(const MemoryValues& memory) {
    std::vector<std::pair<std::string, std::int64_t>> numbers{
        {"peak_bytes", memory.peak_bytes}, {"framework_bytes", memory.peak_bytes}, {"reserved_bytes", memory.reserved_bytes},
        {"host_bytes", memory.host_bytes}, {"arena_bytes", memory.arena_bytes},    {"fallback_bytes", memory.fallback_bytes}};
    for (std::size_t i = 0; i < kByteCategories.size(); ++i)
        numbers.emplace_back(fmt::format("breakdown.{}", kByteCategories[i]), memory.breakdown[i]);
    for (std::size_t i = 0; i < kByteCategories.size(); ++i)
        numbers.emplace_back(fmt::format("high_water.{}", kByteCategories[i]), memory.high_water[i]);
    return numbers;
}

std::string run_report_json(const RunValues& values) {
    Json steps = Json::array(), ranks = Json::array(), collectives = Json::array();
    for (const auto& step : values.steps) {
        steps.push_back(Json{{"loss", step.loss},
                             {"grad_norm", step.grad_norm},
                             {"seconds", step.seconds},
                             {"learning_rate", step.learning_rate},
                             {"skipped", step.skipped},
                             {"ops_timed", step.ops_timed}});
        if (step.auxiliary_loss) steps.back()["auxiliary_loss"] = *step.auxiliary_loss;
        if (!step.mtp_losses.empty()) steps.back()["mtp_losses"] = step.mtp_losses;
    }
    for (const auto& rank : values.ranks) {
        Json ops = Json::array();
        for (const auto& op : rank.ops) ops.push_back(Json{{"op", op.op}, {"count", op.count}, {"seconds", op.seconds}});
        ranks.push_back(Json{{"rank", rank.rank},
                             {"arena", arena_json(values, rank)},
                             {"graph_pieces", rank.graph_pieces},
                             {"graph_nodes", rank.graph_nodes},
                             {"measured", use_json(rank.measured)},
                             {"predicted", use_json(rank.predicted)},
                             {"difference", use_json(rank.difference)},
                             {"ops", ops}});
    }
    for (const auto& each : values.collectives) {
        collectives.push_back(Json{{"group", each.measured.group},
                                   {"op", each.measured.op},
                                   {"count", each.measured.count},
                                   {"payload_bytes", each.measured.payload_bytes},
                                   {"predicted_count", each.predicted_count},
                                   {"predicted_payload_bytes", each.predicted_payload_bytes}});
    }
    const Json json{{"data", values.data},
                    {"device", values.device},
                    {"memory_mode", values.memory == runtime::MemoryMode::arena ? "arena" : "pool"},
                    {"transport", values.transport},
                    {"losses_mean_something", !values.emulated_partners},
                    {"steps_before", values.steps_before},
                    {"steps_asked", values.steps_asked},
                    {"interrupted", values.interrupted},
                    {"problem", values.problem.empty() ? Json() : Json(values.problem)},
                    {"as_predicted", values.as_predicted},
                    {"steps", steps},
                    {"ranks", ranks},
                    {"collectives", collectives}};
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string run_report_text(const RunValues& values) {
    std::string text = fmt::format("{} rank{} as {} on {}, {}\n\n", values.ranks.size(), values.ranks.size() == 1 ? "" : "s",
                                   values.transport, values.device, values.data);
    if (values.emulated_partners) text += "Losses and gradient norms mean nothing: what other ranks would send stands for no run.\n\n";
    text += steps_text(values);
    text += "\nmemory of each rank, high water (bytes)\n" + memory_text(values);
    if (std::any_of(values.ranks.begin(), values.ranks.end(), [](const RankValues& rank) { return has_graphs(rank); }))
        text += "\ngraphs of each rank: layers captured, their slots, bytes; pieces between collectives, and kernels in all of them\n" +
                graphs_text(values);
    if (!values.collectives.empty()) text += "\ncollectives of all ranks\n" + collectives_text(values);
    const bool has_times = std::any_of(values.ranks.begin(), values.ranks.end(), [](const RankValues& rank) { return !rank.ops.empty(); });
    if (has_times) text += "\ntime of each op, all ranks together, waiting for partners included\n" + ops_text(values);
    text += values.as_predicted ? "\nEvery byte held and sent is as predicted.\n"
                                : "\nWhat was held or sent differs from the prediction: see the differences above.\n";
    return text;
}

std::string run_report_csv(const RunValues& values) {
    Table table({{"kind"}, {"index"}, {"name"}, {"measured"}, {"predicted"}, {"difference"}});
    for (std::size_t i = 0; i < values.steps.size(); ++i) {
        const StepValues& step = values.steps[i];
        const std::string at = std::to_string(values.steps_before + static_cast<std::int64_t>(i) + 1);
        const auto add = [&](const char* name, const std::string& value) { table.add_row({"step", at, name, value}); };
        add("loss", fmt::format("{}", step.loss));
        add("grad_norm", fmt::format("{}", step.grad_norm));
        if (step.auxiliary_loss) add("auxiliary_loss", fmt::format("{}", *step.auxiliary_loss));
        for (std::size_t k = 0; k < step.mtp_losses.size(); ++k)
            add(fmt::format("mtp_loss_{}", k + 1).c_str(), fmt::format("{}", step.mtp_losses[k]));
        add("seconds", fmt::format("{}", step.seconds));
        add("learning_rate", fmt::format("{}", step.learning_rate));
        add("skipped", step.skipped ? "1" : "0");
    }
    for (const auto& rank : values.ranks) {
        const std::string index = std::to_string(rank.rank);
        const auto add = [&](const char* kind, const std::string& name, std::int64_t measured, std::int64_t predicted) {
            table.add_row({kind, index, name, std::to_string(measured), std::to_string(predicted), std::to_string(measured - predicted)});
        };
        const auto measured = memory_numbers(rank.measured.memory), predicted = memory_numbers(rank.predicted.memory);
        for (std::size_t i = 0; i < measured.size(); ++i) add("memory", measured[i].first, measured[i].second, predicted[i].second);
        if (has_graphs(rank)) {
            for (const auto& number : graph_numbers(rank)) add("graphs", number.name, number.measured, number.predicted);
        }
        // The difference contains the collectives of both sides.
        for (const auto& each : rank.difference.collectives) {
            std::int64_t count = 0, bytes = 0;
            for (const auto& own : rank.measured.collectives) {
                if (own.group == each.group && own.op == each.op) {
                    count = own.count;
                    bytes = own.payload_bytes;
                }
            }
            const std::string name = each.group + " " + each.op;
            add("collective", name + " count", count, count - each.count);
            add("collective", name + " payload_bytes", bytes, bytes - each.payload_bytes);
        }
        for (const auto& op : rank.ops) {
            table.add_row({"op", index, op.op + " count", std::to_string(op.count)});
            table.add_row({"op", index, op.op + " seconds", fmt::format("{}", op.seconds)});
        }
    }
    return table.to_csv();
}

}  // namespace mgplan::reports
