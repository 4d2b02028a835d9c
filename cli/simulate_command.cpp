#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/balanced_text.hpp"
#include "cli/command.hpp"
#include "cli/disturbances.hpp"
#include "cli/layout_page.hpp"
#include "cli/list_writer.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/plan_file.hpp"
#include "cli/simulated_schedule.hpp"
#include "cli/stage_memories.hpp"
#include "cli/workload_options.hpp"
#include "importers/model_source.hpp"
#include "plan/cluster_json.hpp"
#include "plan/errors.hpp"
#include "plan/graph_scopes.hpp"
#include "plan/json_reader.hpp"
#include "plan/layer_parts.hpp"
#include "plan/plan.hpp"
#include "plan/stage_ranks.hpp"
#include "plan/text.hpp"
#include "planner/constraints.hpp"
#include "reports/flag_account.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/model_summary.hpp"
#include "reports/plan_report.hpp"
#include "reports/prediction_json.hpp"
#include "reports/table.hpp"
#include "reports/time_terms.hpp"
#include "simulator/cluster_parameters.hpp"
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
    std::optional<std::string> cuda_graphs;
};

void declare_layout_options(Options& options, LayoutOptions& values) {
    options.group("The layout");
    options.integer("tp", values.tp, 1, kMostRanks, "tensor parallel size; without it 1");
    options.integer("cp", values.cp, 1, kMostRanks, "context parallel size; without it 1");
    options.integer("ep", values.ep, 1, kMostRanks, "expert parallel size; without it 1");
    options.integer("etp", values.etp, 1, kMostRanks, "expert tensor parallel size; without it tp");
    options.integer("pp", values.pp, 1, 65536, "pipeline parallel size; without it 1");
    options.integer("vpp", values.vpp, 1, 65536, "model chunks per pipeline rank; without it 1");
    options.integer("micro-batch", values.micro_batch, 1, 65536, "sequences per microbatch; without it 1");
    options.choice("recompute", values.recompute, {"none", "selective", "full"}, "activation recompute; without it none");
    options.choices("recompute-modules", values.recompute_modules, recompute_module_names(),
                    "what selective recomputes; without it core_attn");
    options.choice("recompute-method", values.recompute_method, {"uniform", "block"}, "of full recompute; without it uniform");
    options.integer("recompute-num-layers", values.recompute_num_layers, 1, 65536,
                    "uniform: layers per checkpoint; block: layers recomputed per chunk; without it 1");
    options.choice("sequence-parallel", values.sequence_parallel, {"auto", "on", "off"},
                   "sequence parallelism; auto and without it: on where tp > 1");
    options.choice("cp-comm-type", values.cp_comm_type, {"p2p", "all_gather", "a2a"},
                   "how context-parallel ranks exchange keys and values; without it p2p");
    options.integer("group-size", values.group_size, 1, 1 << 20, "microbatch group of the interleaved schedule; without it pp");
    options.text("pipeline-layout", values.pipeline_layout, "STRING", "layers per stage as in Megatron-LM; without it as even as can be");
    options.integer("first-stage-layers", values.first_stage_layers, 1, 65536,
                    "layers of the first pipeline rank; without it as even as can be");
    options.integer("last-stage-layers", values.last_stage_layers, 1, 65536,
                    "layers of the last pipeline rank; without it as even as can be");
    options.flag("account-for-embedding", values.account_for_embedding, "count the embedding as a layer of the split");
    options.flag("account-for-loss", values.account_for_loss, "count the loss as a layer of the split");
    options.checked("order", values.order, "AXES", check_axis_order,
                    "order of the axes in the rank grid, fastest first; without it tp-cp-ep-dp-pp");
    options.text("cuda-graphs", values.cuda_graphs, "none|SCOPE[,SCOPE...]",
                 "what CUDA graphs capture: attn, mlp, moe, moe_router, moe_preprocess, layer, full_iteration; without it none");
}

/// The words were checked when they were read.
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
    if (values.recompute) request.recompute = *parse_recompute(*values.recompute);
    if (values.recompute_method) request.recompute_method = *parse_recompute_method(*values.recompute_method);
    if (values.cp_comm_type) request.cp_comm_type = *parse_cp_comm_type(*values.cp_comm_type);
    if (!values.recompute_modules.empty()) request.recompute_modules = recompute_module_set(values.recompute_modules);
    if (values.recompute_num_layers) request.recompute_num_layers = *values.recompute_num_layers;
    if (values.sequence_parallel) {
        request.sequence_parallel = *values.sequence_parallel != "off";
    } else if (!resolved.job.layout) {
        request.sequence_parallel = request.tp > 1;
    }
    if (values.order) request.order = AxisOrder::parse(*values.order);
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
    if (values.cuda_graphs) {
        request.cuda_graphs = read_graph_scopes(*values.cuda_graphs, problems);
        if (problems.empty() && !request.cuda_graphs.empty()) check_graph_scopes(request.cuda_graphs, resolved.workload.model, problems);
    }
    problems.throw_if_any();
    return request;
}

/// Says which options change nothing for this layout.
void note_idle_options(const Options& options, const Workload& work, const Layout& layout, const LayoutOptions& values, Console& console) {
    const std::string no_experts = fmt::format("{} has no experts", work.model.name);
    options.note_idle(console, "ep", !work.model.moe && values.ep != 1, no_experts);
    options.note_idle(console, "etp", !work.model.moe && values.etp != layout.sizes.etp, no_experts);
    options.note_idle(console, "recompute-modules", layout.recompute != Recompute::selective, "recompute is not selective");
    options.note_idle(console, "recompute-method", layout.recompute != Recompute::full, "recompute is not full");
    options.note_idle(console, "recompute-num-layers", layout.recompute != Recompute::full, "recompute is not full");
    options.note_idle(console, "sequence-parallel", layout.sizes.tp == 1 && values.sequence_parallel == "on", "tp is 1");
    options.note_idle(console, "cp-comm-type", layout.sizes.cp == 1, "cp is 1");
    options.note_idle(console, "group-size", layout.vpp == 1, "vpp is 1");
    const bool whole = layout.sizes.pp == 1;
    options.note_idle(console, "account-for-embedding", whole, "pp is 1");
    options.note_idle(console, "account-for-loss", whole, "pp is 1");
}

/// A plan holds model, batch, training options and layout; only what it is to be judged against may be given beside it.
void refuse_what_a_plan_holds(const Options& options) {
    Problems problems;
    for (const auto& name : options.given()) {
        if (name == "cluster" || name == "max-memory" || name == "routing-skew" || name == "per-rank" || name == "html" ||
            name == "markdown" || name == "device" || name == "format" || name == "output" || name == "timeline" || name == "kind" ||
            name == "balance-stages" || name == "straggler" || name == "jitter" || name == "seed")
            continue;
        problems.add(
            "--{} has no place beside a PLAN, which holds model, batch and layout; drop --{}, or give --model … in place of the plan", name,
            name);
    }
    problems.throw_if_any();
}

/// One rank's memory as text around its own number, the only thing in which ranks of a stage differ.
struct StageText {
    std::string before, after;
};

StageText stage_text(reports::StageMemory stage, const simulator::StageUse* use, std::int64_t limit) {
    stage.first_rank = 0;
    const std::string time = use == nullptr ? "null" : reports::stage_use_to_json(*use).dump();
    const std::string text = fmt::format("\"exact\":{},\"estimated_peak_bytes\":{},\"time\":{},\"memory\":{}", stage.exact,
                                         stage.estimated_peak, time, reports::stage_memory_to_json(stage, limit).dump());
    const std::string key = "\"worst_rank\":";
    const auto at = text.find(key);
    MGPLAN_ASSERT(at != std::string::npos && text[at + key.size()] == '0', "a rank's memory names the rank");
    return {text.substr(0, at + key.size()), text.substr(at + key.size() + 1)};
}

/// What every stage's ranks hold and do.
struct Stages {
    const std::vector<reports::StageMemory>& memory;
    std::vector<simulator::StageUse> use;  ///< empty where the iteration is too long to be replayed

    [[nodiscard]] const simulator::StageUse* use_of(std::size_t stage) const { return use.empty() ? nullptr : &use[stage]; }
};

/// `json` with memory and time of every global rank as its last field, written rank by rank: there may be millions.
void write_with_ranks(std::ostream& out, const Json& json, const Stages& stages, const Workload& work, const Layout& layout) {
    std::vector<StageText> texts;
    for (std::size_t i = 0; i < stages.memory.size(); ++i)
        texts.push_back(stage_text(stages.memory[i], stages.use_of(i), work.memory_limit));
    std::string head = json.dump(1);
    head.resize(head.rfind("\n}"));
    ListWriter writer(out);
    writer.text(head);
    writer.text(",\n \"ranks\": [");
    for (std::int64_t rank = 0; rank < work.world; ++rank) {
        const std::int64_t stage = stage_of_rank(layout.sizes, rank);
        const StageText& memory = texts[static_cast<std::size_t>(stage)];
        writer.text(rank == 0 ? "\n  {\"rank\":" : ",\n  {\"rank\":");
        writer.number(rank);
        writer.text(",\"stage\":");
        writer.number(stage);
        writer.text(",");
        writer.text(memory.before);
        writer.number(rank);
        writer.text(memory.after);
        writer.text("}");
    }
    writer.text("\n ]\n}\n");
}

/// One row of CSV for each global rank.
void write_csv_of_ranks(std::ostream& out, const Stages& stages, const Workload& work, const Layout& layout) {
    ListWriter writer(out);
    std::vector<reports::Table::Column> columns;
    for (auto& name : reports::stage_memory_csv_columns()) columns.push_back({std::move(name)});
    for (auto& name : reports::stage_use_csv_columns()) columns.push_back({std::move(name)});
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < stages.memory.size(); ++i) {
        reports::Table row(columns);
        auto cells = reports::stage_memory_csv_row(stages.memory[i], work.memory_limit);
        if (const auto* use = stages.use_of(i)) {
            for (auto& cell : reports::stage_use_csv_row(*use)) cells.push_back(std::move(cell));
        }
        row.add_row(std::move(cells));
        const std::string both = row.to_csv();
        const std::size_t header_end = both.find('\n') + 1;
        if (texts.empty()) writer.text("rank,stage," + both.substr(0, header_end));
        texts.push_back(both.substr(header_end));
    }
    for (std::int64_t rank = 0; rank < work.world; ++rank) {
        const std::int64_t stage = stage_of_rank(layout.sizes, rank);
        writer.number(rank);
        writer.text(",");
        writer.number(stage);
        writer.text(",");
        writer.text(texts[static_cast<std::size_t>(stage)]);
    }
}

/// The search's estimate decides what fits; where the exact timeline says otherwise, that is worth a word.
void warn_where_exact_differs(const StageMemories& memories, const simulator::MemoryPrediction& estimate, Console& console) {
    const reports::StageMemory& worst = *std::max_element(memories.stages.begin(), memories.stages.end(), [](const auto& a, const auto& b) {
        return a.memory.deciding_bytes() < b.memory.deciding_bytes();
    });
    const bool fits = worst.memory.deciding_bytes() <= estimate.limit_bytes;
    if (!worst.exact || fits == estimate.fits()) return;
    console.err << fmt::format("mgplan: the search's estimate is {} of {}, the exact timeline of stage {} {}: {}\n",
                               human_bytes(estimate.deciding_bytes()), human_bytes(estimate.limit_bytes), worst.stage,
                               fits ? "fits" : "does not fit", human_bytes(worst.memory.deciding_bytes()));
}

}  // namespace

int run_simulate(const std::vector<std::string>& args, Console& console) {
    Options options("simulate (PLAN | --model CFG --world N --tp T … | --megatron-args FILE --world N) [options]",
                    "Predicts memory and time of one layout. Exit code 3 when it does not fit; the prediction is printed all the same.");
    WorkloadOptions workload_options;
    LayoutOptions layout_options;
    std::vector<std::string> plan_files;
    bool per_rank = false, balance_stages = false, markdown = false;
    DisturbanceOptions disturbances;
    std::string device = "cuda";
    std::optional<std::string> timeline, html;
    std::optional<std::string> kind;
    const auto check_kind = [](const std::string& given, Problems& problems) {
        std::vector<std::string> kinds{"auto", "none", "1f1b", "interleaved"};
        for (const auto& name : split_schedule_names()) kinds.push_back(name);
        if (std::find(kinds.begin(), kinds.end(), given) == kinds.end())
            problems.add("--kind = '{}' is not known; use {}", given, any_of_text(kinds));
    };
    options.positional("PLAN", plan_files, 1, "a plan written by --save-plan");
    declare_workload_options(options, workload_options, true);
    declare_layout_options(options, layout_options);
    options.flag("balance-stages", balance_stages,
                 "replace the split by the layers per stage that make the slowest stage fastest, where that is faster and fits");
    declare_disturbance_options(options, disturbances);
    options.group("Answer");
    options.flag("per-rank", per_rank,
                 "memory and time of every stage, with the op at the memory's peak and a drawing of the fullest rank's iteration; in JSON "
                 "and CSV of "
                 "every rank");
    options.flag("markdown", markdown, "the layout, its time and its memory as tables of Markdown, for a pull request");
    options.output_file("html", html,
                        "write a page of its own: where the time goes, the pipeline as it runs, memory over the iteration, rank groups");
    options.choice("device", device, {"cuda", "cpu"},
                   "whose scratch and context --per-rank and --html count: the cluster's GPUs, or CPU ranks as run has them");
    options.checked("kind", kind, "KIND", check_kind,
                    "pipeline schedule: none, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe-v; without it "
                    "as Megatron-LM runs the layout, whose memory is shown for all");
    options.output_file("timeline", timeline, "write a trace of the iteration that Perfetto and chrome://tracing open");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;

    if (markdown && (options.format() != Format::table || per_rank))
        throw ConfigError(fmt::format("--markdown is a form of the table{}; drop one of the two",
                                      per_rank ? " without --per-rank" : ", which --format leaves out"));
    Workload work;
    Layout layout;
    std::vector<std::string> assumed;
    std::optional<importers::FlagAccount> flags;  // of a Megatron-LM command
    if (!plan_files.empty()) {
        refuse_what_a_plan_holds(options);
        Plan plan = read_asked_plan(options, plan_files.front());
        refuse_counted_only(plan.model, plan_files.front() + ": model");
        work = {plan.model,  plan.cluster, plan.batch, plan.training, plan.layout.sizes.world, false, plan.cluster.memory_bytes,
                plan.routing};
        if (options.given("cluster")) {
            work.cluster = load_asked_cluster(options, workload_options.cluster);
            work.memory_limit = work.cluster.memory_bytes;
        }
        if (workload_options.max_memory) work.memory_limit = *workload_options.max_memory;
        if (workload_options.routing_skew) work.routing = load_routing_skew(options, *workload_options.routing_skew, work.model);
        layout = plan.layout;
        note_assumed_architecture(work.model, console);
        auto broken = planner::broken_messages(work, layout);
        if (!broken.empty()) throw ConfigError(std::move(broken));
    } else {
        ResolvedWorkload resolved = resolve_workload(options, workload_options);
        work = resolved.workload;
        work.confine_tp = false;
        assumed = resolved.assumed;
        if (resolved.job.layout) flags = resolved.job.flags;
        layout = planner::make_layout(request_from(layout_options, resolved), work);
        for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
        note_idle_options(options, work, layout, layout_options, console);
    }
    note_idle_workload_options(options, workload_options, work.model, console);
    options.note_idle(console, "device", !per_rank && !html, "only --per-rank and --html show scratch and context by device");

    if (!layout.cuda_graphs.empty()) {
        if (const auto assumption = simulator::assumed_graph_node_bytes(work.cluster)) assumed.push_back(*assumption);
    }
    const SimulatedSchedule schedule = simulated_schedule(kind.value_or("auto"), layout);
    if (timeline) check_replayable("--timeline", layout);
    if (disturbances.any()) check_replayable("--straggler and --jitter", layout);
    if (balance_stages && schedule.order)
        throw ConfigError(
            fmt::format("--balance-stages balances for the schedules of Megatron-LM, not for --kind {}; drop one of them", schedule.kind));
    options.note_idle(console, "seed", disturbances.jitter_percent == 0, "only --jitter draws");
    simulator::CostModel model(work);
    std::optional<planner::BalancedLayout> balanced;
    if (balance_stages) {
        balanced = planner::balance_layout(model, work, layout);
        layout = balanced->layout;
    }
    simulator::Prediction prediction = model.predict_exactly(layout);
    if (schedule.order) {
        prediction.time = model.timeline(layout, *schedule.order, false).step.time;
        assumed.push_back(fmt::format("the memory of schedule {} (of {}, the activations follow peak_live)",
                                      layout.vpp > 1 ? "interleaved" : "1f1b", schedule.kind));
    }
    std::optional<DisturbedIteration> disturbed;
    if (disturbances.any()) {
        disturbed = disturbed_iteration(disturbances, layout, [&](const std::vector<double>& slowdown) {
            return timeline_of(model, layout, schedule, false, slowdown);
        });
        prediction.time = disturbed->time;
    }
    const std::vector<double> slowdown = disturbed ? disturbed->slowdown : std::vector<double>{};
    std::vector<simulator::StageUse> use;
    if (per_rank && simulator::CostModel::passes(layout) <= simulator::kMostReplayedPasses)
        use = timeline_of(model, layout, schedule, false, slowdown).step.stages;
    StageMemories memories;
    if (per_rank || html) {
        memories = stage_memories(model, work, layout, device == "cpu" ? model::DeviceKind::cpu : model::DeviceKind::cuda);
        warn_where_exact_differs(memories, prediction.memory, console);
    }
    std::optional<simulator::LayoutTimeline> replayed;
    if (timeline || html) replayed = timeline_of(model, layout, schedule, true, slowdown);
    if (timeline) {
        const std::string title = fmt::format("{}, {}", summary(layout), schedule.kind);
        if (!write_output_file(*timeline, [&](std::ostream& out) { write_trace(out, model, *replayed, work, layout, schedule, title); }))
            throw RunError(fmt::format("--timeline {}: the file cannot be written any more; is the disk full?", *timeline));
    }
    if (html) {
        std::vector<std::string> details = layout_lines(layout);
        if (!assumed.empty()) details.push_back(fmt::format("assumed: {}", fmt::join(assumed, ", ")));
        for (const std::string& text :
             {balanced ? balanced_text(*balanced) : "", disturbed ? disturbed_text(disturbances, *disturbed) : ""}) {
            for (const auto& line : split(text, '\n')) {
                if (!line.empty()) details.push_back(line);
            }
        }
        const std::string page = layout_page(memories, work, layout, details, prediction, replayed, schedule.kind);
        if (!write_output_file(*html, [&](std::ostream& out) { out << page; }))
            throw RunError(fmt::format("--html {}: the file cannot be written any more; is the disk full?", *html));
    }
    if (options.format() == Format::json) {
        Json json{{"model", reports::model_summary_to_json(work.model)},
                  {"assumed_architecture", reports::assumed_architecture_to_json(work.model)},
                  {"layout", reports::layout_fields(work, layout)},
                  {"predicted", reports::prediction_to_json(prediction)},
                  {"assumed", assumed}};
        if (flags) reports::add_flag_account(json, *flags);
        if (schedule.order) {
            Json live = Json::array();
            for (int rank = 0; rank < schedule.order->pp; ++rank) live.push_back(peak_live(*schedule.order, rank));
            json["schedule"] = Json{{"kind", schedule.kind}, {"chunks", schedule.order->chunks}, {"peak_live", live}};
        }
        if (balanced) {
            json["balanced"] =
                Json{{"seconds_before", balanced->seconds_before}, {"seconds", balanced->seconds}, {"gain", balanced->gain()}};
            json["balanced"]["why_not"] = balanced->why_not.empty() ? Json() : Json(balanced->why_not);
        }
        if (disturbed) json["disturbed"] = disturbed_to_json(disturbances, *disturbed);
        if (const auto replay = model.replay_allocator(layout, prediction.memory.worst_stage))
            json["predicted"]["memory"]["allocator_replay"] = reports::reserved_memory_to_json(*replay);
        if (per_rank)
            options.write(console, [&](std::ostream& out) { write_with_ranks(out, json, {memories.stages, use}, work, layout); });
        else
            options.write(console, json.dump(1) + "\n");
    } else if (options.format() == Format::csv && per_rank) {
        options.write(console, [&](std::ostream& out) { write_csv_of_ranks(out, {memories.stages, use}, work, layout); });
    } else if (options.format() == Format::csv || markdown) {
        reports::PlanReport report;
        report.workload = work;
        report.plans.push_back({layout, prediction});
        report.assumed = assumed;
        report.detail = reports::Detail::wide;
        options.write(console, markdown ? reports::plan_report_markdown(report) : reports::plan_report_csv(report));
    } else {
        options.write(console, reports::workload_text(work) + reports::assumed_text(assumed) +
                                   (flags ? reports::flag_account_text(*flags) : std::string()) + "\n" +
                                   reports::layout_text(layout, prediction) + (balanced ? balanced_text(*balanced) : std::string()) +
                                   (disturbed ? disturbed_text(disturbances, *disturbed) : std::string()) +
                                   (per_rank ? stage_memories_text(memories, work.memory_limit) : std::string()) +
                                   (per_rank && !use.empty() ? reports::stage_use_text(use) : std::string()));
    }
    hand_over_plan(console, work, layout);
    // Where a flag that decides it is not computed, nothing is said about it.
    return prediction.memory.fits() || (flags && reports::leaves_fit_open(*flags)) ? kDone : kNothingFits;
}

}  // namespace mgplan::cli
