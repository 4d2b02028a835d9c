#pragma once
// A made-up search for the tests of what draws it: every figure follows from a point's number.

#include <memory>
#include <vector>

#include "plan/layout/stage_split.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::reports::testing {

/// `count` points, faster ones first, of whole MiB that fit into 80 GiB; three in four are families.
inline std::vector<planner::SearchPoint> made_up_points(std::size_t count) {
    StageSplitRequest request;
    request.layers = 32;
    request.pp = 1;
    const auto split = std::make_shared<const StageSplit>(make_stage_split(request));
    std::vector<planner::SearchPoint> points;
    for (std::size_t i = 0; i < count; ++i) {
        planner::SearchPoint point;
        Layout& layout = point.plan.layout;
        layout.sizes.world = 4096;
        layout.sizes.tp = std::int64_t{1} << (i % 4);
        layout.sizes.pp = std::int64_t{1} << (i / 4 % 5);
        layout.sizes.cp = std::int64_t{1} << (i / 20 % 3);
        layout.micro_batch = std::int64_t{1} << (i / 60 % 5);
        layout.vpp = static_cast<int>(1 + i / 300 % 8);
        layout.recompute = static_cast<Recompute>(i % 3);
        layout.sequence_parallel = layout.sizes.tp > 1;
        layout.split = split;
        simulator::TimePrediction& time = point.plan.prediction.time;
        time.iteration_seconds = 2 + 0.001 * static_cast<double>(i) + 0.37 * static_cast<double>(i * 7919 % 101) / 101;
        time.compute_seconds = 0.7 * time.iteration_seconds;
        time.recompute_seconds = layout.recompute == Recompute::none ? 0 : 0.1 * time.iteration_seconds;
        time.bubble_seconds = 0.12 * time.iteration_seconds;
        time.exposed.tp = 0.05 * time.iteration_seconds;
        time.exposed.dp = 0.08 * time.iteration_seconds;
        time.optimizer_seconds = 0.04 * time.iteration_seconds;
        auto& memory = point.plan.prediction.memory;
        memory.limit_bytes = std::int64_t{80} << 30;
        auto& breakdown = memory.worst.breakdown;
        breakdown.parameters = static_cast<std::int64_t>(2000 + i * 104'729 % 10'007) << 20;
        breakdown.gradients = 2 * breakdown.parameters;
        breakdown.optimizer = breakdown.parameters;
        breakdown.activations = static_cast<std::int64_t>(3000 + i * 31 % 20'011) << 20;
        breakdown.context = std::int64_t{4321} << 20;
        point.plan.rank = i < 10 ? i + 1 : 0;
        point.members = i % 4 == 3 && i > 8 ? 0 : static_cast<std::int64_t>(1 + i % 50);
        point.replayed = i < 24;
        points.push_back(std::move(point));
    }
    return points;
}

inline PlanReport made_up_report() {
    PlanReport report;
    report.workload.model.name = "made-up";
    report.workload.cluster.name = "dgx-h100";
    report.workload.world = 4096;
    report.workload.batch.global_batch = 1024;
    report.workload.batch.sequence = 4096;
    report.workload.memory_limit = std::int64_t{80} << 30;
    report.search.limit_bytes = report.workload.memory_limit;
    report.search.counts.legal = 5000;
    report.search.feasible = 3800;
    report.search.too_large = 1200;
    report.search.counts.rejected["tp_divides_world"] = {30, "tp = 3 does not divide", 0};
    TooLargeLayouts kind;
    kind.term = planner::FillingTerm::activations;
    kind.count = 1200;
    kind.nearest = made_up_points(1).front().plan.layout;
    kind.memory.limit_bytes = report.workload.memory_limit;
    kind.memory.worst.breakdown.activations = std::int64_t{81} << 30;
    report.too_large.push_back(kind);
    return report;
}

}  // namespace mgplan::reports::testing
