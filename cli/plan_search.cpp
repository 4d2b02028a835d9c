#include "cli/plan_search.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/headroom.hpp"
#include "cli/plan_space.hpp"
#include "cli/recipe_of_job.hpp"
#include "cli/schedule_option.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "planner/least_world.hpp"
#include "simulator/cluster_parameters.hpp"

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

}  // namespace

void read_search_options(const WorkloadOptions& job, PlanOptions& values, Problems& problems) {
    if (values.headroom && job.max_memory)
        problems.add("--headroom = {} narrows the memory of a GPU, and --max-memory gives what a rank may use exactly; drop one of them",
                     *values.headroom);
    finish_space(values, problems);
    const auto divided = split_schedules_in(values.schedules);
    if (!divided.empty() && values.balance_stages)
        problems.add("--balance-stages balances for the schedules of Megatron-LM, not for {}; drop one of them",
                     to_string(divided.front()));
}

std::string first_reason(const ConfigError& error) {
    const auto& problems = error.problems();
    const auto found = std::find_if(problems.begin(), problems.end(), [](const std::string& text) { return !text.ends_with(':'); });
    const std::string& reason = found == problems.end() ? problems.front() : *found;
    return reason.substr(0, reason.find('\n'));
}

PlanSearch::PlanSearch(const Options& options, const WorkloadOptions& job, PlanOptions& values, Console& console)
    : options_(options), job_(job), values_(values), console_(console) {}

/// Given or assumed; nothing if the memory that a rank may use is given exactly.
std::optional<std::string> PlanSearch::headroom_text() const {
    if (values_.headroom || job_.max_memory) return values_.headroom;
    return kDefaultHeadroom;
}

std::int64_t PlanSearch::headroom(const Workload& workload) const {
    const auto text = headroom_text();
    return text ? headroom_bytes(*text, workload) : 0;
}

ResolvedWorkload PlanSearch::resolve(const WorkloadOptions& job) const {
    ResolvedWorkload resolved = resolve_workload(options_, job);
    (void)headroom(resolved.workload);  // refused before anything is searched
    if (const auto text = headroom_text(); text && !values_.headroom) resolved.assumed.push_back(fmt::format("headroom of {}", *text));
    confine(resolved.workload, values_.space);
    if (resolved.job.layout) resolved.job.flags = formats::without_layout_flags(resolved.job.flags);
    return resolved;
}

void PlanSearch::settle_job() {
    resolved_ = resolve(job_);
}

void PlanSearch::settle_space(Console& notes) {
    settle_for_model(options_, resolved_.workload.model, values_.space);
    if (resolved_.job.layout) keep_of_command(options_, resolved_, values_.space);
    const auto divided = split_schedules_in(values_.schedules);
    if (!divided.empty()) imply_engine(divided.front(), options_, resolved_, notes);
    values_.space.engine = resolved_.engine;
    if (values_.space.pipeline_layout) check_pipeline_layout(*values_.space.pipeline_layout, resolved_.workload.model);
    add_axes(options_, values_, resolved_, job_, values_.space);
    check_graphs_and_dispatchers(values_, values_.space, resolved_.workload);
    for (const auto& warning : resolved_.warnings) notes.err << "mgplan: " << warning << "\n";
    note_searched(resolved_.job.flags, notes);
    note_idle_options(options_, job_, values_, resolved_.workload.model, notes);
}

void PlanSearch::settle_ranking(bool table) {
    const std::int64_t top = values_.top.value_or(table ? kTopOfATable : kTopOfAList);
    ranking_.one_per_family = table && !values_.all;
    // More than --top where a later plan is to be explained, since the list is what explains its number.
    ranking_.plans = static_cast<std::size_t>(ranking_.one_per_family ? top : std::max(top, values_.explain.value_or(0)));
    // The explained plan is compared with the next one.
    ranking_.ranks = static_cast<std::size_t>(std::max(values_.pick.value_or(0), values_.explain.value_or(0) + 1));
    ranking_.bounded = !values_.exhaustive;
    ranking_.objective = values_.objective == "memory" ? planner::Objective::memory : planner::Objective::throughput;
    ranking_.balance_stages = values_.balance_stages;
    ranking_.schedules = split_schedules_in(values_.schedules);
    ranking_.only_schedules = std::find(values_.schedules.begin(), values_.schedules.end(), "auto") == values_.schedules.end();
    ranking_.threads = static_cast<int>(values_.threads);
    if (resolved_.engine == Engine::megatron && ranking_.objective == planner::Objective::throughput) {
        if (const auto found = recipe_of(resolved_.workload)) {
            ranking_.recipe = found->sizes;
            recipe_ = found->recipe->name;
        }
    }
    const auto show = [this](std::string_view done, std::size_t so_far, std::size_t total, std::string_view of) {
        if (console_.waiting) console_.waiting();
        progress_.show(fmt::format("mgplan: {} {} of {} {}", done, so_far, total, of));
    };
    ranking_.progress = [show](std::size_t done, std::size_t total) { show("searched", done, total, "parts"); };
    ranking_.replaying = [show](std::size_t done, std::size_t wanted) { show("replayed", done, wanted, "plans"); };
}

reports::PlanReport PlanSearch::search() {
    ranking_.headroom_bytes = headroom(resolved_.workload);
    planner::Ranking ranked = planner::rank_layouts(resolved_.workload, values_.space, ranking_);
    progress_.clear();
    reports::PlanReport report;
    report.search = std::move(ranked.search);
    report.plans = std::move(ranked.plans);
    if (values_.balance_stages) report.balanced = std::move(ranked.balanced);
    report.schedules = std::move(ranked.schedules);
    report.offload = std::move(ranked.offload);
    report.schedules_alone = ranking_.only_schedules && !ranking_.schedules.empty();
    report.recipe = recipe_;
    compared_rank_ = ranked.compared;
    describe(report);
    return report;
}

bool PlanSearch::fits() {
    ranking_.headroom_bytes = headroom(resolved_.workload);
    const bool fits = planner::fitting_layout(resolved_.workload, values_.space, ranking_).has_value();
    progress_.clear();
    return fits;
}

std::optional<planner::PlannedLayout> PlanSearch::fast_layout() {
    ranking_.headroom_bytes = headroom(resolved_.workload);
    auto plan = planner::fast_layout(resolved_.workload, values_.space, ranking_);
    progress_.clear();
    return plan;
}

void PlanSearch::describe(reports::PlanReport& report) const {
    report.workload = resolved_.workload;
    report.batch_source = resolved_.batch_source;
    report.graphs_searched = !values_.space.more_cuda_graphs.empty();
    report.assumed = without_what_is_searched(resolved_.assumed, resolved_.workload, values_.space);
    const bool has_graphs = !values_.space.cuda_graphs.empty() || !values_.space.more_cuda_graphs.empty();
    const auto of_graphs = simulator::assumed_graph_node_bytes(resolved_.workload.cluster);
    if (has_graphs && of_graphs) report.assumed.push_back(*of_graphs);
    if (resolved_.job.layout) report.flags = resolved_.job.flags;
    report.orders = values_.space.orders.size();
}

}  // namespace mgplan::cli
