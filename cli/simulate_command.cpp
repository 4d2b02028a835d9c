#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/workload_options.hpp"
#include "importers/model_source.hpp"
#include "plan/cluster_json.hpp"
#include "plan/json_reader.hpp"
#include "plan/plan.hpp"
#include "plan/text.hpp"
#include "planner/constraints.hpp"
#include "reports/plan_report.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The layout's own options; given ones win over what a Megatron-LM argument file says.
struct LayoutOptions {
    std::optional<std::int64_t> tp, cp, ep, etp, pp, vpp, group_size, micro_batch, recompute_num_layers, first_stage_layers,
        last_stage_layers;
    std::optional<std::string> recompute, recompute_method, sequence_parallel, cp_comm_type, pipeline_layout, order;
    std::vector<std::string> recompute_modules;
    bool account_for_embedding = false, account_for_loss = false;
    std::string cuda_graphs = "none";
};

void declare_layout_options(Options& options, LayoutOptions& values) {
    options.group("The layout");
    options.integer("tp", values.tp, 1, kMostRanks, "tensor parallel size");
    options.integer("cp", values.cp, 1, kMostRanks, "context parallel size");
    options.integer("ep", values.ep, 1, kMostRanks, "expert parallel size");
    options.integer("etp", values.etp, 1, kMostRanks, "expert tensor parallel size; without it tp");
    options.integer("pp", values.pp, 1, 65536, "pipeline parallel size");
    options.integer("vpp", values.vpp, 1, 65536, "model chunks per pipeline rank");
    options.integer("micro-batch", values.micro_batch, 1, 65536, "sequences per microbatch; without it 1");
    options.text("recompute", values.recompute, "none|selective|full", "activation recompute");
    options.choices("recompute-modules", values.recompute_modules, recompute_module_names(),
                    "what selective recomputes; without it core_attn");
    options.text("recompute-method", values.recompute_method, "uniform|block", "of full recompute");
    options.integer("recompute-num-layers", values.recompute_num_layers, 1, 65536,
                    "uniform: layers per checkpoint; block: layers recomputed per chunk");
    options.text("sequence-parallel", values.sequence_parallel, "auto|on|off", "sequence parallelism; auto: on where tp > 1");
    options.text("cp-comm-type", values.cp_comm_type, "p2p|all_gather|a2a", "how context-parallel ranks exchange keys and values");
    options.integer("group-size", values.group_size, 1, 1 << 20, "microbatch group of the interleaved schedule; without it pp");
    options.text("pipeline-layout", values.pipeline_layout, "STRING", "layers per stage as in Megatron-LM");
    options.integer("first-stage-layers", values.first_stage_layers, 1, 65536, "layers of the first pipeline rank");
    options.integer("last-stage-layers", values.last_stage_layers, 1, 65536, "layers of the last pipeline rank");
    options.flag("account-for-embedding", values.account_for_embedding, "count the embedding as a layer of the split");
    options.flag("account-for-loss", values.account_for_loss, "count the loss as a layer of the split");
    options.text("order", values.order, "AXES", "order of the axes in the rank grid, fastest first; without it tp-cp-ep-dp-pp");
    options.text("cuda-graphs", values.cuda_graphs, "none|SCOPE[,SCOPE…]", "what CUDA graphs capture");
}

template <class Value, class Parse>
void take_word(Problems& problems, const char* name, const std::optional<std::string>& word, Value& target, Parse parse,
               const char* allowed) {
    if (!word) return;
    if (const auto value = parse(*word))
        target = *value;
    else
        problems.add("--{} = '{}' is not known; use {}", name, *word, allowed);
}

LayoutRequest request_from(const LayoutOptions& values, const ResolvedWorkload& resolved) {
    Problems problems;
    LayoutRequest request = resolved.job.layout.value_or(LayoutRequest{});
    request.engine = resolved.engine;
    if (values.tp) request.tp = *values.tp;
    if (values.cp) request.cp = *values.cp;
    if (values.ep) request.ep = *values.ep;
    if (values.etp) request.etp = *values.etp;
    if (values.pp) request.pp = *values.pp;
    if (values.vpp) {
        request.vpp = *values.vpp;
        request.layers_per_virtual_stage.reset();
    }
    if (values.group_size) request.group_size = *values.group_size;
    if (values.micro_batch) request.micro_batch = *values.micro_batch;
    take_word(problems, "recompute", values.recompute, request.recompute, parse_recompute, "none, selective or full");
    take_word(problems, "recompute-method", values.recompute_method, request.recompute_method, parse_recompute_method, "uniform or block");
    take_word(problems, "cp-comm-type", values.cp_comm_type, request.cp_comm_type, parse_cp_comm_type, "p2p, all_gather or a2a");
    if (!values.recompute_modules.empty()) request.recompute_modules = recompute_module_set(values.recompute_modules);
    if (values.recompute_num_layers) request.recompute_num_layers = *values.recompute_num_layers;
    if (values.sequence_parallel) {
        const std::string& word = *values.sequence_parallel;
        if (word == "auto" || word == "on")
            request.sequence_parallel = true;
        else if (word == "off")
            request.sequence_parallel = false;
        else
            problems.add("--sequence-parallel = '{}' is not known; use auto, on or off", word);
    } else if (!resolved.job.layout) {
        request.sequence_parallel = request.tp > 1;
    }
    if (values.order) {
        try {
            request.order = AxisOrder::parse(*values.order);
        } catch (const ConfigError& error) {
            problems.absorb(error, "--order: ");
        }
    }
    if (values.pipeline_layout || values.first_stage_layers || values.last_stage_layers || values.account_for_embedding ||
        values.account_for_loss) {
        StageSplitRequest split;
        split.pipeline_layout = values.pipeline_layout;
        split.first_stage_layers = values.first_stage_layers;
        split.last_stage_layers = values.last_stage_layers;
        split.account_for_embedding = values.account_for_embedding;
        split.account_for_loss = values.account_for_loss;
        request.split = split;
    }
    if (values.cuda_graphs != "none") problems.add("--cuda-graphs: a later version predicts CUDA graphs; leave it out or use none");
    problems.throw_if_any();
    return request;
}

/// A plan holds model, batch, training options and layout; only what it is to be judged against may be given beside it.
void refuse_what_a_plan_holds(const Options& options) {
    Problems problems;
    for (const auto& name : options.given()) {
        if (name == "cluster" || name == "max-memory" || name == "per-rank" || name == "format" || name == "output") continue;
        problems.add(
            "--{} has no place beside a PLAN, which holds model, batch and layout; drop --{}, or give --model … in place of the plan", name,
            name);
    }
    problems.throw_if_any();
}

Plan read_plan(const std::string& path) {
    return plan_from_json(parse_json(importers::read_text_file(path, "plan"), path), path);
}

/// Memory of every global rank: those of one pipeline stage are equal.
Json ranks_json(simulator::CostModel& model, const Workload& work, const Layout& layout) {
    std::vector<Json> stages;
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        stages.push_back(reports::rank_memory_to_json(model.stage_memory(layout, stage), 0, work.memory_limit));
    }
    std::int64_t stride = 1;
    for (const auto& axis : dense_grid(layout.sizes)) {
        if (axis.axis == Axis::pp) stride = axis.stride;
    }
    Json ranks = Json::array();
    for (std::int64_t rank = 0; rank < work.world; ++rank) {
        const std::int64_t stage = rank / stride % layout.sizes.pp;
        Json memory = stages[static_cast<std::size_t>(stage)];
        memory["worst_rank"] = rank;
        ranks.push_back(Json{{"rank", rank}, {"stage", stage}, {"memory", std::move(memory)}});
    }
    return ranks;
}

std::string stages_text(simulator::CostModel& model, const Layout& layout) {
    reports::Table table({{"stage"}, {"parameters"}, {"gradients"}, {"optimizer"}, {"activations"}, {"other"}, {"peak GiB"}});
    const auto gib = [](std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / 1073741824.0); };
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        const auto memory = model.stage_memory(layout, stage);
        const auto& b = memory.breakdown;
        const std::int64_t named = b.parameters + b.gradients + b.optimizer + b.activations;
        table.add_row({std::to_string(stage), gib(b.parameters), gib(b.gradients), gib(b.optimizer), gib(b.activations),
                       gib(memory.peak_bytes() - named), gib(memory.peak_bytes())});
    }
    return "\nmemory of each stage's ranks (GiB)\n" + table.to_text();
}

}  // namespace

int run_simulate(const std::vector<std::string>& args, Console& console) {
    Options options("simulate (PLAN | --model CFG --world N --tp T … | --megatron-args FILE --world N) [options]",
                    "Predicts memory and time of one layout. Exit code 3 when it does not fit; the prediction is printed all the same.");
    WorkloadOptions workload_options;
    LayoutOptions layout_options;
    std::vector<std::string> plan_files;
    bool per_rank = false;
    std::optional<std::string> kind, timeline, html;
    options.positional("PLAN", plan_files, 1, "a plan written by --save-plan");
    declare_workload_options(options, workload_options, true);
    declare_layout_options(options, layout_options);
    options.group("Answer");
    options.flag("per-rank", per_rank, "list every rank's memory");
    options.text("kind", kind, "KIND", "another pipeline schedule (a later version)");
    options.text("timeline", timeline, "FILE", "write a trace (a later version)");
    options.text("html", html, "FILE", "write a page (a later version)");
    if (!options.parse(args, console.out)) return kDone;
    if (kind) throw ConfigError("--kind: a later version simulates other schedules; leave it out");
    if (timeline) throw ConfigError("--timeline: a later version writes traces; leave it out");
    if (html) throw ConfigError("--html: a later version writes pages; leave it out");

    Workload work;
    Layout layout;
    std::vector<std::string> assumed;
    if (!plan_files.empty()) {
        refuse_what_a_plan_holds(options);
        Plan plan = read_plan(plan_files.front());
        work = {plan.model, plan.cluster, plan.batch, plan.training, plan.layout.sizes.world, false, plan.cluster.memory_bytes};
        if (options.given("cluster")) {
            work.cluster = load_cluster(workload_options.cluster);
            work.memory_limit = work.cluster.memory_bytes;
        }
        if (workload_options.max_memory) work.memory_limit = *workload_options.max_memory;
        layout = plan.layout;
        auto broken = planner::broken_messages(work, layout);
        if (!broken.empty()) throw ConfigError(std::move(broken));
    } else {
        ResolvedWorkload resolved = resolve_workload(options, workload_options);
        work = resolved.workload;
        work.confine_tp = false;
        assumed = resolved.assumed;
        layout = planner::make_layout(request_from(layout_options, resolved), work);
        for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
    }

    simulator::CostModel model(work);
    const simulator::Prediction prediction = model.predict(layout);
    if (options.format() == Format::json) {
        Json json{{"layout", layout_to_json(layout)}, {"predicted", reports::prediction_to_json(prediction)}, {"assumed", assumed}};
        if (per_rank) json["ranks"] = ranks_json(model, work, layout);
        options.write(console, json.dump(1) + "\n");
    } else if (options.format() == Format::csv) {
        reports::PlanReport report;
        report.plans.push_back({layout, prediction});
        options.write(console, reports::plan_report_csv(report));
    } else {
        options.write(console, reports::layout_text(work, layout, prediction) + (per_rank ? stages_text(model, layout) : std::string()));
    }
    return prediction.memory.fits() ? kDone : kNothingFits;
}

}  // namespace mgplan::cli
