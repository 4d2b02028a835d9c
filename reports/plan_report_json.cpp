#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/cluster_json.hpp"
#include "plan/json/training_json.hpp"
#include "reports/flag_account.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/model_summary.hpp"
#include "reports/plan_report.hpp"
#include "reports/prediction_json.hpp"
#include "reports/rejections.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

/// Fields of the remedy's layout, with the changed training.
Json remedied_fields(const Workload& workload, const planner::Remedy& remedy) {
    Workload changed = workload;
    changed.training.offload = remedy.offload;
    return layout_fields(changed, remedy.layout);
}

/// A layout that does not fit: the missing bytes, and the largest terms of that rank.
Json miss_to_json(const Workload& workload, const Layout& layout, const simulator::MemoryPrediction& memory) {
    Json json{{"layout", layout_fields(workload, layout)}};
    json["peak_bytes"] = memory.deciding_bytes();
    if (memory.worst.routing) json["even_peak_bytes"] = memory.worst.peak_bytes();
    json["missing_bytes"] = std::max<std::int64_t>(0, memory.deciding_bytes() - memory.limit_bytes);
    if (!memory.host_fits()) {
        json["node_host_bytes"] = memory.node_host_bytes;
        json["host_limit_bytes"] = memory.host_limit_bytes;
    }
    json["rank"] = memory.worst_rank;
    json["stage"] = memory.worst_stage;
    const Json all = rank_memory_to_json(memory.worst, memory.worst_rank, memory.limit_bytes);
    json["largest_term"] = all["largest_term"];
    json["breakdown"] = all["breakdown"];
    return json;
}

}  // namespace

Json plan_to_json(const Workload& workload, const PlannedLayout& plan) {
    return Json{{"rank", plan.rank},
                {"why", words_of(plan.why)},
                {"recommended", plan.recommended},
                {"layout", layout_fields(workload, plan.layout)},
                {"predicted", prediction_to_json(plan.prediction)}};
}

std::string plan_report_json(const PlanReport& report) {
    const auto& s = report.search;
    Json rejected = Json::object(), rejections = Json::array();
    for (const auto& [rule, reason, count, example] : rejected_candidates(report)) {
        rejected[std::string(rule)] = count;
        rejections.push_back(Json{{"rule", rule}, {"reason", reason}, {"candidates", count}, {"example", example}});
    }
    Json kinds = Json::array();
    for (const auto& kind : report.too_large) {
        Json entry{{"rule", kind.rule()}, {"largest_term", nullptr}, {"layouts", kind.count}};
        if (kind.replayed) entry["largest_term"] = "fragmentation";
        if (kind.term) entry["largest_term"] = planner::to_string(*kind.term);
        entry["nearest"] = miss_to_json(report.workload, kind.nearest, kind.memory);
        kinds.push_back(std::move(entry));
    }
    Json json{{"model", model_summary_to_json(report.workload.model)},
              {"assumed_architecture", assumed_architecture_to_json(report.workload.model)},
              {"cluster", cluster_to_json(report.workload.cluster)},
              {"batch", batch_to_json(report.workload.batch)},
              {"batch_source", to_string(report.batch_source)},
              {"training", training_to_json(report.workload.training)},
              {"world", report.workload.world},
              {"assumed", report.assumed},
              {"search", Json{{"candidates", s.counts.candidates()},
                              {"legal", s.counts.legal},
                              {"evaluated", s.evaluated},
                              {"feasible", s.feasible},
                              {"bounded", s.bounded},
                              {"fastest_seconds", s.fastest_seconds ? Json(*s.fastest_seconds) : Json()},
                              {"seconds", s.seconds},
                              {"evaluate_seconds", s.evaluate_seconds},
                              {"threads", s.threads},
                              {"limit_bytes", s.limit_bytes},
                              {"headroom_missed", s.headroom_missed},
                              {"replayed", s.replayed},
                              {"fastest_is_proven", s.fastest_is_proven ? Json(*s.fastest_is_proven) : Json()},
                              {"rejected", rejected},
                              {"rejections", rejections},
                              {"too_large", kinds}}},
              {"plans", Json::array()}};
    if (report.comparison) json["explained"] = comparison_to_json(*report.comparison);
    if (report.compared) json["compared"] = compared_layout_to_json(*report.compared);
    for (const planner::ScheduleGain& gain : report.schedules) {
        json["schedules"].push_back(Json{{"kind", to_string(gain.kind)},
                                         {"tried", gain.tried},
                                         {"fit", gain.fit},
                                         {"seconds", gain.seconds ? Json(*gain.seconds) : Json()},
                                         {"seconds_before", gain.seconds_before ? Json(*gain.seconds_before) : Json()},
                                         {"why_not", gain.why_not.empty() ? Json() : Json(gain.why_not)}});
    }
    if (report.balanced) json["balanced"] = Json{{"tried", report.balanced->tried}, {"faster", report.balanced->faster}};
    for (const PlannedLayout& plan : report.plans) {
        json["plans"].push_back(plan_to_json(report.workload, plan));
        if (const auto before = report.seconds_before(plan))
            json["plans"].back()["balanced"] =
                Json{{"even_iteration_seconds", *before}, {"gain", *before / plan.prediction.time.iteration_seconds - 1}};
    }
    if (report.plans.empty()) {
        json["nearest"] = Json::array();
        for (const auto& miss : report.nearest) {
            Json remedies = Json::array();
            for (const auto& remedy : miss.remedies)
                remedies.push_back(Json{{"change", remedy.change},
                                        {"peak_bytes", remedy.peak_bytes},
                                        {"world", remedy.layout.sizes.world},
                                        {"global_batch", remedy.global_batch},
                                        {"layout", remedied_fields(report.workload, remedy)}});
            json["nearest"].push_back(miss_to_json(report.workload, miss.layout, miss.memory));
            json["nearest"].back()["would_fit_with"] = remedies;
        }
    }
    if (report.scaling) {
        const planner::TrainingGoal& goal = report.scaling->goal;
        json["tokens"] = goal.tokens ? Json(*goal.tokens) : Json();
        json["gpu_hour_price"] = goal.gpu_hour_price ? Json(*goal.gpu_hour_price) : Json();
        json["scaling"] = scaling_to_json(*report.scaling);
    }
    add_flag_account(json, report.flags ? *report.flags : formats::FlagAccount{});
    return json.dump(1) + "\n";
}

}  // namespace mgplan::reports
