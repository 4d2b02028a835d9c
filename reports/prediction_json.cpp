#include "reports/prediction_json.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

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
    return Json{{"iteration_seconds", t.iteration_seconds},
                {"interval_seconds", Json::array({t.interval_low, t.interval_high})},
                {"tokens_per_second_per_gpu", t.tokens_per_second_per_gpu},
                {"model_tflops_per_gpu", t.model_tflops_per_gpu},
                {"mfu", t.mfu},
                {"hfu", t.hfu},
                {"bubble_fraction", t.bubble_fraction()},
                {"exposed_communication_seconds",
                 Json{{"tp", t.exposed.tp}, {"cp", t.exposed.cp}, {"ep", t.exposed.ep}, {"dp", t.exposed.dp}, {"pp", t.exposed.pp}}},
                {"compute_seconds", t.compute_seconds},
                {"recompute_seconds", t.recompute_seconds},
                {"host_seconds", t.host_seconds},
                {"bubble_seconds", t.bubble_seconds},
                {"optimizer_seconds", t.optimizer_seconds},
                {"fixed_seconds", t.fixed_seconds()},
                {"slowest_stage", t.slowest_stage},
                {"memory", std::move(memory)}};
}

}  // namespace mgplan::reports
