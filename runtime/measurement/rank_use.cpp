#include "runtime/measurement/rank_use.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace mgplan::runtime {
namespace {

static_assert(kByteCategories.size() == static_cast<std::size_t>(model::kMemoryCategories));

using Totals = std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>>;

void add(Totals& totals, const std::vector<CollectiveValues>& collectives, std::int64_t sign) {
    for (const auto& each : collectives) {
        auto& total = totals[{each.group, each.op}];
        total.first += sign * each.count;
        total.second += sign * each.payload_bytes;
    }
}

std::vector<CollectiveValues> values_of(const Totals& totals) {
    std::vector<CollectiveValues> values;
    for (const auto& [name, total] : totals) values.push_back({name.first, name.second, total.first, total.second});
    return values;
}

}  // namespace

GraphValues graph_values(const model::GraphTotals& totals) {
    GraphValues values{totals.forward_graphs, totals.backward_graphs, totals.slots, totals.static_input_bytes, totals.boundary_bytes, {}};
    for (const auto& [name, bytes] : totals.boundary) values.boundary.push_back({name, bytes});
    return values;
}

RankUse rank_use(const model::MemoryUse& memory, std::int64_t reserved_bytes, std::int64_t host_bytes,
                 const model::CollectiveCounter& traffic) {
    RankUse use;
    use.memory = {.peak_bytes = memory.peak,
                  .reserved_bytes = reserved_bytes,
                  .breakdown = memory.at_peak,
                  .high_water = memory.high_water,
                  .host_bytes = host_bytes};
    Totals totals;
    for (const auto& [name, total] : traffic.totals())
        totals[{name.first, std::string(to_string(name.second))}] = {total.operations, total.payload_bytes};
    use.collectives = values_of(totals);
    return use;
}

RankUse difference(const RankUse& measured, const RankUse& predicted) {
    RankUse result;
    const MemoryValues& a = measured.memory;
    const MemoryValues& b = predicted.memory;
    result.memory.peak_bytes = a.peak_bytes - b.peak_bytes;
    result.memory.reserved_bytes = a.reserved_bytes - b.reserved_bytes;
    result.memory.host_bytes = a.host_bytes - b.host_bytes;
    result.memory.arena_bytes = a.arena_bytes - b.arena_bytes;
    result.memory.fallback_bytes = a.fallback_bytes - b.fallback_bytes;
    for (std::size_t i = 0; i < kByteCategories.size(); ++i) {
        result.memory.breakdown[i] = a.breakdown[i] - b.breakdown[i];
        result.memory.high_water[i] = a.high_water[i] - b.high_water[i];
    }
    const GraphValues &c = measured.graphs, &d = predicted.graphs;
    result.graphs = {c.forward_graphs - d.forward_graphs,         c.backward_graphs - d.backward_graphs, c.slots - d.slots,
                     c.static_input_bytes - d.static_input_bytes, c.boundary_bytes - d.boundary_bytes,   {}};
    std::map<std::string, std::int64_t> boundary;
    for (const auto& [name, bytes] : c.boundary) boundary[name] += bytes;
    for (const auto& [name, bytes] : d.boundary) boundary[name] -= bytes;
    for (const auto& [name, bytes] : boundary) result.graphs.boundary.push_back({name, bytes});
    Totals totals;
    add(totals, measured.collectives, 1);
    add(totals, predicted.collectives, -1);
    result.collectives = values_of(totals);
    return result;
}

bool is_zero(const RankUse& use) {
    GraphValues counts = use.graphs;
    counts.boundary.clear();
    return use.memory == MemoryValues{} && counts == GraphValues{} &&
           std::all_of(use.graphs.boundary.begin(), use.graphs.boundary.end(), [](const NamedBytes& each) { return each.bytes == 0; }) &&
           std::all_of(use.collectives.begin(), use.collectives.end(),
                       [](const CollectiveValues& each) { return each.count == 0 && each.payload_bytes == 0; });
}

void compare(RunValues& values) {
    Totals measured, predicted;
    values.as_predicted = true;
    for (auto& rank : values.ranks) {
        rank.difference = difference(rank.measured, rank.predicted);
        values.as_predicted = values.as_predicted && is_zero(rank.difference);
        add(measured, rank.measured.collectives, 1);
        add(predicted, rank.predicted.collectives, 1);
        add(measured, rank.predicted.collectives, 0);  // so that each side has an entry for all of the other's
        add(predicted, rank.measured.collectives, 0);
    }
    values.collectives.clear();
    for (const auto& each : values_of(measured)) {
        const auto& other = predicted[{each.group, each.op}];
        values.collectives.push_back({each, other.first, other.second});
    }
}

}  // namespace mgplan::runtime
