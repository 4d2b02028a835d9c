#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/disturbances.hpp"
#include "cli/job_source.hpp"
#include "cli/layout_page.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/plan_file.hpp"
#include "cli/schedule_option.hpp"
#include "cli/simulate_answer.hpp"
#include "cli/simulated_schedule.hpp"
#include "cli/stage_memories.hpp"
#include "cli/workload_options.hpp"
#include "formats/model_source.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"
#include "planner/training_course.hpp"
#include "reports/flag_account.hpp"
#include "reports/memory_snapshot.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The layout's own options; given ones replace those of a Megatron-LM argument file.
struct LayoutOptions {
    std::optional<std::int64_t> tp, cp, ep, etp, pp, vpp, group_size, micro_batch, recompute_num_layers, first_stage_layers,
        last_stage_layers;
    std::optional<std::string> recompute, recompute_method, sequence_parallel, cp_comm_type, pipeline_layout, order;
    std::vector<std::string> recompute_modules;
    bool account_for_embedding = false, account_for_loss = false;
    std::optional<std::string> cuda_graphs, schedule, dispatcher;
};

void declare_layout_options(Options& options, LayoutOptions& values) {
    options.group("The layout");
    options.integer("tp", values.tp, 1, kMostRanks, "tensor parallel size (default: 1)");
    options.integer("cp", values.cp, 1, kMostRanks, "context parallel size (default: 1)");
    options.integer("ep", values.ep, 1, kMostRanks, "expert parallel size (default: 1)");
    options.integer("etp", values.etp, 1, kMostRanks, "expert tensor parallel size (default: tp)");
    options.integer("pp", values.pp, 1, 65536, "pipeline parallel size (default: 1)");
    options.integer("vpp", values.vpp, 1, 65536, "model chunks per pipeline rank (default: 1)");
    options.integer("micro-batch", values.micro_batch, 1, 65536, "sequences per microbatch (default: 1)");
    options.choice("recompute", values.recompute, {"none", "selective", "full"}, "activation recompute (default: none)");
    options.choices("recompute-modules", values.recompute_modules, recompute_module_names(),
                    "modules that selective recompute recomputes (default: core_attn)");
    options.choice("recompute-method", values.recompute_method, {"uniform", "block"}, "method of full recompute (default: uniform)");
    options.integer("recompute-num-layers", values.recompute_num_layers, 1, 65536,
                    "uniform: layers per checkpoint; block: layers recomputed per chunk (default: 1)");
    options.choice("sequence-parallel", values.sequence_parallel, {"auto", "on", "off"},
                   "sequence parallelism; auto: on where tp > 1 (default: auto)");
    options.choice("cp-comm-type", values.cp_comm_type, {"p2p", "all_gather", "a2a"},
                   "how context-parallel ranks exchange keys and values (default: p2p)");
    options.integer("group-size", values.group_size, 1, 1 << 20, "microbatch group of the interleaved schedule (default: pp)");
    options.choice("schedule", values.schedule, schedule_choices(),
                   "pipeline schedule. auto: Megatron-LM's for pp and vpp. The others, with split backward passes, need --engine mgplan "
                   "(default: auto)");
    options.text("pipeline-layout", values.pipeline_layout, "STRING", "layers per stage as in Megatron-LM (default: even)");
    options.integer("first-stage-layers", values.first_stage_layers, 1, 65536, "layers of the first pipeline rank (default: even)");
    options.integer("last-stage-layers", values.last_stage_layers, 1, 65536, "layers of the last pipeline rank (default: even)");
    options.flag("account-for-embedding", values.account_for_embedding, "count the embedding as a layer of the split");
    options.flag("account-for-loss", values.account_for_loss, "count the loss as a layer of the split");
    options.checked("order", values.order, "AXES", check_axis_order, "rank order, fastest axis first (default: tp-cp-ep-dp-pp)");
    options.text("cuda-graphs", values.cuda_graphs, "none|SCOPE[,SCOPE...]",
                 "scopes of CUDA graphs: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: none)");
    options.choice("dispatcher", values.dispatcher, dispatcher_words(), "MoE token dispatcher, engine megatron (default: the model's)");
}

/// Makes the request from words that were checked when they were read.
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
    if (values.schedule) request.schedule = parse_split_schedule(*values.schedule);
    if (request.schedule && !values.vpp) {
        request.vpp = chunks_of(*request.schedule);
        request.layers_per_virtual_stage.reset();
    }
    if (values.group_size) request.group_size = *values.group_size;
    if (values.micro_batch) request.micro_batch = *values.micro_batch;
    if (values.recompute) request.recompute = *parse_recompute(*values.recompute);
    if (values.recompute_method) request.recompute_method = *parse_recompute_method(*values.recompute_method);
    if (values.cp_comm_type) request.cp_comm_type = *parse_cp_comm_type(*values.cp_comm_type);
    if (!values.recompute_modules.empty())
        request.recompute_modules = recompute_module_set(values.recompute_modules);
    else if (!resolved.job.layout)
        request.recompute_modules = usual_recompute_modules(resolved.workload.model);
    if (values.recompute_num_layers) request.recompute_num_layers = request.mhc_recompute_layers = *values.recompute_num_layers;
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
    ModelSpec model = resolved.workload.model;
    if (values.dispatcher) {
        if (!model.moe) problems.add("--dispatcher needs experts, and {} has none; leave it out", model.name);
        LayoutSwitches switches;
        switches.dispatcher = parse_dispatcher_word(*values.dispatcher);
        request.switches = switches_beyond(switches, model, resolved.workload.training);
        if (model.moe) model.moe->dispatcher = *switches.dispatcher;
    }
    if (values.cuda_graphs) {
        request.cuda_graphs = read_graph_scopes(*values.cuda_graphs, problems);
        if (problems.empty() && !request.cuda_graphs.empty()) check_graph_scopes(request.cuda_graphs, model, problems);
    }
    problems.throw_if_any();
    return request;
}

/// Prints the options that change nothing for this layout.
void note_idle_options(const Options& options, const Workload& work, const Layout& layout, const LayoutOptions& values, Console& console) {
    const std::string no_experts = fmt::format("{} has no experts", work.model.name);
    options.note_idle(console, "ep", !work.model.moe && values.ep != 1, no_experts);
    options.note_idle(console, "etp", !work.model.moe && values.etp != layout.sizes.etp, no_experts);
    options.note_idle(console, "recompute-modules", layout.recompute != Recompute::selective, "recompute is not selective");
    options.note_idle(console, "recompute-method", layout.recompute != Recompute::full, "recompute is not full");
    options.note_idle(console, "recompute-num-layers",
                      layout.recompute != Recompute::full && !layout.recompute_modules.contains(RecomputeModule::mhc),
                      "recompute is not full");
    options.note_idle(console, "sequence-parallel", layout.sizes.tp == 1 && values.sequence_parallel == "on", "tp is 1");
    options.note_idle(console, "cp-comm-type", layout.sizes.cp == 1, "cp is 1");
    options.note_idle(console, "group-size", layout.vpp == 1, "vpp is 1");
    if (layout.schedule)
        options.note_idle(console, "group-size", layout.vpp > 1, fmt::format("schedule {} has no groups", to_string(*layout.schedule)));
    const bool whole = layout.sizes.pp == 1;
    options.note_idle(console, "account-for-embedding", whole, "pp is 1");
    options.note_idle(console, "account-for-loss", whole, "pp is 1");
}

/// A plan contains model, batch, training options and layout: throws ConfigError for all options but those that judge or print it.
void refuse_what_a_plan_holds(const Options& options) {
    constexpr std::array<std::string_view, 16> kBesidePlan{
        "cluster", "max-memory", "routing-skew",    "per-rank", "html",      "markdown", "device",         "format",
        "output",  "timeline",   "memory-snapshot", "kind",     "straggler", "jitter",   "balance-stages", "seed"};
    Problems problems;
    for (const auto& name : options.given()) {
        if (std::find(kBesidePlan.begin(), kBesidePlan.end(), name) != kBesidePlan.end()) continue;
        problems.add(
            "--{} cannot be combined with a PLAN, which holds model, batch and layout; drop --{}, or give --model … in place of the plan",
            name, name);
    }
    problems.throw_if_any();
}

/// Sets mgplan's own engine for a schedule that splits the backward pass, which Megatron-LM does not have. `named`: --engine or a command
/// gave the engine.
void use_engine_of_schedule(const std::string& kind, bool named, const Workload& work, Layout& layout, std::vector<std::string>& assumed) {
    if (!parse_split_schedule(kind) || layout.engine != Engine::megatron) return;
    if (named)
        throw ConfigError(fmt::format(
            "--kind {} is a schedule of mgplan's own engine, and Megatron-LM has none like it; use --engine mgplan, or --kind {}", kind,
            layout.vpp > 1 ? "interleaved" : "1f1b"));
    layout.engine = Engine::mgplan;
    if (auto broken = planner::broken_messages(work, layout); !broken.empty()) throw ConfigError(std::move(broken));
    std::erase(assumed, fmt::format("engine {}", to_string(Engine::megatron)));
    assumed.push_back(fmt::format("engine mgplan, whose schedule {} is", kind));
}

/// Warns if the search's estimate, which decides what fits, and the exact timeline differ in that.
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

SimulatedLayout asked_by_plan(const Options& options, const WorkloadOptions& values, const std::string& file, Console& console) {
    refuse_what_a_plan_holds(options);
    Plan plan = read_asked_plan(options, file);
    refuse_counted_only(plan.model, file + ": model");
    SimulatedLayout asked;
    Workload& work = asked.work;
    work = workload_of(plan);
    if (options.given("cluster")) {
        work.cluster = load_asked_cluster(options, values.cluster);
        work.memory_limit = work.cluster.memory_bytes;
    }
    if (values.max_memory) work.memory_limit = *values.max_memory;
    if (values.routing_skew && work.model.moe && work.training.megatron.forced_routing)
        throw ConfigError(fmt::format(
            "{} draws experts at random (--moe-router-force-load-balancing), and --routing-skew says how uneven a router is; drop "
            "--routing-skew",
            file));
    if (values.routing_skew) work.routing = load_routing_skew(options, *values.routing_skew, work.model);
    asked.layout = plan.layout;
    asked.batches = plan.batches;
    note_assumed_architecture(work.model, console);
    auto broken = planner::broken_messages(work, asked.layout);
    if (!broken.empty()) throw ConfigError(std::move(broken));
    return asked;
}

SimulatedLayout asked_by_options(const Options& options, const WorkloadOptions& values, const LayoutOptions& layout_options,
                                 Console& console) {
    ResolvedWorkload resolved = resolve_workload(options, values);
    if (const auto divided = parse_split_schedule(layout_options.schedule.value_or("auto")))
        imply_engine(*divided, options, resolved, console);
    const LayoutRequest request = request_from(layout_options, resolved);
    decrease_batch(resolved, request);
    warn_of_kept_shards(resolved, request.tp, request.etp.value_or(request.tp));
    SimulatedLayout asked;
    asked.work = resolved.workload;
    asked.work.confine_tp = false;
    asked.work.newest_rules = false;
    asked.assumed = resolved.assumed;
    asked.batch_source = resolved.batch_source;
    if (resolved.job.layout) asked.flags = resolved.job.flags;
    asked.batches = resolved.batches;
    asked.layout = planner::make_layout(request, asked.work);
    if (asked.work.model.moe && !request.etp && request.tp > 1)
        asked.assumed.push_back(fmt::format("etp {} (= tp, as Megatron-LM)", asked.layout.sizes.etp));
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
    note_idle_options(options, asked.work, asked.layout, layout_options, console);
    return asked;
}

void check_kind(const std::string& given, Problems& problems) {
    std::vector<std::string> kinds{"auto", "none", "1f1b", "interleaved"};
    for (const auto& name : split_schedule_names()) kinds.push_back(name);
    if (std::find(kinds.begin(), kinds.end(), given) == kinds.end())
        problems.add("--kind = '{}' is not known; use {}", given, any_of_text(kinds));
}

struct SimulateOptions {
    std::vector<std::string> plan_files;
    bool per_rank = false, balance_stages = false, markdown = false;
    DisturbanceOptions disturbances;
    std::string device = "cuda";
    std::optional<std::string> timeline, memory_snapshot, html, kind;
};

void declare_simulate_options(Options& options, WorkloadOptions& workload, LayoutOptions& layout, SimulateOptions& values) {
    options.positional("PLAN", values.plan_files, 1, "a plan written by --save-plan");
    declare_workload_options(options, workload, true);
    declare_layout_options(options, layout);
    options.flag("balance-stages", values.balance_stages,
                 "replace the split by the layers per stage that make the slowest stage fastest, where that is faster and fits");
    declare_disturbance_options(options, values.disturbances);
    options.group("Answer");
    options.flag("per-rank", values.per_rank,
                 "memory and time of every stage (of every rank in JSON and CSV), with the op at the memory peak and a drawing of the "
                 "fullest rank's iteration");
    options.flag("markdown", values.markdown, "print Markdown tables, for a pull request");
    options.output_file("html", values.html, "write an interactive HTML report: time, pipeline, memory over the iteration, rank groups");
    options.choice("device", values.device, {"cuda", "cpu"},
                   "device whose scratch and context --per-rank and --html count: the cluster's GPUs, or the CPU ranks of run");
    options.checked("kind", values.kind, "KIND", check_kind,
                    "pipeline schedule: none, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe-v, for the time alone "
                    "(default: the layout's)");
    options.output_file("timeline", values.timeline, "write a trace of the iteration for Perfetto and chrome://tracing");
    options.output_file("memory-snapshot", values.memory_snapshot,
                        "write the replayed allocator of the fullest rank as a memory snapshot of PyTorch, for pytorch.org/memory_viz");
}

/// Returns the whole training by a command's schedule; nothing, with a message on stderr, if one of its batches does not suit the layout.
std::optional<TrainingCourse> training_of(const SimulatedLayout& asked, simulator::CostModel& model, Console& console) {
    if (!asked.batches.stated()) return std::nullopt;
    try {
        return planner::training_course(asked.work, asked.layout, asked.batches, model);
    } catch (const ConfigError& error) {
        console.err << "mgplan: nothing is said of the whole training: " << error.what() << "\n";
        return std::nullopt;
    }
}

/// Throws ConfigError if the allocator of the layout's ranks is not replayed.
void check_recordable(const Layout& layout) {
    if (layout.engine != Engine::megatron)
        throw ConfigError(fmt::format(
            "--memory-snapshot replays PyTorch's allocator, and engine {} places its tensors itself; use --engine megatron, or drop "
            "--memory-snapshot",
            to_string(layout.engine)));
    if (!layout.cuda_graphs.empty())
        throw ConfigError(fmt::format(
            "--memory-snapshot replays PyTorch's allocator, and CUDA graphs (cuda-graphs = {}) allocate from pools of their own, which are "
            "not replayed; use a layout with --cuda-graphs none, or drop --memory-snapshot",
            fmt::join(names_in(layout.cuda_graphs), ",")));
}

/// Writes the fullest rank's replay.
reports::SnapshotSummary write_snapshot(const std::string& path, const Layout& layout, const simulator::MemoryPrediction& memory,
                                        simulator::CostModel& model) {
    const simulator::AllocatorHistory history = model.record_allocator(layout, memory.worst_stage);
    if (!history.as_predicted)
        throw ConfigError(fmt::format(
            "--memory-snapshot replays Adam on the GPU with the distributed optimizer or without it: {} of parameters, gradients "
            "and optimizer state on rank {}, where this layout has {} (FSDP, another optimizer, or state on the host); use "
            "--sharding optimizer and --optimizer adam, or drop --memory-snapshot",
            human_bytes(history.replayed_state), memory.worst_rank, human_bytes(history.predicted_state)));
    if (history.record.parts.empty())
        throw ConfigError(
            fmt::format("--memory-snapshot: an iteration of rank {} has {} allocations (pp {}, vpp {}, groups of {} microbatches), and a "
                        "snapshot holds at most {}; use a smaller --group-size, --vpp or --pp, or drop --memory-snapshot",
                        memory.worst_rank, with_thousands(std::ssize(history.allocations.iteration)), layout.sizes.pp, layout.vpp,
                        layout.group_size, with_thousands(simulator::kMostRecorded)));
    reports::SnapshotSummary summary = reports::summary_of(history, memory.worst_rank, memory.worst_stage, layout.num_microbatches);
    summary.file = path;
    if (!write_output_file(path, [&](std::ostream& out) { reports::write_memory_snapshot(out, history, summary); }))
        throw RunError(fmt::format("--memory-snapshot {}: the file cannot be written any more; is the disk full?", path));
    return summary;
}

/// Writes the files of --timeline and --html.
void write_files(const SimulateOptions& values, const SimulateAnswer& answer, const std::vector<double>& slowdown,
                 simulator::CostModel& model) {
    if (!values.timeline && !values.html) return;
    const Workload& work = answer.asked.work;
    const Layout& layout = answer.asked.layout;
    const simulator::LayoutTimeline replayed = timeline_of(model, layout, answer.schedule, true, slowdown);
    if (values.timeline) {
        const std::string title = fmt::format("{}, {}", summary(layout, work.model, work.training), answer.schedule.kind);
        const auto write = [&](std::ostream& out) { write_trace(out, model, replayed, work, layout, answer.schedule, title); };
        if (!write_output_file(*values.timeline, write))
            throw RunError(fmt::format("--timeline {}: the file cannot be written any more; is the disk full?", *values.timeline));
    }
    if (values.html) {
        const std::string page =
            layout_page(answer.memories, work, layout, details_of(answer), answer.prediction, replayed, answer.schedule.kind);
        if (!write_output_file(*values.html, [&](std::ostream& out) { out << page; }))
            throw RunError(fmt::format("--html {}: the file cannot be written any more; is the disk full?", *values.html));
    }
}

}  // namespace

int run_simulate(const std::vector<std::string>& args, Console& console) {
    Options options("simulate (PLAN | --model CFG --world N --tp T … | --megatron-args FILE --world N) [options]",
                    "Predicts memory and time of one layout. Exit code 3 when it does not fit; the prediction is printed all the same.");
    WorkloadOptions workload_options;
    LayoutOptions layout_options;
    SimulateOptions values;
    declare_simulate_options(options, workload_options, layout_options, values);
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;
    const auto& [plan_files, per_rank, balance_stages, markdown, disturbances, device, timeline, memory_snapshot, html, kind] = values;

    if (markdown && (options.format() != Format::table || per_rank))
        throw ConfigError(fmt::format("--markdown is a form of the table{}; drop one of the two",
                                      per_rank ? " without --per-rank" : ", which --format leaves out"));
    SimulatedLayout asked = plan_files.empty() ? asked_by_options(options, workload_options, layout_options, console)
                                               : asked_by_plan(options, workload_options, plan_files.front(), console);
    Workload& work = asked.work;
    Layout& layout = asked.layout;
    std::vector<std::string>& assumed = asked.assumed;
    note_idle_workload_options(options, workload_options, work.model, console);
    options.note_idle(console, "device", !per_rank && !html, "only --per-rank and --html show scratch and context by device");

    if (kind) use_engine_of_schedule(*kind, options.given("engine") || is_command(workload_options), work, layout, assumed);
    if (!layout.cuda_graphs.empty()) {
        if (const auto assumption = simulator::assumed_graph_node_bytes(work.cluster)) assumed.push_back(*assumption);
    }
    const SimulatedSchedule schedule = simulated_schedule(kind.value_or("auto"), layout);
    if (timeline) check_replayable("--timeline", layout);
    if (memory_snapshot) check_recordable(layout);
    if (disturbances.any()) check_replayable("--straggler and --jitter", layout);
    if (balance_stages && (schedule.order || layout.schedule))
        throw ConfigError(
            fmt::format("--balance-stages balances for the schedules of Megatron-LM, not for {}; drop one of them", schedule.kind));
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
    std::optional<TrainingCourse> training;
    if (!schedule.order && !disturbed) training = training_of(asked, model, console);
    std::optional<reports::SnapshotSummary> snapshot;
    if (memory_snapshot) snapshot = write_snapshot(*memory_snapshot, layout, prediction.memory, model);
    const SimulateAnswer answer{.asked = asked,
                                .prediction = prediction,
                                .schedule = schedule,
                                .balanced = balanced,
                                .disturbances = disturbances,
                                .disturbed = disturbed,
                                .memories = memories,
                                .use = use,
                                .training = training,
                                .snapshot = snapshot,
                                .per_rank = per_rank,
                                .markdown = markdown};
    write_files(values, answer, slowdown, model);
    write_simulate_answer(options, answer, model, console);
    hand_over_plan(console, work, layout, asked.batches);
    // If a flag that decides the fit is not computed, the exit code claims no misfit.
    return prediction.memory.fits() || (asked.flags && reports::leaves_fit_open(*asked.flags)) ? kDone : kNothingFits;
}

}  // namespace mgplan::cli
