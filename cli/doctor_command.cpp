#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/job_source.hpp"
#include "cli/log_comparison.hpp"
#include "cli/options.hpp"
#include "cli/workload_options.hpp"
#include "formats/megatron/logged_arguments.hpp"
#include "formats/megatron/megatron_log.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "planner/constraints.hpp"
#include "planner/what_if.hpp"
#include "reports/diagnosis.hpp"
#include "reports/layout_report.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

constexpr std::int64_t kMostUpdates = 100000;
/// Differences of less are noise of the log.
constexpr double kWorthNaming = 0.005;
/// A change over the length of a log counts from this share on, and with this number of lines.
constexpr double kDrift = 0.05;
constexpr std::int64_t kLinesOfDrift = 9;

struct DoctorOptions {
    std::vector<std::string> files;  ///< the log, the command
    std::int64_t updates = 1;
};

// ---- what the log shows

const formats::LoggedTimer* timer_of(const formats::MegatronLog& log, std::string_view name) {
    const auto found = std::find_if(log.timers.begin(), log.timers.end(), [name](const auto& one) { return one.name == name; });
    return found == log.timers.end() ? nullptr : &*found;
}

/// The first and the last third of the steps differ.
void add_drift(const formats::SteadyIterations& steady, bool experts, std::vector<reports::ShownCause>& shown) {
    if (steady.lines < kLinesOfDrift) return;
    const std::string evidence =
        fmt::format("first third {}, last third {}", human_seconds(steady.early_seconds), human_seconds(steady.late_seconds));
    if (steady.early_seconds > (1 + kDrift) * steady.late_seconds)
        shown.push_back({experts ? "start of the routing" : "start-up", evidence,
                         experts ? "judge later steps: the router's balance settles; --moe-router-force-load-balancing for a test"
                                 : "judge later steps",
                         steady.median_seconds - steady.late_seconds});
    else if (steady.late_seconds > (1 + kDrift) * steady.early_seconds)
        shown.push_back({"steps get slower", evidence,
                         "clocks and temperature (nvidia-smi -q -d PERFORMANCE), longer documents, the allocator's retries",
                         steady.median_seconds - steady.early_seconds});
}

/// Timers of --timing-log-level that exceed the prediction, or differ between ranks.
void add_timers(const formats::MegatronLog& log, const simulator::TimePrediction& predicted, const Layout& layout,
                std::vector<reports::ShownCause>& shown) {
    if (const auto* data = timer_of(log, "batch-generator"); data != nullptr && data->most > predicted.fixed_seconds())
        shown.push_back({"data", fmt::format("timer batch-generator: up to {}", human_seconds(data->most)),
                         "--num-workers, faster storage, a data cache on local disks", data->most - predicted.fixed_seconds()});
    if (const auto* update = timer_of(log, "optimizer"); update != nullptr && update->most > predicted.optimizer_seconds)
        shown.push_back({"optimizer",
                         fmt::format("timer optimizer: up to {}, predicted {}", human_seconds(update->most),
                                     human_seconds(predicted.optimizer_seconds)),
                         "--use-distributed-optimizer, --optimizer-cpu-offload off", update->most - predicted.optimizer_seconds});
    // Stages of a pipeline differ anyway.
    const auto* forward = timer_of(log, "forward-compute");
    const auto* backward = timer_of(log, "backward-compute");
    if (layout.sizes.pp > 1 || forward == nullptr || backward == nullptr) return;
    const double least = forward->least + backward->least, most = forward->most + backward->most;
    shown.push_back({"straggler",
                     fmt::format("timers forward-compute and backward-compute: {} on the fastest rank, {} on the slowest",
                                 human_seconds(least), human_seconds(most)),
                     "--log-straggler names the rank; take its node out", most - least});
}

std::vector<reports::ShownCause> shown_causes(const formats::MegatronLog& log, const formats::SteadyIterations& steady,
                                              const Workload& work, const Layout& layout, const simulator::TimePrediction& predicted) {
    std::vector<reports::ShownCause> shown;
    add_drift(steady, work.model.moe.has_value(), shown);
    add_timers(log, predicted, layout, shown);
    std::erase_if(shown, [&](const auto& cause) { return cause.seconds < kWorthNaming * steady.median_seconds; });
    std::stable_sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return shown;
}

// ---- memory

/// Allocated bytes that a router which prefers some experts would add on the stage.
std::int64_t bytes_of_skew(const Workload& work, const Layout& layout, std::int64_t stage, std::int64_t even) {
    Workload skewed = work;
    skewed.routing = {.kind = RoutingKind::zipf, .exponent = 1, .counts = {}};
    simulator::CostModel model(skewed);
    return model.stage_memory(layout, static_cast<int>(stage)).framework_bytes - even;
}

std::vector<reports::MemoryCause> memory_causes(const formats::MegatronLog& log, const Workload& work, const Layout& layout,
                                                const std::vector<reports::LoggedRankMemory>& ranks) {
    std::vector<reports::MemoryCause> causes;
    if (ranks.empty()) return causes;
    const auto& rank = *std::max_element(ranks.begin(), ranks.end(),
                                         [](const auto& a, const auto& b) { return a.measured_reserved < b.measured_reserved; });
    const auto least = static_cast<std::int64_t>(0.01 * static_cast<double>(work.cluster.memory_bytes));
    if (rank.measured_allocated > 0 && rank.measured_reserved > 0) {
        const std::int64_t measured = rank.measured_reserved - rank.measured_allocated,
                           predicted = rank.predicted_reserved - rank.predicted_allocated;
        if (measured - predicted > least)
            causes.push_back({"fragmentation",
                              fmt::format("{} reserved and not allocated, predicted {}", human_bytes(measured), human_bytes(predicted)),
                              "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", measured - predicted, true});
        const std::int64_t more = rank.measured_allocated - rank.predicted_allocated;
        if (more > least) {
            if (work.model.moe && !work.training.megatron.forced_routing && work.routing.kind == RoutingKind::uniform) {
                const std::int64_t skew = bytes_of_skew(work, layout, rank.stage, rank.predicted_allocated);
                if (skew > least)
                    causes.push_back({"routing",
                                      fmt::format("if the router prefers some experts (zipf:1); {} more are allocated", human_bytes(more)),
                                      "--moe-expert-capacity-factor, --moe-layer-recompute, balance of the router", skew, false});
            }
            if (causes.empty() || causes.back().shown)
                causes.push_back({"unexplained", "allocated tensors", "a memory snapshot (--record-memory-history)", more, true});
        }
    }
    std::int64_t retries = 0;
    for (const auto& each : log.memory) retries = std::max(retries, each.retries);
    if (retries > 0)
        causes.push_back({"allocator retries", fmt::format("{}: memory was given back and asked for again, which stops the GPU", retries),
                          "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a smaller micro-batch or more recomputation", 0, true});
    return causes;
}

// ---- the job

/// The job's source: the second file, the options, or the arguments that the log prints. Returns its name.
std::string settle_job(const DoctorOptions& values, const std::string& text, WorkloadOptions& workload, Console& console) {
    const std::string& log = values.files.front();
    if (values.files.size() > 1) {
        if (is_command(workload))
            throw ConfigError(
                fmt::format("doctor: {} and an option both name a command; give one of them", values.files[1].substr(0, 100)));
        const std::string read_as = settle_source(values.files[1], workload);
        return fmt::format("{} ({})", values.files[1], read_as.empty() ? "command" : read_as);
    }
    if (is_command(workload)) return "the command";
    const auto logged = formats::logged_arguments(text, log);
    if (!logged)
        throw ConfigError(fmt::format(
            "{}: prints no arguments of Megatron-LM; give the job's command or configuration: mgplan doctor {} COMMAND --world N", log,
            log));
    if (!workload.world) workload.world = logged->world;
    if (!logged->left_out.empty())
        console.err << fmt::format("mgplan: arguments of the log that the prediction does not follow: {}\n",
                                   fmt::join(logged->left_out.begin(),
                                             logged->left_out.begin() + std::min<std::ptrdiff_t>(12, std::ssize(logged->left_out)), ", "));
    workload.megatron_args = log;
    console.texts["megatron-args"] = {fmt::format("arguments in {}", log), shell_words(logged->words)};
    return "the log's arguments";
}

}  // namespace

int run_doctor(const std::vector<std::string>& args, Console& given_console) {
    Console console = given_console;
    Options options(
        "doctor LOG [FILE] --world N [options]\n"
        "doctor LOG --megatron-args FILE --world N [options]",
        "Sets the step and the memory that the log of a job shows next to the prediction of its command, and names what explains the "
        "difference: causes that the log itself shows, then assumptions and switches by the seconds that each would change the prediction. "
        "What neither explains is called unexplained. Reads logs of Megatron-LM, Megatron-Bridge, NeMo, ms-swift and verl.");
    WorkloadOptions workload_options;
    DoctorOptions values;
    options.positional("LOG", values.files, 2,
                       "the log, and the job's launch script, command or configuration, as check takes it; without that the arguments that "
                       "Megatron-LM printed into the log");
    declare_workload_options(options, workload_options, true);
    options.group("Log");
    options.integer(
        "updates", values.updates, 1, kMostUpdates,
        "optimizer steps in one logged step; verl's update of the actor has several (train_batch_size x n / ppo_mini_batch_size x "
        "ppo_epochs)");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;
    if (values.files.empty()) throw ConfigError("LOG is missing; name the log of a job: mgplan doctor training.log train.sh --world 64");

    const std::string& path = values.files.front();
    const std::string text = read_text_file(path, "log", kMostLogBytes);
    const formats::MegatronLog log = formats::read_megatron_log(text, path);
    reports::Diagnosis diagnosis;
    diagnosis.source = settle_job(values, text, workload_options, console);
    options.use_texts(console);
    ResolvedWorkload resolved = resolve_workload(options, workload_options);
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
    if (!resolved.job.layout) throw ConfigError("doctor needs the job's layout; give its command or configuration after the log");
    Workload& work = resolved.workload;
    work.confine_tp = false;
    work.newest_rules = false;
    LayoutRequest request = *resolved.job.layout;
    request.engine = resolved.engine;
    const Layout layout = planner::make_layout(request, work);
    const formats::SteadyIterations steady = formats::steady_iterations(log, work.batch.global_batch, path);

    simulator::CostModel model(work);
    const auto updates = static_cast<double>(values.updates);
    diagnosis.log = path;
    diagnosis.framework = log.framework;
    diagnosis.workload =
        reports::workload_text(work) + reports::assumed_text(resolved.assumed) + summary(layout, work.model, work.training) + "\n\n";
    diagnosis.cluster = work.cluster.name;
    diagnosis.lines = steady.lines;
    diagnosis.updates = values.updates;
    diagnosis.measured = steady.median_seconds / updates;
    diagnosis.lower_quartile = steady.lower_quartile;
    diagnosis.upper_quartile = steady.upper_quartile;
    diagnosis.predicted = model.exact_time(layout);
    if (values.updates == 1) diagnosis.shown = shown_causes(log, steady, work, layout, diagnosis.predicted);
    if (!diagnosis.as_predicted()) diagnosis.changes = planner::what_ifs(work, layout);
    diagnosis.unused = planner::unused_switches(work, layout);
    diagnosis.pauses = steady.pauses;
    diagnosis.pause_seconds = steady.mean_seconds - steady.median_seconds;
    diagnosis.memory = compare_memory(log, model, layout, path);
    diagnosis.memory_causes = memory_causes(log, work, layout, diagnosis.memory);
    diagnosis.flops_ratio = logged_flops_ratio(steady, work);
    options.write(console, options.format() == Format::json ? reports::diagnosis_json(diagnosis)
                           : options.format() == Format::csv
                               ? reports::diagnosis_csv(diagnosis)
                               : fmt::format("read {} for the layout\n{}", diagnosis.source, reports::diagnosis_text(diagnosis)));
    return kDone;
}

}  // namespace mgplan::cli
