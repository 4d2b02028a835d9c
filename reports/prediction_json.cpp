#include "reports/prediction_json.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "reports/figures.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

Json breakdown_to_json(const simulator::MemoryBreakdown& b) {
    return Json{{"parameters", b.parameters},
                {"gradients", b.gradients},
                {"optimizer", b.optimizer},
                {"activations", b.activations},
                {"graph_static_inputs", b.graph_static_inputs},
                {"graph_boundary", b.graph_boundary},
                {"graph_objects", b.graph_objects},
                {"communication", b.communication},
                {"workspace", b.workspace},
                {"context", b.context},
                {"fragmentation", b.fragmentation}};
}

Json context_terms_to_json(const simulator::ContextTerms& terms) {
    Json nccl = Json::object();
    for (const simulator::CommunicatorTerm& term : terms.nccl) nccl[std::string(term.group)] = term.bytes;
    return Json{{"driver", terms.driver}, {"modules", terms.modules}, {"nccl", nccl}};
}

}  // namespace

Json rank_memory_to_json(const simulator::RankMemory& memory, std::int64_t rank, std::int64_t limit_bytes) {
    // The categories by their JSON names.
    const Json breakdown = breakdown_to_json(memory.breakdown);
    const auto largest = std::max_element(breakdown.begin(), breakdown.end(),
                                          [](const Json& a, const Json& b) { return a.get<std::int64_t>() < b.get<std::int64_t>(); });
    Json json{{"peak_bytes", memory.peak_bytes()},
              {"framework_bytes", memory.framework_bytes},
              {"reserved_bytes", memory.reserved_bytes},
              {"host_bytes", memory.host_bytes},
              {"limit_bytes", limit_bytes},
              {"worst_rank", rank},
              {"free_bytes", std::max<std::int64_t>(0, limit_bytes - memory.deciding_bytes())},
              {"missing_bytes", std::max<std::int64_t>(0, memory.deciding_bytes() - limit_bytes)},
              {"largest_term", largest.key()},
              {"breakdown", breakdown},
              {"high_water", breakdown_to_json(memory.high_water)},
              {"context_terms", context_terms_to_json(memory.context_terms)}};
    if (const auto& routing = memory.routing)
        json["routing"] =
            Json{{"skew", routing->skew}, {"p50_bytes", routing->p50}, {"p99_bytes", routing->p99}, {"worst_bytes", routing->worst}};
    return json;
}

Json reserved_memory_to_json(const simulator::ReservedMemory& memory) {
    return Json{{"first_iteration_bytes", memory.first}, {"reserved_bytes", memory.steady}, {"allocated_bytes", memory.allocated}};
}

Json prediction_to_json(const simulator::Prediction& p) {
    const auto& t = p.time;
    Json memory = rank_memory_to_json(p.memory.worst, p.memory.worst_rank, p.memory.limit_bytes);
    if (p.memory.node_host_bytes > 0) {
        memory["node_host_bytes"] = p.memory.node_host_bytes;
        memory["host_limit_bytes"] = p.memory.host_limit_bytes > 0 ? Json(p.memory.host_limit_bytes) : Json(nullptr);
    }
    Json json{{"iteration_seconds", t.iteration_seconds}, {"interval_seconds", Json::array({t.interval_low, t.interval_high})}};
    for (const Figure& row : rate_figures()) json[std::string(row.name)] = row.value(t);
    for (const Figure& row : exposed_figures()) json["exposed_communication_seconds"][std::string(row.name)] = row.value(t);
    for (const Figure& row : seconds_figures()) json[std::string(row.name)] = row.value(t);
    json["compute_by_module"] = modules_to_json(t);
    json["slowest_stage"] = t.slowest_stage;
    json["memory"] = std::move(memory);
    return json;
}

}  // namespace mgplan::reports
