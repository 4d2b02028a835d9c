#include "cli/scaling_study.hpp"

#include <algorithm>
#include <ostream>

#include <fmt/core.h>

#include "cli/plan_search.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/batch_sizes.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

/// Passes that the exact timeline may replay for the members of one Pareto set.
constexpr std::int64_t kPassesOfParetoSet = 2'000'000;

std::string nothing_fits_text(const Workload& work, const planner::SearchResult& search) {
    std::string text = fmt::format("no layout fits in {}", human_bytes(work.memory_limit));
    if (!search.nearest.empty())
        text += fmt::format("; the nearest, {}, needs {}", summary(search.nearest.front().layout),
                            human_bytes(search.nearest.front().peak_bytes));
    return text;
}

reports::ScaledPlan best_of(const planner::SearchResult& search, simulator::CostModel& model) {
    const Workload& work = model.workload();
    const Layout& layout = search.best.front().layout;
    return {work.world, work.batch, layout, model.predict_exactly(layout)};
}

/// The set with exact times and replayed allocators, by which others may dominate some of its members, or these exceed the limit.
std::vector<planner::RankedLayout> exact_pareto(const planner::SearchResult& search, simulator::CostModel& model) {
    planner::ParetoSet set;
    set.offer(search.best.front());
    std::int64_t passes = 0;
    for (const planner::RankedLayout& member : search.pareto) {
        const std::int64_t bytes = model.replayed_memory(member.layout).deciding_bytes();
        if (bytes > search.limit_bytes) continue;
        passes += simulator::CostModel::passes(member.layout);
        const bool replayed = passes <= kPassesOfParetoSet;
        set.offer(member.layout, replayed ? model.exact_seconds(member.layout) : member.iteration_seconds, bytes);
    }
    return set.layouts();
}

/// A change to a job: how it is named, and the options that it changes.
struct Change {
    std::string kind, text;
    WorkloadOptions options;
};

std::vector<Change> changes_of(const WorkloadOptions& options, const Workload& work) {
    std::vector<Change> changes;
    // A node that is only partly used is filled first.
    const std::int64_t node = std::max(1, work.cluster.gpus_per_node);
    // A batch that the larger world does not divide keeps dp small, and the change would then seem to bring nothing.
    const std::int64_t larger = (work.world / node + 1) * node;
    const auto batch = planner::suiting_batch(work.batch.global_batch, larger);
    if (larger <= kMostRanks && batch) {
        changes.push_back({"one_more_node", fmt::format("one more node: {}", counted(larger, "GPU")), options});
        WorkloadOptions& changed = changes.back().options;
        changed.world = larger;
        changed.global_batch = batch;
        changed.global_batch_tokens.reset();
        if (*batch != work.batch.global_batch) changes.back().text += fmt::format(", batch {}", with_thousands(*batch));
    }
    if (work.batch.sequence * 2 <= kLongestSequence) {
        changes.push_back({"longer_sequence", fmt::format("sequence {}", with_thousands(work.batch.sequence * 2)), options});
        changes.back().options.sequence = work.batch.sequence * 2;
    }
    if (work.batch.global_batch * 2 <= kMostSequences) {
        changes.push_back({"larger_batch", fmt::format("batch {}", with_thousands(work.batch.global_batch * 2)), options});
        changes.back().options.global_batch = work.batch.global_batch * 2;
        changes.back().options.global_batch_tokens.reset();
    }
    if (work.batch.global_batch % 2 == 0) {
        changes.push_back({"smaller_batch", fmt::format("batch {}", with_thousands(work.batch.global_batch / 2)), options});
        changes.back().options.global_batch = work.batch.global_batch / 2;
        changes.back().options.global_batch_tokens.reset();
    }
    return changes;
}

reports::ScalingChange try_change(const Change& change, const ScalingSources& sources) {
    reports::ScalingChange tried{change.kind, change.text, {}, {}};
    try {
        const ResolvedWorkload resolved = sources.resolve(change.options);
        const planner::SearchResult search = sources.search(resolved.workload, StudiedJob::change);
        if (search.best.empty()) {
            tried.why_not = nothing_fits_text(resolved.workload, search);
        } else {
            simulator::CostModel model(resolved.workload);
            tried.plan = best_of(search, model);
        }
    } catch (const ConfigError& error) {
        tried.why_not = first_reason(error);
    }
    return tried;
}

}  // namespace

ScalingStudy study_scaling(const WorkloadOptions& options, const std::vector<std::int64_t>& worlds, const planner::TrainingGoal& goal,
                           const ScalingSources& sources, Console& console) {
    MGPLAN_ASSERT(!worlds.empty(), "a study has a world");
    ScalingStudy study;
    reports::ScalingReport& report = study.report;
    report.goal = goal;
    std::vector<std::string> problems;
    bool searched = false;  // a world with legal layouts
    for (const std::int64_t world : worlds) {
        WorkloadOptions here = options;
        here.world = world;
        const auto say = [&](const std::string& what) {
            console.err << fmt::format("mgplan: planning {}{}\n", counted(world, "GPU"), what) << std::flush;
        };
        say("");
        ResolvedWorkload resolved = sources.resolve(here);
        const Workload& work = resolved.workload;
        report.model = work.model.name;
        report.cluster = work.cluster.name;
        report.precision = precision_text(work.training);
        reports::ScaledWorld& entry = report.worlds.emplace_back();
        entry.world = world;
        planner::SearchResult search;
        try {
            search = sources.search(work, StudiedJob::world);
        } catch (const ConfigError& error) {
            if (worlds.size() == 1) throw;
            entry.why_not = first_reason(error);
            problems.push_back(fmt::format("{}: {}", counted(world, "GPU"), entry.why_not));
            continue;
        }
        for (const auto& assumption : resolved.assumed) {
            if (std::find(report.assumed.begin(), report.assumed.end(), assumption) == report.assumed.end())
                report.assumed.push_back(assumption);
        }
        if (search.best.empty()) {
            entry.why_not = nothing_fits_text(work, search);
        } else {
            simulator::CostModel model(work);
            entry.best = best_of(search, model);
            entry.pareto = exact_pareto(search, model);
            for (const Change& change : changes_of(here, work)) {
                say(", " + change.text);
                entry.changes.push_back(try_change(change, sources));
            }
        }
        const bool first_plan = entry.best && study.search.best.empty();
        if (!searched || first_plan) {
            study.resolved = std::move(resolved);
            study.search = std::move(search);
        }
        searched = true;
    }
    if (!searched) throw ConfigError(std::move(problems));
    return study;
}

}  // namespace mgplan::cli
