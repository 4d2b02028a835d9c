#include <algorithm>
#include <array>
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
#include "cli/progress_line.hpp"
#include "cli/scaling_study.hpp"
#include "cli/schedule_option.hpp"
#include "cli/stage_memories.hpp"
#include "cli/workload_options.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/plan.hpp"
#include "plan/text/text.hpp"
#include "planner/ranking.hpp"
#include "planner/search_axes.hpp"
#include "reports/plan_report.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

/// Options of `plan` alone.
struct PlanOptions {
    planner::SearchSpace space;
    std::vector<std::string> recompute{"none", "selective", "full"};
    std::vector<std::string> recompute_modules{"core_attn"};
    std::string recompute_method = "uniform";
    std::string sequence_parallel = "auto";
    std::vector<std::string> cp_comm_types{"p2p", "all_gather", "a2a"};
    std::optional<std::string> order = "tp-cp-ep-dp-pp";
    std::string cuda_graphs = "none";
    std::string objective = "throughput";
    std::optional<std::int64_t> top;
    bool wide = false, all = false, assumed = false, markdown = false;
    std::int64_t threads = 0;
    bool balance_stages = false;
    std::vector<std::string> schedules{"auto"};
    std::optional<std::int64_t> explain;
    std::optional<std::int64_t> pick;
    std::optional<std::string> save_plan, html, compare, headroom, search, dispatcher;
    bool exhaustive = false;
    std::optional<std::string> tokens, gpu_hour_price;
};

/// A count that people write large: a real number with an optional suffix K, M, B (or G) or T, powers of 1000 in any case of
/// letters: "15T", "1.5e12", "300B". Nothing for anything else, for what is not above zero, and beyond 1e18.
std::optional<double> parse_count(std::string_view text) {
    constexpr double kMost = 1e18;
    double factor = 1;
    if (!text.empty()) {
        constexpr std::string_view kLetters = "kmbgt";
        constexpr std::array<double, 5> kFactors{1e3, 1e6, 1e9, 1e9, 1e12};
        const auto letter = kLetters.find(lower_case(text.substr(text.size() - 1)));
        if (letter != std::string_view::npos) {
            factor = kFactors[letter];
            text.remove_suffix(1);
        }
    }
    const auto value = parse_real(text);
    if (!value || *value <= 0 || *value * factor > kMost) return std::nullopt;
    return *value * factor;
}

void check_tokens(const std::string& given, Problems& problems) {
    if (!parse_count(given))
        problems.add("--tokens = '{}' is no count above 0 and up to 1e18; write one, such as 15T, 300B or 1.5e12", given.substr(0, 60));
}

void check_price(const std::string& given, Problems& problems) {
    const auto price = parse_real(given);
    if (!price || *price < 0 || *price > 1e9)
        problems.add("--gpu-hour-price = '{}' is no number from 0 to 1e9; write one, such as 2.5", given.substr(0, 60));
}

/// Plans that can be asked for: as many as there are.
constexpr std::int64_t kMostPlans = std::int64_t{1} << 31;

void declare_plan_options(Options& options, PlanOptions& values) {
    options.group("Restricting the search (one value, or a list separated by commas)");
    constexpr std::int64_t kMost = kMostRanks;
    options.integers("tp", values.space.tp, 1, kMost, "tensor parallel sizes; without it all that divide");
    options.integers("cp", values.space.cp, 1, kMost, "context parallel sizes; without it all that divide");
    options.integers("ep", values.space.ep, 1, kMost, "expert parallel sizes; without it all that divide");
    options.integers("etp", values.space.etp, 1, kMost, "expert tensor parallel sizes; without it all that divide");
    options.integers("pp", values.space.pp, 1, 65536, "pipeline parallel sizes; without it all that divide");
    options.integers("vpp", values.space.vpp, 1, 65536,
                     "model chunks per pipeline rank; without it 1 to 8, and as many more as make chunks of equal layers");
    options.integers("micro-batch", values.space.micro_batch, 1, 65536, "sequences per microbatch; without it powers of two up to 16");
    options.choices("recompute", values.recompute, {"none", "selective", "full"}, "activation recompute");
    options.choices("recompute-modules", values.recompute_modules, recompute_module_names(), "what selective recomputes");
    options.choice("recompute-method", values.recompute_method, {"uniform", "block"}, "method of full recompute");
    options.integer("recompute-num-layers", values.space.recompute_num_layers, 1, 65536,
                    "uniform: layers per checkpoint; block: layers recomputed per chunk");
    options.choice("sequence-parallel", values.sequence_parallel, {"auto", "on", "off"}, "sequence parallelism");
    options.choices("cp-comm-type", values.cp_comm_types, {"p2p", "all_gather", "a2a"},
                    "how context-parallel ranks exchange keys and values");
    options.integer("group-size", values.space.group_size, 1, 1 << 20, "microbatch group of the interleaved schedule; without it pp");
    options.text("pipeline-layout", values.space.pipeline_layout, "STRING",
                 "layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'");
    options.choices("schedule", values.schedules, schedule_choices(),
                    "pipeline schedules: auto, as Megatron-LM runs pp and vpp; the others, which it does not have, are tried for the best "
                    "layouts and the nearest misses and imply --engine mgplan; without auto they alone are ranked");
    options.flag("balance-stages", values.balance_stages,
                 "also try, for the best layouts with a pipeline, the layers per stage that make the slowest stage fastest");
    options.checked("order", values.order, "AXES[,AXES...]", check_axis_orders,
                    "orders of the axes in the rank grid, fastest first; each of several is searched");
    options.text("cuda-graphs", values.cuda_graphs, "none|SCOPE[,SCOPE...]",
                 "what CUDA graphs capture: attn, mlp, moe, moe_router, moe_preprocess, layer, full_iteration");
    options.text("dispatcher", values.dispatcher, "KIND[,KIND...]",
                 "dispatcher of experts' tokens, engine megatron: allgather, alltoall, deepep, hybridep; without it the model's");
    options.text("search", values.search, "wide|recipe|AXIS[,AXIS...]",
                 "also search what recipes switch on: dispatcher, recompute (sets of modules), block (full recompute of some layers), "
                 "tp-overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers); wide: all, "
                 "recipe: the first two and the overlaps; without it none of them");
    options.flag("exhaustive", values.exhaustive, "price every layout, also those that by a lower bound cannot come into the list");
    options.checked("headroom", values.headroom, "SIZE|PCT", check_headroom,
                    "memory of a GPU that plans leave free, such as 4GiB, 5% or 0; where nothing else fits, a plan without it is shown; "
                    "without it 5%, with --max-memory none");
    options.group("Answer");
    options.choice("objective", values.objective, {"throughput", "memory"}, "what to rank by");
    options.integer("top", values.top, 1, kMostPlans, "plans to print; without it 5 in a table and 10 in JSON and CSV");
    options.flag("markdown", values.markdown, "the table as Markdown, for a pull request");
    options.flag(
        "all", values.all,
        "a row for each layout of a table, not for each family (equal tp, cp, ep, etp, pp, recompute, dispatcher, sharding and offload)");
    options.flag("wide", values.wide, "also where the time of a step goes, what fills the fullest GPU, and what was rejected and why");
    options.flag("assumed", values.assumed, "every assumption, not the first three");
    options.integer("explain", values.explain, 1, kMostPlans, "list every term of plan N, and why it stands before plan N+1");
    options.output_file("save-plan", values.save_plan, "write the best plan, or the picked one, to FILE");
    options.integer("pick", values.pick, 1, kMostPlans, "the plan that --save-plan writes; without it 1");
    options.text("compare", values.compare, "LAYOUT|PLAN|ARGS",
                 "put a layout beside the first plan, with its place and the terms that differ: words such as 'tp2 pp4 mbs1', a plan, or "
                 "a file of Megatron-LM arguments; without it none");
    options.output_file(
        "html", values.html,
        "write a page of its own: every family by time and memory, a table to sort and filter, why the first wins, and what "
        "was rejected");
    options.checked("tokens", values.tokens, "COUNT", check_tokens,
                    "tokens to train on, such as 15T: days, and what one more node, a longer sequence or another batch would change; "
                    "without it speed alone");
    options.checked("gpu-hour-price", values.gpu_hour_price, "P", check_price,
                    "price of a GPU for an hour, for the cost of all --tokens; without it no cost");
    options.integer("threads", values.threads, 0, 1024, "threads of the search; 0: all cores");
}

/// Plans without --top: what a first look has room for, and what programs get.
constexpr std::int64_t kTopOfATable = 5, kTopOfAList = 10;

/// Most worlds of one study: each is searched five times.
constexpr std::size_t kMostWorlds = 64;

/// Adds what options of the answer contradict.
void check_answer(const PlanOptions& values, const std::vector<std::int64_t>& worlds, Format format, Problems& problems) {
    if (values.markdown && format != Format::table)
        problems.add("--markdown is a form of the table, which --format leaves out; drop one of the two");
    if (values.markdown && (worlds.size() > 1 || values.tokens || values.explain))
        problems.add("--markdown shows the plans of one world; drop it, or {}", worlds.size() > 1 ? "give one --world"
                                                                                : values.tokens   ? "--tokens"
                                                                                                  : "--explain");
    if (values.gpu_hour_price && !values.tokens)
        problems.add("--gpu-hour-price {} prices a run over --tokens, which is missing; add one, such as --tokens 15T",
                     *values.gpu_hour_price);
    if (worlds.size() > kMostWorlds)
        problems.add("--world names {} worlds, more than {}; ask for fewer at once", worlds.size(), kMostWorlds);
    if (values.balance_stages && (worlds.size() > 1 || values.tokens))
        problems.add("--balance-stages balances the plans of one world, not a study of {}; drop one of them",
                     worlds.size() > 1 ? "several (--world)" : "how a run scales (--tokens)");
    if (values.compare && values.markdown)
        problems.add("--markdown shows the plans of a search, without a layout beside them; drop it, or --compare");
    if (values.compare && values.tokens && worlds.size() < 2)
        problems.add("--compare puts a layout beside the plans of one search, not of a study (--tokens); drop one of them");
    if (worlds.size() < 2) return;
    const auto needs_one = [&](bool given, std::string_view name) {
        if (given) problems.add("--{} is for the plans of one world, but --world names {}; give one", name, worlds.size());
    };
    needs_one(values.explain.has_value(), "explain");
    needs_one(values.pick.has_value(), "pick");
    needs_one(values.save_plan.has_value(), "save-plan");
    needs_one(values.html.has_value(), "html");
    needs_one(values.compare.has_value(), "compare");
}

/// Reads the words into the space; problems are added.
void finish_space(PlanOptions& values, Problems& problems) {
    planner::SearchSpace& space = values.space;
    space.recompute.clear();
    for (const auto& word : values.recompute) space.recompute.push_back(parse_recompute(word).value_or(Recompute::none));
    space.recompute_modules = recompute_module_set(values.recompute_modules);
    space.recompute_method = parse_recompute_method(values.recompute_method).value_or(RecomputeMethod::uniform);
    if (values.sequence_parallel != "auto") space.sequence_parallel = values.sequence_parallel == "on";
    space.cp_comm_types.clear();
    for (const auto& word : values.cp_comm_types) space.cp_comm_types.push_back(parse_cp_comm_type(word).value_or(CpCommType::p2p));
    space.orders.clear();
    for (const auto& word : split(*values.order, ',')) space.orders.push_back(AxisOrder::parse(word));
    try {
        if (space.pipeline_layout) (void)parse_pipeline_layout(*space.pipeline_layout);
    } catch (const ConfigError& error) {
        problems.absorb(error, "--pipeline-layout: ");
    }
    if (space.pipeline_layout && values.balance_stages)
        problems.add("--balance-stages looks for a pipeline layout and --pipeline-layout gives one; drop one of them");
    space.cuda_graphs = read_graph_scopes(values.cuda_graphs, problems);
    if (values.pick && !values.save_plan)
        problems.add("--pick {} picks the plan that --save-plan writes; add --save-plan FILE", *values.pick);
}

/// What follows from the options that were not given: from the model what is recomputed, and that fast links confine tp and ep.
void settle_for_model(const Options& options, Workload& workload, planner::SearchSpace& space) {
    if (!options.given("recompute-modules")) space.recompute_modules = usual_recompute_modules(workload.model);
    workload.confine_tp = space.tp.empty();
    workload.confine_ep = space.ep.empty();
}

/// Takes from a Megatron-LM command what a search does not choose, where no option says otherwise.
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

/// Says once what of a Megatron-LM command the search chooses instead.
void note_searched(const formats::FlagAccount& flags, Console& console) {
    if (flags.searched.empty()) return;
    console.err << fmt::format(
        "mgplan: the search chooses, whatever the command says, {}; pin what is to stay, as with --tp, or judge the command with mgplan "
        "check\n",
        fmt::join(flags.searched, " "));
}

/// Adds the axes that --search and --dispatcher ask for, as far as nothing else pins them. Throws ConfigError for what contradicts itself.
void add_axes(const Options& options, const PlanOptions& values, const ResolvedWorkload& resolved, const WorkloadOptions& job,
              planner::SearchSpace& space) {
    Problems problems;
    planner::SearchAxes axes;
    if (values.search) axes = planner::read_search_axes(*values.search, problems);
    const bool listed = values.search && *values.search != "wide" && *values.search != "recipe";
    const Workload& workload = resolved.workload;
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
    for (const Axis axis : {Axis::dispatcher, Axis::tp_overlap, Axis::moe_overlap, Axis::optimizer}) {
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
    problems.throw_if_any();
    planner::widen(space, axes, workload);
    if (!dispatchers.empty()) planner::choose_dispatchers(space, dispatchers, workload);
}

/// Assumptions of a single layout that rows of a search decide for themselves.
std::vector<std::string> without_what_is_searched(std::vector<std::string> assumed, const Workload& workload,
                                                  const planner::SearchSpace& space) {
    if (!space.more_cuda_graphs.empty()) std::erase(assumed, kNoCudaGraphs);
    const bool gradients =
        std::any_of(space.switches.begin(), space.switches.end(), [](const auto& one) { return one && one->bf16_gradients; });
    if (gradients) std::replace(assumed.begin(), assumed.end(), assumed_gradients(workload.training), std::string("bf16"));
    return assumed;
}

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

/// Says which options change nothing, here because of what the others leave to search.
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

/// Refuses a layout string that suits the model on no pipeline: wrong numbers of layers, E or L out of place.
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

/// How many plans are wanted, in which order, and which schedules are tried.
void choose_what_to_rank(const Options& options, const PlanOptions& values, const std::vector<SplitSchedule>& divided,
                         planner::RankingOptions& ranking) {
    const bool table = options.format() == Format::table;
    const std::int64_t top = values.top.value_or(table ? kTopOfATable : kTopOfAList);
    ranking.one_per_family = table && !values.all;
    // More than --top where a later plan is to be explained, since the list is what explains its number.
    ranking.plans = static_cast<std::size_t>(ranking.one_per_family ? top : std::max(top, values.explain.value_or(0)));
    // The explained plan is held against the one behind it.
    ranking.ranks = static_cast<std::size_t>(std::max(values.pick.value_or(0), values.explain.value_or(0) + 1));
    ranking.bounded = values.search.has_value() && !values.exhaustive;
    ranking.every_time = values.exhaustive;
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

/// Ranks that --pick and --explain ask for must be some layout's.
void refuse_ranks_beyond(const PlanOptions& values, const planner::SearchResult& search) {
    for (const auto& [name, k] : {std::pair("pick", values.pick), std::pair("explain", values.explain)}) {
        if (k && !search.best.empty() && std::cmp_greater(*k, search.best.size()))
            throw ConfigError(fmt::format("--{} = {}, but only {} layouts fit; use 1 to {}", name, *k, search.feasible, search.feasible));
    }
}

/// --save-plan: the best, or the picked one.
void save_picked(const PlanOptions& values, const ResolvedWorkload& resolved, reports::PlanReport& report, const Console& console) {
    const auto& best = report.search.best;
    if (best.empty()) {
        console.err << fmt::format("mgplan: nothing fits, so --save-plan {} is not written\n", *values.save_plan);
        return;
    }
    report.saved_as = *values.save_plan;
    const Layout& saved = best[static_cast<std::size_t>(values.pick.value_or(1) - 1)].layout;
    save_plan(*values.save_plan, plan_of(resolved.workload, saved, resolved.batches));
}

}  // namespace

int run_plan(const std::vector<std::string>& args, Console& console) {
    Options options("[plan] --world N --model CFG [options]",
                    "Enumerates every layout of the model on N GPUs, predicts memory and time of each, and ranks those that fit.");
    WorkloadOptions workload_options;
    PlanOptions values;
    declare_workload_options(options, workload_options, false, true);
    declare_plan_options(options, values);
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;

    Problems problems;
    if (values.headroom && workload_options.max_memory)
        problems.add("--headroom = {} narrows the memory of a GPU, and --max-memory gives what a rank may use exactly; drop one of them",
                     *values.headroom);
    finish_space(values, problems);
    check_answer(values, workload_options.worlds, options.format(), problems);
    const std::optional<std::string> headroom = workload_options.max_memory ? std::nullopt
                                                : values.headroom           ? values.headroom
                                                                            : std::optional<std::string>(kDefaultHeadroom);
    const bool study = workload_options.worlds.size() > 1 || values.tokens;
    const auto resolve = [&](const WorkloadOptions& job) {
        ResolvedWorkload resolved = resolve_workload(options, job);
        if (headroom) (void)headroom_bytes(*headroom, resolved.workload);  // refused before anything is searched
        if (headroom && !values.headroom) resolved.assumed.push_back(fmt::format("headroom of {}", *headroom));
        settle_for_model(options, resolved.workload, values.space);
        if (resolved.job.layout) {
            keep_of_command(options, resolved, values.space);
            resolved.job.flags = formats::without_layout_flags(resolved.job.flags);
        }
        const auto assumption = simulator::assumed_graph_node_bytes(resolved.workload.cluster);
        if (!values.space.cuda_graphs.empty() && assumption) resolved.assumed.push_back(*assumption);
        return resolved;
    };
    const std::vector<SplitSchedule> divided = split_schedules_in(values.schedules);
    if (!divided.empty() && values.balance_stages)
        problems.add("--balance-stages balances for the schedules of Megatron-LM, not for {}; drop one of them",
                     to_string(divided.front()));
    if (!divided.empty() && study)
        problems.add("--schedule {} is tried for the plans of one world, not of a study of {}; drop one of them",
                     to_string(divided.front()), workload_options.worlds.size() > 1 ? "several (--world)" : "how a run scales (--tokens)");
    ResolvedWorkload resolved;
    if (!workload_options.worlds.empty()) workload_options.world = workload_options.worlds.front();
    try {
        resolved = resolve(workload_options);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    problems.throw_if_any();
    if (!divided.empty()) imply_engine(divided.front(), options, resolved, console);
    values.space.engine = resolved.engine;
    if (!values.space.cuda_graphs.empty()) {
        check_graph_scopes(values.space.cuda_graphs, resolved.workload.model, problems);
        problems.throw_if_any();
    }
    if (values.space.pipeline_layout) check_pipeline_layout(*values.space.pipeline_layout, resolved.workload.model);
    add_axes(options, values, resolved, workload_options, values.space);
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
    note_searched(resolved.job.flags, console);
    note_idle_options(options, workload_options, values, resolved.workload.model, console);

    planner::RankingOptions ranking;
    if (values.compare)
        ranking.compared = read_compared_layout(*values.compare, resolved.workload, resolved.engine, values.space.cuda_graphs, console);
    choose_what_to_rank(options, values, divided, ranking);
    const bool draws = values.html || console.page;
    ranking.pareto = ranking.families = draws;
    ProgressLine progress(console);
    ranking.progress = [&progress, &console](std::size_t done, std::size_t total) {
        if (console.waiting) console.waiting();
        progress.show(fmt::format("mgplan: searched {} of {} parts", done, total));
    };
    ranking.replaying = [&progress, &console](std::size_t done, std::size_t wanted) {
        if (console.waiting) console.waiting();
        progress.show(fmt::format("mgplan: replayed {} of {} plans", done, wanted));
    };
    reports::PlanReport report;
    planner::ComparedRank compared_rank;
    if (study) {
        planner::TrainingGoal goal;
        if (values.tokens) goal.tokens = parse_count(*values.tokens);
        if (values.gpu_hour_price) goal.gpu_hour_price = parse_real(*values.gpu_hour_price);
        const auto search = [&](const Workload& workload, bool pareto) {
            planner::RankingOptions order_alone = ranking;
            order_alone.predictions = false;
            order_alone.pareto = pareto;
            order_alone.families = order_alone.families && pareto;  // of the world itself, not of what changes would bring
            if (headroom) order_alone.headroom_bytes = headroom_bytes(*headroom, workload);
            return planner::rank_layouts(workload, values.space, order_alone).search;
        };
        ScalingStudy studied = study_scaling(workload_options, workload_options.worlds, goal, {resolve, search}, console);
        report.scaling = std::move(studied.report);
        report.search = std::move(studied.search);
        resolved = std::move(studied.resolved);
        report.plans = planner::plans_of(resolved.workload, report.search, ranking.plans, ranking.one_per_family);
    } else {
        if (headroom) ranking.headroom_bytes = headroom_bytes(*headroom, resolved.workload);
        planner::Ranking ranked = planner::rank_layouts(resolved.workload, values.space, ranking);
        report.search = std::move(ranked.search);
        report.plans = std::move(ranked.plans);
        if (values.balance_stages) report.balanced = std::move(ranked.balanced);
        report.schedules = std::move(ranked.schedules);
        compared_rank = ranked.compared;
    }
    progress.clear();
    report.detail = values.wide ? reports::Detail::wide : reports::Detail::first_look;
    report.all_assumed = values.assumed;
    report.switches_searched = values.search || values.dispatcher;
    report.workload = resolved.workload;
    report.graphs_searched = !values.space.more_cuda_graphs.empty();
    report.assumed = without_what_is_searched(resolved.assumed, resolved.workload, values.space);
    if (resolved.job.layout) report.flags = resolved.job.flags;
    report.orders = values.space.orders.size();

    const auto& best = report.search.best;
    refuse_ranks_beyond(values, report.search);
    simulator::CostModel model(report.workload);
    if (values.explain && !best.empty()) explain(report, model, static_cast<std::size_t>(*values.explain - 1));
    if (ranking.compared && !best.empty()) compare(report, model, *ranking.compared, *values.compare, compared_rank);
    if (ranking.compared && best.empty())
        console.err << "mgplan: nothing fits, so there is no plan that --compare could put the layout beside\n";
    add_too_large(report);
    if (values.save_plan) save_picked(values, resolved, report, console);
    if (draws) {
        std::string page = search_page_of(report, model);
        if (values.html) write_search_page(*values.html, page);
        if (console.page) console.page(std::move(page));
    }
    for (const auto& plan : report.plans) hand_over_plan(console, resolved.workload, plan.layout, resolved.batches);
    write_answer(options, values, workload_options.worlds.size() > 1, report, model, console);
    return report.plans.empty() ? kNothingFits : kDone;
}

}  // namespace mgplan::cli
