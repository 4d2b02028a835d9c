#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/core.h>

#include "cli/cluster_file.hpp"
#include "cli/command.hpp"
#include "cli/log_comparison.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "cli/run_command.hpp"
#include "cli/time_attribution.hpp"
#include "cli/workload_options.hpp"
#include "formats/megatron/megatron_log.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text_file.hpp"
#include "planner/constraints.hpp"
#include "reports/layout_report.hpp"
#include "reports/verification.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

/// Bounds of a refit's factors. Beyond them the error is not in the efficiencies.
constexpr double kLeastFactor = 0.5, kMostFactor = 2;

struct VerifyOptions {
    double tolerance = 10;
    std::optional<std::string> cluster, megatron_log, megatron_args, refit;
    std::optional<std::int64_t> world;
};

void declare(Options& options, VerifyOptions& values) {
    options.group("Comparison");
    options.real("tolerance", values.tolerance, 0, 1000, "allowed error of time (and of a log's memory), in percent of the measurement");
    options.text("cluster", values.cluster, "NAME[,key=value...]|FILE",
                 "cluster to predict the time for (default: the plan's, or dgx-h100)");
    options.text("megatron-log", values.megatron_log, "FILE", "log of a Megatron-LM job, instead of a run");
    options.text("megatron-args", values.megatron_args, "FILE", "the job's arguments");
    options.integer("world", values.world, 1, kMostRanks, "the job's GPUs");
    options.output_file("refit", values.refit,
                        "write a cluster file with efficiencies scaled (by 0.5 to 2, compute first) to match the log's time");
}

void write(const Options& options, Console& console, const std::string& text, const std::string& json, const std::string& csv) {
    options.write(console, options.format() == Format::json ? json : options.format() == Format::csv ? csv : text);
}

// ---- a plan that ran

int verify_run(const Options& options, const VerifyOptions& values, const RunJob& job, Console& console) {
    const std::string& path = job.plan_files().front();
    Plan plan = read_priced_plan(path);
    const ClusterSpec cluster = values.cluster ? load_cluster(*values.cluster) : plan.cluster;
    if (cluster.peak(plan.training.precision) <= 0)
        throw ConfigError(
            quantised(plan.training.precision)
                ? fmt::format("{} has no peak rate for {}, the plan's precision, which calibrate does not measure; use another cluster",
                              cluster.name, to_string(plan.training.precision))
                : fmt::format("{} has no peak rate for {}, the plan's precision; calibrate with --precision {}, or use another cluster",
                              cluster.name, to_string(plan.training.precision), to_string(plan.training.precision)));
    const auto outcome = job.train(options, console);
    if (!outcome) return kDone;
    if (!outcome->finished()) {
        console.err << fmt::format("mgplan: the run did not finish, so there is nothing to compare{}{}\n",
                                   outcome->values.problem.empty() ? "" : ": ", outcome->values.problem);
        return kRunFailed;
    }
    const Workload work = workload_of(plan, cluster);
    simulator::CostModel model(work);
    // As it ran: without graphs where they were left out.
    const simulator::TimePrediction predicted = model.exact_time(outcome->task.layout);
    reports::Verification verification;
    verification.run = outcome->values;
    verification.cluster = cluster.name;
    reports::TimeComparison& time = verification.time;
    time.predicted = predicted.iteration_seconds;
    time.measured = median_step(outcome->values);
    time.tolerance = values.tolerance / 100;
    const std::string hardware =
        outcome->traits.kind == model::DeviceKind::cuda ? outcome->values.device : runtime::hardware_name(runtime::cpu_devices());
    time.why_not_judged = why_not_judged(*outcome, cluster, hardware);
    if (outcome->values.emulated_partners) {
        attribute_alone(*outcome, cluster, time);
    } else {
        attribute(*outcome, cluster, predicted, time);
    }
    write(options, console, reports::verification_text(verification), reports::verification_json(verification),
          reports::verification_csv(verification));
    if (!outcome->values.as_predicted) console.err << "mgplan: what was held or sent differs from the prediction\n";
    if (!time.why_not_judged.empty())
        console.err << fmt::format("mgplan: the time is not judged: {}\n", time.why_not_judged);
    else if (time.misses())
        console.err << fmt::format("mgplan: the time misses the tolerance of {:g} %\n", values.tolerance);
    return verification.holds() ? kDone : kMissedTolerance;
}

// ---- the log of a Megatron-LM job

struct Factors {
    double compute = 1, communication = 1;
    bool at_bound = false;
};

/// Returns the factor within the bounds for which `excess` is 0, or the nearest bound. `excess`, of the predicted time over the measured,
/// is above 0 if the prediction is longer, and falls as the factor grows. Few calls: each may replay an iteration event by event.
template <class Excess>
double fitting_factor(const Excess& excess) {
    struct Point {
        double exponent, excess;
    };
    const auto at = [&](double exponent) { return Point{exponent, excess(std::exp(exponent))}; };
    Point low = at(std::log(kLeastFactor)), high = at(std::log(kMostFactor));
    if (low.excess <= 0) return kLeastFactor;
    if (high.excess >= 0) return kMostFactor;
    // False position on the logarithm, whose curve is all but straight; where one end stays, its excess counts half (Illinois).
    constexpr int kMostCalls = 40;
    constexpr double kMet = 1e-7;
    int moves = 0;  // of the high end in a row; below 0: of the low one
    Point met = low;
    for (int call = 0; call < kMostCalls && std::abs(met.excess) > kMet; ++call) {
        met = at(low.exponent + (high.exponent - low.exponent) * low.excess / (low.excess - high.excess));
        if (met.excess > 0) {
            low = met;
            moves = std::min(moves, 0) - 1;
            if (moves < -1) high.excess /= 2;
        } else {
            high = met;
            moves = std::max(moves, 0) + 1;
            if (moves > 1) low.excess /= 2;
        }
    }
    return std::exp(met.exponent);
}

/// Returns factors that make the predicted time the measured one: of compute alone if that is enough within bounds, else of communication
/// too.
Factors fitting_factors(const Workload& work, const Layout& layout, double measured) {
    const auto excess = [&](const Factors& factors) {
        Workload scaled = work;
        scaled.cluster = simulator::with_scaled_efficiencies(work.cluster, factors.compute, factors.communication, "");
        return simulator::CostModel(scaled).exact_seconds(layout) / measured - 1;
    };
    constexpr double kMet = 1e-3;
    Factors factors;
    const auto solve = [&](double Factors::*factor) {
        factors.*factor = fitting_factor([&](double tried) {
            Factors all = factors;
            all.*factor = tried;
            return excess(all);
        });
    };
    solve(&Factors::compute);
    if (std::abs(excess(factors)) > kMet) solve(&Factors::communication);
    factors.at_bound = std::abs(excess(factors)) > kMet;
    return factors;
}

reports::RefitResult write_refit(const std::string& path, const std::string& log, const formats::SteadyIterations& steady,
                                 const Workload& work, const Layout& layout, double predicted) {
    const Factors factors = fitting_factors(work, layout, steady.median_seconds);
    ClusterSpec cluster =
        simulator::with_scaled_efficiencies(work.cluster, factors.compute, factors.communication,
                                            fmt::format("{} x {:.4f} (compute) or x {:.4f} (communication), from the log {}",
                                                        work.cluster.name, factors.compute, factors.communication, log));
    cluster.name += "-refitted";
    cluster.calibration->complete = true;
    if (cluster.calibration->date.empty()) cluster.calibration->date = today();
    cluster.calibration->refits.push_back({log, steady.lines, steady.median_seconds, predicted, factors.compute, factors.communication});
    write_whole_file(path, "--refit", cluster_file_text(cluster));
    Workload scaled = work;
    scaled.cluster = cluster;
    simulator::CostModel model(scaled);
    return {path, factors.compute, factors.communication, predicted, model.exact_seconds(layout), factors.at_bound};
}

int verify_log(const Options& options, const VerifyOptions& values, Console& console) {
    options.try_outputs();
    const std::string& path = *values.megatron_log;
    WorkloadOptions given;
    given.world = values.world;
    given.megatron_args = values.megatron_args;
    if (values.cluster) given.cluster = *values.cluster;
    const ResolvedWorkload resolved = resolve_workload(options, given);
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
    Workload work = resolved.workload;
    work.confine_tp = false;
    work.newest_rules = false;
    LayoutRequest request = resolved.job.layout.value_or(LayoutRequest{});
    request.engine = resolved.engine;
    const Layout layout = planner::make_layout(request, work);
    const formats::MegatronLog log = formats::read_megatron_log(read_text_file(path, "--megatron-log", kMostLogBytes), path);
    const formats::SteadyIterations steady = formats::steady_iterations(log, work.batch.global_batch, path);

    simulator::CostModel model(work);
    const simulator::TimePrediction predicted = model.exact_time(layout);
    reports::LogVerification verification;
    verification.log = path;
    verification.workload =
        reports::workload_text(work) + reports::assumed_text(resolved.assumed) + summary(layout, work.model, work.training) + "\n\n";
    verification.cluster = work.cluster.name;
    verification.lines = steady.lines;
    verification.lower_quartile = steady.lower_quartile;
    verification.upper_quartile = steady.upper_quartile;
    reports::TimeComparison& time = verification.time;
    time.predicted = predicted.iteration_seconds;
    time.measured = steady.median_seconds;
    time.tolerance = verification.memory_tolerance = values.tolerance / 100;
    time.parts = {{"compute of the slowest stage", predicted.compute_seconds - predicted.recompute_seconds - predicted.host_seconds, {}},
                  {"recompute", predicted.recompute_seconds, {}},
                  {"waiting for kernel launches", predicted.host_seconds, {}},
                  {"pipeline bubble", predicted.bubble_seconds, {}},
                  {"exposed communication: tp", predicted.exposed.tp, {}},
                  {"exposed communication: cp", predicted.exposed.cp, {}},
                  {"exposed communication: ep", predicted.exposed.ep, {}},
                  {"exposed communication: dp", predicted.exposed.dp, {}},
                  {"exposed communication: pp", predicted.exposed.pp, {}},
                  {"optimizer", predicted.optimizer_seconds, {}}};
    double rest = predicted.iteration_seconds;
    for (const auto& part : time.parts) rest -= part.predicted;
    time.parts.push_back({"data, scheduler, logging", rest, {}});
    verification.predicted_tflops = predicted.model_tflops_per_gpu;
    if (steady.median_tflops_per_gpu) {
        verification.logged_tflops = steady.median_tflops_per_gpu;
        verification.flops_ratio = logged_flops_ratio(steady, work);
    }
    verification.memory = compare_memory(log, model, layout, path);
    if (values.refit) verification.refit = write_refit(*values.refit, path, steady, work, layout, time.predicted);
    write(options, console, reports::log_verification_text(verification), reports::log_verification_json(verification),
          reports::log_verification_csv(verification));
    return verification.holds() ? kDone : kMissedTolerance;
}

int verify(const Options& options, const VerifyOptions& values, const RunJob& job, Console& console) {
    const bool from_log = values.megatron_log || values.megatron_args || values.world || values.refit;
    Problems problems;
    if (from_log) {
        if (!job.plan_files().empty())
            problems.add("PLAN and --megatron-log (with --megatron-args, --world and --refit) exclude each other; give one of them");
        if (!values.megatron_log) problems.add("--megatron-log is missing; name the log of the job to compare with");
        if (!values.megatron_args) problems.add("--megatron-args is missing; name the file with the job's arguments");
        if (!values.world) problems.add("--world is missing; give the job's number of GPUs");
        for (const auto& name : options.given()) {
            if (name != "megatron-log" && name != "megatron-args" && name != "world" && name != "refit" && name != "cluster" &&
                name != "tolerance" && name != "format" && name != "output")
                problems.add("--{} cannot be combined with --megatron-log: nothing is run; drop it", name);
        }
    } else if (job.plan_files().empty()) {
        problems.add("mgplan verify needs a PLAN, or --megatron-log FILE --megatron-args FILE --world N");
    }
    problems.throw_if_any();
    return from_log ? verify_log(options, values, console) : verify_run(options, values, job, console);
}

}  // namespace

int run_verify(const std::vector<std::string>& args, Console& console) {
    try {
        Options options("verify (PLAN | --megatron-log FILE --megatron-args FILE --world N) [options]",
                        "Runs a plan for some steps, or reads the log of a Megatron-LM job, and judges the prediction by it: bytes "
                        "and collectives must be equal, the time within the tolerance (where the cluster file was calibrated on such "
                        "a machine). Exit code 5 when something judged differs.");
        VerifyOptions values;
        RunJob job;
        declare(options, values);
        job.declare(options);
        options.try_outputs_later();  // rank 0 alone writes
        if (!options.parse(args, console.out)) return kDone;
        return verify(options, values, job, console);
    } catch (const ConfigError&) {
        let_rank_0_speak();
        throw;
    }
}

}  // namespace mgplan::cli
