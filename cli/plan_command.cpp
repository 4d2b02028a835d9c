#include <algorithm>
#include <chrono>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/compared_layout.hpp"
#include "cli/headroom.hpp"
#include "cli/options.hpp"
#include "cli/plan_details.hpp"
#include "cli/plan_file.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_space.hpp"
#include "cli/progress_line.hpp"
#include "cli/recipe_of_job.hpp"
#include "cli/scaling_study.hpp"
#include "cli/schedule_option.hpp"
#include "cli/stage_memories.hpp"
#include "cli/workload_options.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "plan/plan.hpp"
#include "plan/text/text.hpp"
#include "planner/numeric_changes.hpp"
#include "planner/ranking.hpp"
#include "planner/search_axes.hpp"
#include "reports/plan_report.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

/// Prints once the choices of a Megatron-LM command that the search makes instead.
void note_searched(const formats::FlagAccount& flags, Console& console) {
    if (flags.searched.empty()) return;
    console.err << fmt::format(
        "mgplan: the search chooses, whatever the command says, {}; pin what is to stay, as with --tp, or judge the command with mgplan "
        "check\n",
        fmt::join(flags.searched, " "));
}

/// Sets the number of plans, their order, and the schedules to try.
void choose_what_to_rank(const Options& options, const PlanOptions& values, const std::vector<SplitSchedule>& divided,
                         planner::RankingOptions& ranking) {
    const bool table = options.format() == Format::table;
    const std::int64_t top = values.top.value_or(table ? kTopOfATable : kTopOfAList);
    ranking.one_per_family = table && !values.all;
    // More than --top where a later plan is to be explained, since the list is what explains its number.
    ranking.plans = static_cast<std::size_t>(ranking.one_per_family ? top : std::max(top, values.explain.value_or(0)));
    // The explained plan is compared with the next one.
    ranking.ranks = static_cast<std::size_t>(std::max(values.pick.value_or(0), values.explain.value_or(0) + 1));
    ranking.bounded = !values.exhaustive;
    ranking.objective = values.objective == "memory" ? planner::Objective::memory : planner::Objective::throughput;
    ranking.balance_stages = values.balance_stages;
    ranking.schedules = divided;
    ranking.only_schedules = std::find(values.schedules.begin(), values.schedules.end(), "auto") == values.schedules.end();
    ranking.threads = static_cast<int>(values.threads);
}

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
        declare_workload_options(options_, job_, false, true);
        declare_plan_options(options_, values_);
        options_.use_texts(console);
    }

    /// Returns the exit code. Throws ConfigError for wrong options, and if no layout is legal.
    int run(const std::vector<std::string>& args) {
        if (!options_.parse(args, console_.out)) return kDone;
        settle_job();
        settle_space();
        settle_ranking();
        search();
        describe();
        return answer();
    }

private:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] bool studies() const { return job_.worlds.size() > 1 || values_.tokens; }
    [[nodiscard]] bool draws() const { return values_.html || console_.page; }

    ResolvedWorkload resolve(const WorkloadOptions& job);
    void settle_job();
    void settle_space();
    void settle_ranking();
    void search();
    void study();
    void describe();
    int answer();

    Clock::time_point begin_ = Clock::now();
    Console& console_;
    Options options_;
    WorkloadOptions job_;
    PlanOptions values_;
    std::vector<SplitSchedule> divided_;   ///< of --schedule, those with divided backward passes
    std::optional<std::string> headroom_;  ///< given or assumed
    ResolvedWorkload resolved_;            ///< of the first world, then of the one that is shown
    planner::RankingOptions ranking_;
    ProgressLine progress_{console_};
    planner::ComparedRank compared_rank_;
    reports::PlanReport report_;
};

/// The job of these options, in a study one of several; the space is settled by the first.
ResolvedWorkload PlanRun::resolve(const WorkloadOptions& job) {
    ResolvedWorkload resolved = resolve_workload(options_, job);
    if (headroom_) (void)headroom_bytes(*headroom_, resolved.workload);  // refused before anything is searched
    if (headroom_ && !values_.headroom) resolved.assumed.push_back(fmt::format("headroom of {}", *headroom_));
    confine(resolved.workload, values_.space);
    if (resolved.job.layout) resolved.job.flags = formats::without_layout_flags(resolved.job.flags);
    return resolved;
}

/// Reads the options into the job of the first world. Throws ConfigError with all problems.
void PlanRun::settle_job() {
    Problems problems;
    if (values_.headroom && job_.max_memory)
        problems.add("--headroom = {} narrows the memory of a GPU, and --max-memory gives what a rank may use exactly; drop one of them",
                     *values_.headroom);
    finish_space(values_, problems);
    check_answer(values_, job_.worlds, options_.format(), problems);
    if (!job_.max_memory) headroom_ = values_.headroom ? *values_.headroom : std::string(kDefaultHeadroom);
    divided_ = split_schedules_in(values_.schedules);
    if (!divided_.empty() && values_.balance_stages)
        problems.add("--balance-stages balances for the schedules of Megatron-LM, not for {}; drop one of them",
                     to_string(divided_.front()));
    if (!divided_.empty() && studies())
        problems.add("--schedule {} is tried for the plans of one world, not of a study of {}; drop one of them",
                     to_string(divided_.front()), job_.worlds.size() > 1 ? "several (--world)" : "how a run scales (--tokens)");
    if (!job_.worlds.empty()) job_.world = job_.worlds.front();
    try {
        resolved_ = resolve(job_);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    problems.throw_if_any();
    settle_for_model(options_, resolved_.workload.model, values_.space);
    if (resolved_.job.layout) keep_of_command(options_, resolved_, values_.space);
    if (!divided_.empty()) imply_engine(divided_.front(), options_, resolved_, console_);
}

/// Completes the search space, and prints options that have no effect in it.
void PlanRun::settle_space() {
    values_.space.engine = resolved_.engine;
    if (values_.space.pipeline_layout) check_pipeline_layout(*values_.space.pipeline_layout, resolved_.workload.model);
    add_axes(options_, values_, resolved_, job_, values_.space);
    check_graphs_and_dispatchers(values_, values_.space, resolved_.workload);
    for (const auto& warning : resolved_.warnings) console_.err << "mgplan: " << warning << "\n";
    note_searched(resolved_.job.flags, console_);
    note_idle_options(options_, job_, values_, resolved_.workload.model, console_);
}

void PlanRun::settle_ranking() {
    if (values_.compare) ranking_.compared = read_compared_layout(*values_.compare, resolved_.workload, values_.space, console_);
    choose_what_to_rank(options_, values_, divided_, ranking_);
    if (resolved_.engine == Engine::megatron && ranking_.objective == planner::Objective::throughput && !studies()) {
        if (const auto found = recipe_of(resolved_.workload)) {
            ranking_.recipe = found->sizes;
            report_.recipe = found->recipe->name;
        }
    }
    ranking_.pareto = ranking_.families = draws();
    ranking_.host_offload = options_.format() == Format::table && !studies();
    const auto show = [this](std::string_view done, std::size_t so_far, std::size_t total, std::string_view of) {
        if (console_.waiting) console_.waiting();
        progress_.show(fmt::format("mgplan: {} {} of {} {}", done, so_far, total, of));
    };
    ranking_.progress = [show](std::size_t done, std::size_t total) { show("searched", done, total, "parts"); };
    ranking_.replaying = [show](std::size_t done, std::size_t wanted) { show("replayed", done, wanted, "plans"); };
}

/// Searches one world.
void PlanRun::search() {
    if (studies()) return study();
    if (headroom_) ranking_.headroom_bytes = headroom_bytes(*headroom_, resolved_.workload);
    planner::Ranking ranked = planner::rank_layouts(resolved_.workload, values_.space, ranking_);
    progress_.clear();
    report_.search = std::move(ranked.search);
    report_.plans = std::move(ranked.plans);
    if (values_.balance_stages) report_.balanced = std::move(ranked.balanced);
    report_.schedules = std::move(ranked.schedules);
    report_.offload = std::move(ranked.offload);
    report_.schedules_alone = ranking_.only_schedules && !ranking_.schedules.empty();
    compared_rank_ = ranked.compared;
}

/// Searches several worlds, or one with changes of the job.
void PlanRun::study() {
    planner::TrainingGoal goal;
    if (values_.tokens) goal.tokens = parse_large_count(*values_.tokens);
    if (values_.gpu_hour_price) goal.gpu_hour_price = parse_real(*values_.gpu_hour_price);
    const auto search = [&](const Workload& workload, bool pareto) {
        planner::RankingOptions order_alone = ranking_;
        order_alone.predictions = false;
        order_alone.ranks = std::max(ranking_.ranks, ranking_.plans);
        order_alone.plans = std::max(ranking_.plans, planner::kConsideredFamilies);
        order_alone.one_per_family = true;
        order_alone.pareto = pareto;
        order_alone.families = order_alone.families && pareto;  // of the world itself, not of what changes would bring
        if (headroom_) order_alone.headroom_bytes = headroom_bytes(*headroom_, workload);
        return planner::rank_layouts(workload, values_.space, order_alone).search;
    };
    const auto job_of = [this](const WorkloadOptions& job) { return resolve(job); };
    ScalingStudy studied = study_scaling(job_, job_.worlds, goal, {job_of, search}, console_);
    progress_.clear();
    report_.scaling = std::move(studied.report);
    report_.search = std::move(studied.search);
    resolved_ = std::move(studied.resolved);
    report_.plans = planner::plans_of(resolved_.workload, report_.search, ranking_.plans, ranking_.one_per_family);
}

/// Fills in the report's fields about the job.
void PlanRun::describe() {
    report_.detail = values_.wide ? reports::Detail::wide : reports::Detail::first_look;
    report_.all_assumed = values_.assumed;
    report_.workload = resolved_.workload;
    report_.batch_source = resolved_.batch_source;
    report_.graphs_searched = !values_.space.more_cuda_graphs.empty();
    report_.assumed = without_what_is_searched(resolved_.assumed, resolved_.workload, values_.space);
    const bool has_graphs = !values_.space.cuda_graphs.empty() || !values_.space.more_cuda_graphs.empty();
    const auto of_graphs = simulator::assumed_graph_node_bytes(resolved_.workload.cluster);
    if (has_graphs && of_graphs) report_.assumed.push_back(*of_graphs);
    if (resolved_.job.layout) report_.flags = resolved_.job.flags;
    report_.orders = values_.space.orders.size();
}

/// Explains, compares, saves and prints. Returns the exit code.
int PlanRun::answer() {
    const auto& best = report_.search.best;
    refuse_ranks_beyond(values_, report_.search);
    simulator::CostModel model(report_.workload);
    if (values_.explain && !best.empty()) explain(report_, model, static_cast<std::size_t>(*values_.explain - 1));
    if (ranking_.compared && !best.empty()) cli::compare(report_, model, *ranking_.compared, *values_.compare, compared_rank_);
    if (ranking_.compared && best.empty())
        console_.err << "mgplan: nothing fits, so there is no plan that --compare could compare the layout with\n";
    add_too_large(report_);
    report_.search.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (values_.save_plan) save_picked(values_, resolved_, report_, console_);
    if (draws()) {
        std::string page = search_page_of(report_, model);
        if (values_.html) write_search_page(*values_.html, page);
        if (console_.page) console_.page(std::move(page));
    }
    if (options_.format() == Format::table && !report_.plans.empty() && !report_.scaling) {
        const planner::PlannedLayout& first = report_.plans.front();
        report_.changes = planner::numeric_changes(resolved_.workload, first.layout, first.prediction);
    }
    for (const auto& plan : report_.plans) hand_over_plan(console_, resolved_.workload, plan.layout, resolved_.batches);
    write_answer(options_, values_, job_.worlds.size() > 1, report_, model, console_);
    return report_.plans.empty() ? kNothingFits : kDone;
}

}  // namespace

int run_plan(const std::vector<std::string>& args, Console& console) {
    return PlanRun(console).run(args);
}

}  // namespace mgplan::cli
