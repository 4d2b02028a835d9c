#include "cli/plan_options.hpp"

#include <array>
#include <utility>

#include "cli/headroom.hpp"
#include "cli/schedule_option.hpp"
#include "cli/workload_options.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

/// Most plans that can be requested: more than there ever are.
constexpr std::int64_t kMostPlans = std::int64_t{1} << 31;

/// Most worlds of one study: each is searched five times.
constexpr std::size_t kMostWorlds = 64;

}  // namespace

std::optional<double> parse_large_count(std::string_view text) {
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
    if (!parse_large_count(given))
        problems.add("--tokens = '{}' is no count above 0 and up to 1e18; write one, such as 15T, 300B or 1.5e12", given.substr(0, 60));
}

void check_price(std::string_view option, const std::string& given, Problems& problems) {
    const auto price = parse_real(given);
    if (!price || *price < 0 || *price > 1e9)
        problems.add("{} = '{}' is no number from 0 to 1e9; write one, such as 2.5", option, given.substr(0, 60));
}

planner::TrainingGoal training_goal(const std::optional<std::string>& tokens, const std::optional<std::string>& gpu_hour_price) {
    planner::TrainingGoal goal;
    if (tokens) goal.tokens = parse_large_count(*tokens);
    if (gpu_hour_price) goal.gpu_hour_price = parse_real(*gpu_hour_price);
    return goal;
}

void declare_search_options(Options& options, PlanOptions& values) {
    options.group("Restricting the search (one value, or a list separated by commas)");
    constexpr std::int64_t kMost = kMostRanks;
    options.integers("tp", values.space.tp, 1, kMost, "tensor parallel sizes (default: all that divide)");
    options.integers("cp", values.space.cp, 1, kMost, "context parallel sizes (default: all that divide)");
    options.integers("ep", values.space.ep, 1, kMost, "expert parallel sizes (default: all that divide)");
    options.integers("etp", values.space.etp, 1, kMost, "expert tensor parallel sizes (default: all that divide)");
    options.integers("pp", values.space.pp, 1, 65536, "pipeline parallel sizes (default: all that divide)");
    options.integers("vpp", values.space.vpp, 1, 65536,
                     "model chunks per pipeline rank (default: 1 to 8, and all that make chunks of equal layers)");
    options.integers("micro-batch", values.space.micro_batch, 1, 65536,
                     "sequences per microbatch (default: divisors of global batch / dp up to 16)");
    options.choices("recompute", values.recompute, {"none", "selective", "full"}, "activation recompute");
    options.choices("recompute-modules", values.recompute_modules, recompute_module_names(), "modules that selective recompute recomputes");
    options.choice("recompute-method", values.recompute_method, {"uniform", "block"}, "method of full recompute");
    options.integer("recompute-num-layers", values.space.recompute_num_layers, 1, 65536,
                    "uniform: layers per checkpoint; block: layers recomputed per chunk");
    options.choice("sequence-parallel", values.sequence_parallel, {"auto", "on", "off"}, "sequence parallelism");
    options.choices("cp-comm-type", values.cp_comm_types, {"p2p", "all_gather", "a2a"},
                    "how context-parallel ranks exchange keys and values");
    options.integer("group-size", values.space.group_size, 1, 1 << 20, "microbatch group of the interleaved schedule (default: pp)");
    options.text("pipeline-layout", values.space.pipeline_layout, "STRING",
                 "layers per stage as in Megatron-LM, such as 'Et*3|(tt|)*29m|L'");
    options.choices("schedule", values.schedules, schedule_choices(),
                    "pipeline schedules. auto: Megatron-LM's for the layout's pp and vpp. The others are mgplan's own (--engine mgplan), "
                    "tried for the best layouts and the nearest misses; a list without auto ranks them alone");
    options.flag(
        "balance-stages", values.balance_stages,
        "print what uneven splits of the layers gain over the stages of the best layouts with a pipeline, and try them with any --search "
        "(the default search tries them)");
    options.checked("order", values.order, "AXES[,AXES...]", check_axis_orders, "rank orders, fastest axis first; several are searched");
    options.text("cuda-graphs", values.cuda_graphs, "none|SCOPE[,SCOPE...]",
                 "scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration");
    options.text("dispatcher", values.dispatcher, "KIND[,KIND...]",
                 "MoE token dispatcher, engine megatron: allgather, alltoall, deepep, hybridep (default: the model's)");
    options.text(
        "search", values.search, "plain|recipe|wide|AXIS[,AXIS...]",
        "what to search besides layouts: dispatcher, recompute (sets of modules), block (full recompute of some layers), "
        "tp-overlap, moe-overlap, optimizer (bf16 gradients and moments), cuda-graphs, vpp (chunks of unequal layers), stages (splits "
        "balanced by the layers' work), sharding (FSDP and HSDP). plain: nothing; recipe: the first two and the overlaps; wide: all "
        "(default: all but optimizer, "
        "which changes the trained numbers)");
    options.flag("exhaustive", values.exhaustive, "evaluate every layout, without pruning");
    options.checked(
        "headroom", values.headroom, "SIZE|PCT", check_headroom,
        "GPU memory to leave free, such as 4GiB, 5% or 0; ignored where nothing fits otherwise (default: 5%, 0 with --max-memory)");
    options.group("Ranking");
    options.choice("objective", values.objective, {"throughput", "memory"}, "rank by speed or by memory");
    options.integer("threads", values.threads, 0, 1024,
                    "threads of the search; 0: the processors that the process may use, by affinity and control groups");
}

void declare_plan_options(Options& options, PlanOptions& values) {
    declare_search_options(options, values);
    options.group("Answer");
    options.integer("top", values.top, 1, kMostPlans, "plans to print (default: 5 in a table and 10 in JSON and CSV)");
    options.flag("markdown", values.markdown, "print a Markdown table, for a pull request");
    options.flag("all", values.all,
                 "list every layout, not only the best of each group (same tp, cp, ep, etp, pp, recompute, dispatcher, sharding, offload)");
    options.flag("wide", values.wide, "show every column, the breakdown of time and memory, and the rejected layouts by reason");
    options.flag("assumed", values.assumed, "print all assumptions, not only the first three");
    options.integer("explain", values.explain, 1, kMostPlans, "print every term of plan N, and its advantage over plan N+1");
    options.output_file("save-plan", values.save_plan, "write the recommended plan, or the picked one, to FILE");
    options.integer("pick", values.pick, 1, kMostPlans, "the plan that --save-plan writes; 1: the fastest (default: the recommended)");
    options.text("compare", values.compare, "LAYOUT|PLAN|ARGS",
                 "compare a layout with plan 1: its rank and the terms that differ. Sizes such as 'tp2 pp4 mbs1', a plan file, or a file "
                 "of Megatron-LM arguments");
    options.output_file("html", values.html, "write an interactive HTML report");
    options.checked("tokens", values.tokens, "COUNT", check_tokens,
                    "tokens to train on, such as 15T; adds days, and the effect of one more node, a longer sequence and another batch");
    options.checked(
        "gpu-hour-price", values.gpu_hour_price, "P",
        [](const std::string& given, Problems& problems) { check_price("--gpu-hour-price", given, problems); },
        "price per GPU-hour; adds the cost of --tokens");
}

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
        problems.add("--markdown shows the plans of a search, without a layout next to them; drop it, or --compare");
    if (values.compare && values.tokens && worlds.size() < 2)
        problems.add("--compare compares a layout with the plans of one search, not of a study (--tokens); drop one of them");
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

}  // namespace mgplan::cli
