#include "runtime/training_run/gather_values.hpp"

#include <numeric>

#include <nlohmann/json.hpp>

#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::runtime {
namespace {

using Json = nlohmann::json;

Json to_json(const GraphValues& graphs) {
    Json boundary = Json::array();
    for (const auto& each : graphs.boundary) boundary.push_back({each.name, each.bytes});
    return {graphs.forward_graphs, graphs.backward_graphs, graphs.slots, graphs.static_input_bytes, graphs.boundary_bytes, boundary};
}

GraphValues graphs_from_json(const Json& json) {
    GraphValues graphs{json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), {}};
    for (const auto& each : json.at(5)) graphs.boundary.push_back({each.at(0), each.at(1)});
    return graphs;
}

Json to_json(const RankUse& use) {
    Json collectives = Json::array();
    for (const auto& each : use.collectives) collectives.push_back({each.group, each.op, each.count, each.payload_bytes});
    return {{"peak", use.memory.peak_bytes},         {"reserved", use.memory.reserved_bytes}, {"breakdown", use.memory.breakdown},
            {"high_water", use.memory.high_water},   {"host", use.memory.host_bytes},         {"arena", use.memory.arena_bytes},
            {"fallback", use.memory.fallback_bytes}, {"graphs", to_json(use.graphs)},         {"collectives", collectives}};
}

RankUse use_from_json(const Json& json) {
    RankUse use;
    use.memory = {.peak_bytes = json.at("peak"),
                  .reserved_bytes = json.at("reserved"),
                  .breakdown = json.at("breakdown").get<ByteCounts>(),
                  .high_water = json.at("high_water").get<ByteCounts>(),
                  .host_bytes = json.at("host"),
                  .arena_bytes = json.at("arena"),
                  .fallback_bytes = json.at("fallback")};
    use.graphs = graphs_from_json(json.at("graphs"));
    for (const auto& each : json.at("collectives")) use.collectives.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
    return use;
}

std::string text_of(const RankValues& values) {
    Json ops = Json::array();
    for (const auto& each : values.ops) ops.push_back({each.op, each.count, each.seconds});
    return Json{{"rank", values.rank},
                {"arena", {values.arena.planned_bytes, values.arena.lower_bound_bytes}},
                {"measured", to_json(values.measured)},
                {"predicted", to_json(values.predicted)},
                {"graph_pieces", values.graph_pieces},
                {"graph_nodes", values.graph_nodes},
                {"ops", ops}}
        .dump();
}

RankValues values_of(const std::string& text) {
    const Json json = Json::parse(text);
    RankValues values;
    values.rank = json.at("rank");
    values.arena = {json.at("arena").at(0), json.at("arena").at(1)};
    values.measured = use_from_json(json.at("measured"));
    values.predicted = use_from_json(json.at("predicted"));
    values.graph_pieces = json.at("graph_pieces");
    values.graph_nodes = json.at("graph_nodes");
    for (const auto& each : json.at("ops")) values.ops.push_back({each.at(0), each.at(1), each.at(2)});
    return values;
}

std::vector<std::string> gather_texts(const model::World& world, std::string text) {
    if (world.size == 1) return {std::move(text)};
    CpuDevice device;  // not the one that was measured
    std::vector<std::int32_t> everyone(static_cast<std::size_t>(world.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto group = world.join("report", everyone);
    const auto words = [&](std::int64_t count, std::string_view name) {
        return device.zeros({count}, Dtype::int32, model::MemoryCategory::communication, name);
    };
    // Text travels as whole words, with blanks at the end, which JSON allows.
    text.resize((text.size() + 3) / 4 * 4, ' ');
    const auto length = static_cast<std::int32_t>(text.size() / 4);
    const model::Tensor own = words(1, "length of the report"), all = words(world.size, "lengths of the reports");
    device.write(own, &length);
    group->all_gather(own, all);
    std::vector<std::int32_t> lengths(everyone.size());
    device.read(all, lengths.data());
    std::vector<std::string> result;
    if (world.rank != 0) {
        const model::Tensor message = words(length, "report");
        device.write(message, text.data());
        group->send(message, 0);
        return result;
    }
    result.push_back(std::move(text));
    for (int rank = 1; rank < world.size; ++rank) {
        const model::Tensor message = words(lengths[static_cast<std::size_t>(rank)], "report");
        group->receive(message, rank);
        std::string received(static_cast<std::size_t>(message.bytes()), ' ');
        device.read(message, received.data());
        result.push_back(std::move(received));
    }
    return result;
}

}  // namespace

GatherTexts gather_over(const model::World& world) {
    return [&world](std::string mine) { return gather_texts(world, std::move(mine)); };
}

std::vector<RankValues> gather_values(const GatherTexts& gather, const RankValues& mine) {
    std::vector<RankValues> result;
    for (const auto& text : gather(text_of(mine))) result.push_back(values_of(text));
    return result;
}

std::vector<Problem> gather_problems(const GatherTexts& gather, const Problem& mine) {
    std::vector<Problem> result;
    for (const auto& text : gather(Json{mine.text, mine.saw_it}.dump())) {
        const Json json = Json::parse(text);
        result.push_back({json.at(0), json.at(1)});
    }
    return result;
}

}  // namespace mgplan::runtime
