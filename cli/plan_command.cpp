#include <algorithm>
#include <chrono>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/compared_layout.hpp"
#include "cli/options.hpp"
#include "cli/plan_details.hpp"
#include "cli/plan_file.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_search.hpp"
#include "cli/scaling_study.hpp"
#include "cli/schedule_option.hpp"
#include "cli/stage_memories.hpp"
#include "cli/workload_options.hpp"
#include "plan/plan.hpp"
#include "plan/text/text.hpp"
#include "planner/numeric_changes.hpp"
#include "planner/ranking.hpp"
#include "reports/plan_report.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

void write_answer(const Options& options, const PlanOptions& values, bool several_worlds, const reports::PlanReport& report,
                  simulator::CostModel& model, Console& console) {
    switch (options.format()) {
        case Format::json:
            options.write(console, reports::plan_report_json(report));
            break;
        case Format::csv:
            options.write(console, report.scaling ? reports::scaling_csv(*report.scaling) : reports::plan_report_csv(report));
            break;
        case Format::table: {
            if (values.markdown) {
                options.write(console, reports::plan_report_markdown(report));
                break;
            }
            // The plans of several worlds themselves stay in JSON.
            std::string text = several_worlds ? "" : reports::plan_report_text(report);
            if (report.explained) {
                text += stage_memories_text(stage_memories(model, report.workload, report.explained->layout, model::DeviceKind::cuda),
                                            report.workload.memory_limit);
            }
            if (report.scaling) text += (text.empty() ? "" : "\n") + reports::scaling_text(*report.scaling);
            options.write(console, text);
            break;
        }
    }
}

/// Refuses ranks of --pick and --explain that no layout has.
void refuse_ranks_beyond(const PlanOptions& values, const planner::SearchResult& search) {
    for (const auto& [name, k] : {std::pair("pick", values.pick), std::pair("explain", values.explain)}) {
        if (k && !search.best.empty() && std::cmp_greater(*k, search.best.size()))
            throw ConfigError(fmt::format("--{} = {}, but only {} layouts fit; use 1 to {}", name, *k, search.feasible, search.feasible));
    }
}

/// --save-plan: the recommended, or the picked one.
void save_picked(const PlanOptions& values, const ResolvedWorkload& resolved, reports::PlanReport& report, const Console& console) {
    const auto& best = report.search.best;
    if (best.empty()) {
        console.err << fmt::format("mgplan: nothing fits, so --save-plan {} is not written\n", *values.save_plan);
        return;
    }
    report.saved_as = *values.save_plan;
    const auto recommended = std::ranges::find(report.plans, true, &planner::PlannedLayout::recommended);
    const Layout& saved = values.pick ? best[static_cast<std::size_t>(*values.pick) - 1].layout : recommended->layout;
    save_plan(*values.save_plan, plan_of(resolved.workload, saved, resolved.batches));
}

/// One call of `plan`. Its members hold the results of its steps, in the order of the steps.
class PlanRun {
public:
    explicit PlanRun(Console& console)
        : console_(console),
          options_("[plan] --world N --model CFG [options]",
                   "Enumerates every layout of the model on N GPUs, predicts memory and time of each, and ranks those that fit.") {
        declare_workload_options(options_, job_, false, GpuOptions::several_worlds);
        declare_plan_options(options_, values_);
        options_.use_texts(console);
    }

    /// Returns the exit code. Throws ConfigError for wrong options, and if no layout is legal.
    int run(const std::vector<std::string>& args) {
        if (!options_.parse(args, console_.out)) return kDone;
        settle_job();
        search_.settle_space(console_);
        settle_ranking();
        search();
        return answer();
    }

private:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] bool studies() const { return job_.worlds.size() > 1 || values_.tokens; }
    [[nodiscard]] bool draws() const { return values_.html || console_.page; }
    /// The page for a browser has none of the proposals below the table.
    [[nodiscard]] bool prints_table() const { return options_.format() == Format::table && !console_.page; }

    void settle_job();
    void settle_ranking();
    void search();
    void study();
    int answer();

    Clock::time_point begin_ = Clock::now();
    Console& console_;
    Options options_;
    WorkloadOptions job_;
    PlanOptions values_;
    PlanSearch search_{options_, job_, values_, console_};
    reports::PlanReport report_;
};

/// Reads the options into the job of the first world. Throws ConfigError with all problems.
void PlanRun::settle_job() {
    Problems problems;
    read_search_options(job_, values_, problems);
    check_answer(values_, job_.worlds, options_.format(), problems);
    if (const auto divided = split_schedules_in(values_.schedules); !divided.empty() && studies())
        problems.add("--schedule {} is tried for the plans of one world, not of a study of {}; drop one of them",
                     to_string(divided.front()), job_.worlds.size() > 1 ? "several (--world)" : "how a run scales (--tokens)");
    if (!job_.worlds.empty()) job_.world = job_.worlds.front();
    try {
        search_.settle_job();
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    problems.throw_if_any();
}

void PlanRun::settle_ranking() {
    planner::RankingOptions& ranking = search_.ranking();
    if (values_.compare) ranking.compared = read_compared_layout(*values_.compare, search_.resolved().workload, values_.space, console_);
    search_.settle_ranking(options_.format() == Format::table);
    ranking.pareto = ranking.families = draws();
    ranking.host_offload = prints_table() && !studies();
}

/// Searches one world, or several.
void PlanRun::search() {
    if (studies())
        study();
    else
        report_ = search_.search();
    report_.detail = values_.wide ? reports::Detail::wide : reports::Detail::first_look;
    report_.all_assumed = values_.assumed;
}

/// Searches several worlds, or one with changes of the job.
void PlanRun::study() {
    const planner::RankingOptions& ranking = search_.ranking();
    const auto search = [&](const Workload& workload, StudiedJob job) {
        planner::RankingOptions order_alone = ranking;
        order_alone.predictions = false;
        order_alone.recipe.reset();
        order_alone.one_per_family = true;
        if (job == StudiedJob::world) {
            order_alone.ranks = std::max(ranking.ranks, ranking.plans);
            order_alone.plans = std::max(ranking.plans, planner::kConsideredFamilies);
            order_alone.pareto = true;
        } else {
            order_alone.ranks = order_alone.plans = 1;
            order_alone.pareto = order_alone.families = false;
        }
        order_alone.headroom_bytes = search_.headroom(workload);
        return planner::rank_layouts(workload, values_.space, order_alone).search;
    };
    const auto job_of = [this](const WorkloadOptions& job) { return search_.resolve(job); };
    const planner::TrainingGoal goal = training_goal(values_.tokens, values_.gpu_hour_price);
    ScalingStudy studied = study_scaling(job_, job_.worlds, goal, {job_of, search}, console_);
    search_.clear_progress();
    report_.scaling = std::move(studied.report);
    report_.search = std::move(studied.search);
    search_.replace_job(std::move(studied.resolved));
    report_.plans = planner::plans_of(search_.resolved().workload, report_.search, ranking.plans, ranking.one_per_family);
    search_.describe(report_);
}

/// Explains, compares, saves and prints. Returns the exit code.
int PlanRun::answer() {
    const auto& best = report_.search.best;
    refuse_ranks_beyond(values_, report_.search);
    simulator::CostModel model(report_.workload);
    if (values_.explain && !best.empty()) explain(report_, model, static_cast<std::size_t>(*values_.explain - 1));
    if (search_.ranking().compared && !best.empty())
        cli::compare(report_, model, *search_.ranking().compared, *values_.compare, search_.compared_rank());
    if (search_.ranking().compared && best.empty())
        console_.err << "mgplan: nothing fits, so there is no plan that --compare could compare the layout with\n";
    add_too_large(report_, model);
    report_.search.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (values_.save_plan) save_picked(values_, search_.resolved(), report_, console_);
    if (draws()) {
        std::string page = search_page_of(report_, model, search_.ranking().threads);
        if (values_.html) write_search_page(*values_.html, page);
        if (console_.page) console_.page(std::move(page));
    }
    if (prints_table() && !report_.plans.empty() && !report_.scaling)
        report_.changes =
            planner::numeric_changes(search_.resolved().workload, report_.plans.front().layout, report_.plans.front().prediction);
    for (const auto& plan : report_.plans) hand_over_plan(console_, search_.resolved().workload, plan.layout, search_.resolved().batches);
    write_answer(options_, values_, job_.worlds.size() > 1, report_, model, console_);
    return report_.plans.empty() ? kNothingFits : kDone;
}

}  // namespace

int run_plan(const std::vector<std::string>& args, Console& console) {
    return PlanRun(console).run(args);
}

}  // namespace mgplan::cli
