#include "cli/plan_space.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/schedule_option.hpp"
#include "cli/state_options.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/text/text.hpp"
#include "planner/search_axes.hpp"
#include "planner/switch_rules.hpp"

namespace mgplan::cli {
namespace {

/// Axes that an order leaves out have one rank each (plan/layout/rank_groups.hpp), which its reader may not expect.
void note_short_orders(const planner::SearchSpace& space, bool has_experts, const Console& console) {
    constexpr std::array<std::pair<Axis, std::string_view>, 5> kAxes{
        {{Axis::tp, "tp"}, {Axis::cp, "cp"}, {Axis::ep, "ep"}, {Axis::dp, "dp"}, {Axis::pp, "pp"}}};
    for (const AxisOrder& order : space.orders) {
        std::vector<std::string_view> left_out;
        for (const auto& [axis, name] : kAxes) {
            const auto end = order.axes().begin() + static_cast<std::ptrdiff_t>(order.named());
            if (std::find(order.axes().begin(), end, axis) == end && (axis != Axis::ep || has_experts)) left_out.push_back(name);
        }
        if (!left_out.empty())
            console.err << fmt::format("mgplan: --order {} leaves {} out: layouts with more than one rank along {} are not searched\n",
                                       order.text(), fmt::join(left_out, ", "), left_out.size() == 1 ? "it" : "them");
    }
}

/// Returns the problems of each dispatcher that is searched; none if one of them has no problem. `given`: by --dispatcher.
std::vector<std::string> against_all_dispatchers(bool given, const planner::SearchSpace& space, const Workload& workload) {
    std::vector<std::string> messages;
    if (!workload.model.moe) return messages;
    const auto against = [&](TokenDispatcher dispatcher) {
        return planner::dispatcher_problems(workload, dispatcher, space.engine, space.cuda_graphs);
    };
    std::vector<std::string> asked;
    for (const auto& switches : space.switches) {
        const TokenDispatcher dispatcher = switches && switches->dispatcher ? *switches->dispatcher : workload.model.moe->dispatcher;
        const std::string word(dispatcher_word(dispatcher));
        if (std::find(asked.begin(), asked.end(), word) != asked.end()) continue;
        asked.push_back(word);
        const std::vector<std::string> problems = against(dispatcher);
        if (problems.empty()) return {};
        for (const std::string& problem : problems) messages.push_back((given ? fmt::format("--dispatcher = {}: ", word) : "") + problem);
    }
    std::vector<std::string> others;
    for (const std::string& word : dispatcher_words()) {
        if (const auto other = parse_dispatcher_word(word); given && other && against(*other).empty()) others.push_back(word);
    }
    if (!others.empty())
        messages.push_back(fmt::format("--dispatcher = {}: with the rest of this job use {}", fmt::join(asked, ","), any_of_text(others)));
    return messages;
}

/// Adds the problems of the shardings of --sharding after the first, each as if it were the only one.
void judge_further_shardings(const WorkloadOptions& job, const ResolvedWorkload& resolved, Problems& problems) {
    if (!job.sharding) return;
    const std::vector<DataShardingChoice> further = further_shardings(*job.sharding);
    if (!further.empty() && resolved.engine != Engine::megatron)
        problems.add("--sharding {} tries several kinds, which is for engine megatron, not for engine {}; give one kind", *job.sharding,
                     to_string(resolved.engine));
    for (const std::string& word : split(*job.sharding, ',')) {
        if (further.empty()) return;
        WorkloadOptions alone = job;
        alone.sharding = word;
        TrainingSpec training = resolved.workload.training;
        Problems of_one;
        apply_state_options(alone, training, of_one);
        refuse_state_that_contradicts(alone, training, of_one);
        if (!of_one.empty() && word != split(*job.sharding, ',').front()) problems.add("{}", of_one.list().front());
    }
}

/// True if lower bounds keep a search of many axes short (RankingOptions::bounded).
bool bounds_hold(const PlanOptions& values, const Workload& workload) {
    return values.objective == "throughput" && split_schedules_in(values.schedules).empty() && workload.training.offload.modules.empty();
}

}  // namespace

void confine(Workload& workload, const planner::SearchSpace& space) {
    workload.confine_tp = space.tp.empty();
    workload.confine_ep = space.ep.empty();
}

void settle_for_model(const Options& options, const ModelSpec& model, planner::SearchSpace& space) {
    if (!options.given("recompute-modules")) space.recompute_modules = usual_recompute_modules(model);
}

void keep_of_command(const Options& options, ResolvedWorkload& resolved, planner::SearchSpace& space) {
    const LayoutRequest& command = *resolved.job.layout;
    warn_of_kept_shards(resolved, std::nullopt, std::nullopt);
    if (!options.given("cuda-graphs")) space.cuda_graphs = command.cuda_graphs;
    if (!options.given("order")) space.orders = {command.order};
    if (command.recompute == Recompute::selective) {
        if (!options.given("recompute-modules")) space.recompute_modules = command.recompute_modules;
        space.mhc_recompute_layers = command.mhc_recompute_layers;
    }
    if (command.recompute != Recompute::full) return;
    if (!options.given("recompute-method")) space.recompute_method = command.recompute_method;
    if (!options.given("recompute-num-layers")) space.recompute_num_layers = command.recompute_num_layers;
}

void add_axes(const Options& options, const PlanOptions& values, const ResolvedWorkload& resolved, const WorkloadOptions& job,
              planner::SearchSpace& space) {
    Problems problems;
    const Workload& workload = resolved.workload;
    planner::SearchAxes axes = values.search                   ? planner::read_search_axes(*values.search, problems)
                               : bounds_hold(values, workload) ? planner::usual_axes()
                                                               : planner::SearchAxes{};
    const bool listed = values.search && *values.search != "wide" && *values.search != "recipe";
    const auto pins = [&](planner::SearchAxis axis, std::string_view option, bool given) {
        if (!given) return;
        if (listed && axes.contains(axis))
            problems.add("--search {} and --{} both say what is searched; drop one of them", planner::to_string(axis), option);
        axes.pin(axis);
    };
    const auto names = [&](const std::vector<std::string>& words, std::string_view word) {
        return std::find(words.begin(), words.end(), word) != words.end();
    };
    using Axis = planner::SearchAxis;
    pins(Axis::stages, "pipeline-layout", options.given("pipeline-layout"));
    pins(Axis::sharding, "sharding", options.given("sharding"));
    pins(Axis::sharding, "no-distributed-optimizer", options.given("no-distributed-optimizer"));
    pins(Axis::vpp, "vpp", options.given("vpp"));
    pins(Axis::vpp, "pipeline-layout", options.given("pipeline-layout"));
    pins(Axis::dispatcher, "dispatcher", options.given("dispatcher"));
    pins(Axis::recompute, "recompute-modules", options.given("recompute-modules"));
    pins(Axis::block, "recompute-method", options.given("recompute-method"));
    pins(Axis::block, "recompute-num-layers", options.given("recompute-num-layers"));
    pins(Axis::tp_overlap, "overlap tp", names(job.overlap, "tp") || names(job.no_overlap, "tp"));
    pins(Axis::moe_overlap, "overlap moe", names(job.overlap, "moe") || names(job.no_overlap, "moe"));
    pins(Axis::optimizer, "grad-dtype", options.given("grad-dtype"));
    pins(Axis::cuda_graphs, "cuda-graphs", options.given("cuda-graphs"));
    for (const Axis axis : {Axis::sharding, Axis::dispatcher, Axis::tp_overlap, Axis::moe_overlap, Axis::optimizer}) {
        if (listed && axes.contains(axis) && resolved.engine != Engine::megatron)
            problems.add("--search {} is a choice of Megatron-LM, not of engine {}; add --engine megatron or leave it out",
                         planner::to_string(axis), to_string(resolved.engine));
    }
    for (const Axis axis : {Axis::dispatcher, Axis::moe_overlap}) {
        if (listed && axes.contains(axis) && !workload.model.moe)
            problems.add("--search {} needs experts, and {} has none; leave it out", planner::to_string(axis), workload.model.name);
    }
    std::vector<TokenDispatcher> dispatchers;
    if (values.dispatcher) {
        if (!workload.model.moe) problems.add("--dispatcher needs experts, and {} has none; leave it out", workload.model.name);
        if (resolved.engine != Engine::megatron)
            problems.add("--dispatcher is a choice of Megatron-LM, not of engine {}; add --engine megatron or leave it out",
                         to_string(resolved.engine));
        const auto words = split(*values.dispatcher, ',');
        if (words.empty()) problems.add("--dispatcher is empty; use {}", any_of_text(dispatcher_words()));
        for (const std::string& word : words) {
            const auto dispatcher = parse_dispatcher_word(word);
            if (!dispatcher) {
                problems.add("--dispatcher = '{}' is not known; use {}", word.substr(0, 60), any_of_text(dispatcher_words()));
                break;
            }
            dispatchers.push_back(*dispatcher);
        }
    }
    judge_further_shardings(job, resolved, problems);
    problems.throw_if_any();
    const auto& command = resolved.job.layout;
    if (command && command->recompute == Recompute::selective) axes.own_modules = space.recompute_modules;
    planner::widen(space, axes, workload);
    if (job.sharding) space.shardings = further_shardings(*job.sharding);
    if (!dispatchers.empty()) planner::choose_dispatchers(space, dispatchers, workload);
}

void check_graphs_and_dispatchers(const PlanOptions& values, const planner::SearchSpace& space, const Workload& workload) {
    Problems problems;
    if (!space.cuda_graphs.empty()) check_scopes_of_model(space.cuda_graphs, workload.model, problems);
    for (const std::string& message : against_all_dispatchers(values.dispatcher.has_value(), space, workload)) problems.add("{}", message);
    problems.throw_if_any();
}

void check_pipeline_layout(const std::string& text, const ModelSpec& model) {
    StageSplitRequest request;
    request.layers = model.layers;
    request.mtp_layers = model.mtp_layers;
    request.pp = static_cast<int>(parse_pipeline_layout(text).size());
    request.pipeline_layout = text;
    try {
        (void)make_stage_split(request);
    } catch (const ConfigError& error) {
        Problems problems;
        problems.absorb(error, "--pipeline-layout: ");
        problems.throw_if_any();
    }
}

std::vector<std::string> without_what_is_searched(std::vector<std::string> assumed, const Workload& workload,
                                                  const planner::SearchSpace& space) {
    if (!space.more_cuda_graphs.empty()) std::erase(assumed, kNoCudaGraphs);
    if (!space.shardings.empty()) std::erase(assumed, kDistributedOptimizer);
    const bool gradients =
        std::any_of(space.switches.begin(), space.switches.end(), [](const auto& one) { return one && one->bf16_gradients; });
    if (gradients) std::replace(assumed.begin(), assumed.end(), assumed_gradients(workload.training), std::string("bf16"));
    return assumed;
}

void note_idle_options(const Options& options, const WorkloadOptions& workload, const PlanOptions& values, const ModelSpec& model,
                       Console& console) {
    note_idle_workload_options(options, workload, model, console);
    const planner::SearchSpace& space = values.space;
    const auto only_one = [](const std::vector<std::int64_t>& sizes) { return sizes == std::vector<std::int64_t>{1}; };
    const auto recomputes = [&](Recompute kind) {
        return std::find(space.recompute.begin(), space.recompute.end(), kind) != space.recompute.end();
    };
    const std::string no_experts = fmt::format("{} has no experts", model.name);
    note_short_orders(space, model.moe.has_value(), console);
    options.note_idle(console, "ep", !model.moe && !only_one(space.ep), no_experts);
    options.note_idle(console, "etp", !model.moe && !only_one(space.etp), no_experts);
    options.note_idle(console, "recompute-modules", !recomputes(Recompute::selective), "--recompute leaves selective out");
    options.note_idle(console, "recompute-method", !recomputes(Recompute::full), "--recompute leaves full out");
    options.note_idle(console, "recompute-num-layers", !recomputes(Recompute::full), "--recompute leaves full out");
    options.note_idle(console, "sequence-parallel", only_one(space.tp) && values.sequence_parallel == "on", "tp is 1");
    options.note_idle(console, "cp-comm-type", only_one(space.cp), "cp is 1");
    options.note_idle(console, "group-size", only_one(space.vpp) || only_one(space.pp), "vpp is 1");
    options.note_idle(console, "balance-stages", only_one(space.pp), "pp is 1");
    options.note_idle(console, "compare", options.format() == Format::csv, "CSV holds the plans alone");
    options.note_idle(console, "explain", options.format() == Format::csv && values.explain <= values.top.value_or(kTopOfAList),
                      "CSV holds the terms of each plan");
}

}  // namespace mgplan::cli
