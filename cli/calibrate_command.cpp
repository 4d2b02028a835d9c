#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/calibration_work.hpp"
#include "cli/cluster_file.hpp"
#include "cli/command.hpp"
#include "cli/interrupt_watch.hpp"
#include "cli/launched_rank.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "cli/workload_options.hpp"
#include "plan/cluster/cluster_names.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "reports/table.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/calibration/cpu_cluster.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/comm/mpi/mpi_world.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "runtime/launch/node_name.hpp"
#include "runtime/launch/rank_from_environment.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/training_run.hpp"
#include "simulator/cluster_parameters.hpp"

namespace mgplan::cli {
namespace {

struct CalibrateValues {
    std::string device = "cpu";
    std::optional<std::string> plan, cluster;
    ShapesToMeasure shapes{std::nullopt, {1, 2, 4, 8}, {1, 2, 4, 8}, std::nullopt, 1};
    std::vector<std::string> precisions;
    std::optional<std::int64_t> ranks;
    double seconds = 0.5;
    std::optional<std::int64_t> most_bytes;
    bool resume = false;
};

void declare(Options& options, CalibrateValues& values) {
    options.group("Measurements");
    options.choice("device", values.device, {"cpu", "cuda"},
                   "device to measure: CPU ranks, or the first visible GPU (under a launcher one for each process)");
    options.text("model", values.shapes.models, "NAME[,NAME...]",
                 "models whose GEMMs and attention are measured, as --model of mgplan plan (default: the plan's, else tiny-gpt,tiny-llama, "
                 "on a GPU llama3-8b,llama3-70b)");
    options.text("plan", values.plan, "FILE", "measure the GEMMs and attention of a plan's ranks, and collectives in its groups");
    options.integers("tp", values.shapes.tp, 1, 1024, "tensor parallel sizes of the models' shards");
    options.integers("ep", values.shapes.ep, 1, 1024, "expert parallel sizes of the MoE shards; those above 1 without --tp");
    options.integer("seq", values.shapes.sequence, 1, ModelLimits::positions,
                    "tokens of a sequence (default: the model's own, at most 4096)");
    options.integer("micro-batch", values.shapes.micro_batch, 1, 65536, "sequences of a microbatch");
    options.choices("precision", values.precisions, {"bf16", "fp32", "fp64"}, "dtypes (default: bf16, on the CPU also fp32)");
    options.integer("ranks", values.ranks, 1, 512,
                    "CPU ranks (threads) for collectives, 1: none; under a launcher its processes (default: the plan's, else 2)");
    options.real("seconds", values.seconds, 1e-6, 3600, "seconds for which each measurement is repeated");
    options.bytes("most-bytes", values.most_bytes,
                  "largest tensor of memory-bound kernels, copies and collectives (default: 64 MiB on the CPU, 1 GiB on a GPU)");
    options.group("The cluster file");
    options.text("cluster", values.cluster, "NAME|FILE",
                 "cluster with the figures that are not measured: network, peak rates (default: the GPU's preset, or this machine)");
    options.flag("resume", values.resume, "continue --output of an earlier run");
}

bool holds_something(const std::string& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    return !error && size > 0;
}

/// Reads an existing calibration file and checks it against this machine.
std::optional<ClusterCalibration> earlier(const std::string& path, bool resume, const ClusterCalibration& fresh) {
    if (!holds_something(path)) return std::nullopt;
    if (!resume) throw ConfigError(fmt::format("--output {} is there already; go on with it by --resume, or name another file", path));
    const ClusterSpec cluster = cluster_from_json(parse_json(read_text_file(path, "--output"), path), path);
    if (!cluster.calibration) throw ConfigError(fmt::format("--resume: {} holds no calibration; name another file", path));
    const ClusterCalibration& begun = *cluster.calibration;
    Problems problems;
    const auto same = [&](const char* field, const std::string& there, const std::string& here) {
        if (there != here)
            problems.add("--resume: {} was measured with {} = {}, and here it is {}; measure into another file", path, field, there, here);
    };
    same("device", begun.device, fresh.device);
    same("hardware", begun.hardware, fresh.hardware);
    for (const auto& [name, version] : fresh.versions) {
        const auto found = begun.versions.find(name);
        same(("version of " + name).c_str(), found == begun.versions.end() ? "unknown" : found->second, version);
    }
    if (!begun.refits.empty()) problems.add("--resume: {} was refitted to a job's log, which measuring would undo; use another file", path);
    problems.throw_if_any();
    return begun;
}

/// The preset that the card is one of.
std::string preset_of_card(const std::string& card) {
    const auto fitting = clusters_of_card(card, cluster_presets());
    if (fitting.size() == 1) return fitting.front();
    throw ConfigError(
        fmt::format("--cluster is missing: the GPU is {}, which {}; name the preset, or a cluster's file, that has its other figures", card,
                    fitting.empty() ? "no preset has" : fmt::format("is that of {}", any_of_text(fitting))));
}

struct Setup {
    std::shared_ptr<const runtime::RankDevices> held;
    const runtime::RankDevices* devices = nullptr;
    ClusterCalibration fresh;
    std::optional<ClusterSpec> base;  ///< nothing: this machine
};

Setup set_up(const CalibrateValues& values, const runtime::LaunchedRank& launched) {
    Setup setup;
    if (values.device == "cuda") {
        if (values.ranks.value_or(1) > 1)
            throw ConfigError(
                "--ranks: ranks that share a GPU say nothing about its links; leave it out with --device cuda, and start a process for "
                "each GPU (torchrun, srun)");
        try {
            setup.held = runtime::cuda_devices(false, launched.size > 1 ? launched.local_rank : std::nullopt);
            const runtime::CudaVersions versions = runtime::cuda_module().versions();
            setup.fresh.versions = {{"cuda", versions.runtime},
                                    {"driver", versions.driver},
                                    {"cublasLt", versions.cublas_lt},
                                    {"cudnn", versions.cudnn},
                                    {"nccl", versions.nccl}};
        } catch (const runtime::CudaUnavailable& error) {
            throw ConfigError(fmt::format("--device cuda: {} (--device cpu)", error.what()));
        }
        setup.devices = setup.held.get();
    } else {
        if (!runtime::training_available())
            throw ConfigError("--device cpu: this build has no CPU kernels, for it has no OpenBLAS; install it and build again");
        setup.devices = &runtime::cpu_devices();
    }
    setup.fresh.device = values.device;
    setup.fresh.hardware = runtime::hardware_name(*setup.devices);
    setup.fresh.date = today();
    setup.fresh.versions["mgplan"] = MGPLAN_VERSION;
    if (values.cluster) {
        setup.base = load_cluster(*values.cluster);
    } else if (values.device == "cuda") {
        setup.base = load_cluster(preset_of_card(setup.fresh.hardware));
    }
    return setup;
}

ClusterSpec cluster_with(const Setup& setup, const ClusterCalibration& calibration) {
    if (!setup.base) return runtime::cpu_cluster(calibration, setup.devices->memory().bytes);
    ClusterSpec cluster = *setup.base;
    if (!cluster.name.ends_with("-calibrated")) cluster.name += "-calibrated";
    cluster.calibration = calibration;
    return cluster;
}

void print_summary(const Options& options, const ClusterSpec& cluster, Console& console) {
    if (options.format() == Format::json) {
        console.out << cluster_file_text(cluster);
        return;
    }
    using reports::Align;
    const ClusterCalibration& calibration = *cluster.calibration;
    reports::Table table({{"parameter", Align::left}, {"value"}, {"source", Align::left}});
    for (const auto& [name, each] : calibration.parameters) table.add_row({name, fmt::format("{:.6g}", each.value), each.source});
    if (options.format() == Format::csv) {
        console.out << table.to_csv();
        return;
    }
    console.out << fmt::format(
        "{} on {}, {}: {} products, {} grouped products, {} attentions, {} memory-bound kernels, {} copies, {} collectives; an op is "
        "launched in {:.2f} "
        "us\n\n{}",
        calibration.device, calibration.hardware, calibration.date, calibration.products.size(), calibration.grouped_products.size(),
        calibration.attention.size(), calibration.kernels.size(), calibration.copies.size(), calibration.collectives.size(),
        calibration.launch.seconds * 1e6, table.to_text());
}

std::vector<Precision> precisions_of(const CalibrateValues& values) {
    std::vector<Precision> precisions;
    for (const auto& name : values.precisions) precisions.push_back(*parse_precision(name));
    if (precisions.empty()) precisions.push_back(Precision::bf16);
    if (values.precisions.empty() && values.device == "cpu") precisions.push_back(Precision::fp32);
    return precisions;
}

/// Ranks whose collectives are measured; 1: none are.
std::int64_t ranks_of(const CalibrateValues& values, const std::optional<Plan>& plan, const runtime::LaunchedRank& launched) {
    if (launched.size > 1 && values.ranks)
        throw ConfigError(
            fmt::format("{} started {} processes, which are the ranks: leave --ranks out", to_string(launched.source), launched.size));
    const std::int64_t usual = values.device == "cuda" ? 1 : plan ? std::min<std::int64_t>(plan->layout.sizes.world, 512) : 2;
    const std::int64_t ranks = launched.size > 1 ? launched.size : values.ranks.value_or(usual);
    if (plan && ranks > 1 && ranks != plan->layout.sizes.world)
        throw ConfigError(fmt::format("--plan is for {} ranks and {} are here; collectives in its groups need as many (--ranks 1: none)",
                                      plan->layout.sizes.world, ranks));
    return ranks;
}

/// Options of the measurement, and its callbacks. `reports`: this process prints what is left out.
runtime::CalibrateOptions options_of(const CalibrateValues& values, const Setup& setup, const std::optional<Plan>& plan,
                                     const std::string& path, bool reports, Console& console) {
    const runtime::RankDevices& devices = *setup.devices;
    const std::vector<Precision> precisions = precisions_of(values);
    runtime::CalibrateOptions work;
    std::vector<std::string> left_out;
    work.work = work_of_models(values.shapes, precisions, cluster_with(setup, setup.fresh), devices.traits(), left_out);
    if (plan) work.work.merge(work_of_plan(*plan, devices.traits()));
    for (const auto precision : precisions) {
        TrainingSpec training;
        training.precision = precision;
        work.dtypes.push_back(training.compute_dtype());
    }
    work.seconds = values.seconds;
    work.memory_bytes = devices.memory().bytes;
    work.most_bytes = values.most_bytes.value_or((values.device == "cpu" ? std::int64_t{64} : std::int64_t{1024}) << 20);
    work.on_measured = [&setup, &path, &console](const ClusterCalibration& so_far, const runtime::CalibrationProgress& progress) {
        console.err << fmt::format("mgplan: {:3.0f}% {}\n", 100.0 * static_cast<double>(progress.done) / static_cast<double>(progress.all),
                                   progress.text);
        console.err.flush();
        write_whole_file(path, "--output", cluster_file_text(cluster_with(setup, so_far)));
    };
    work.on_left_out = [&console](const std::string& text) { console.err << "mgplan: " << text << "\n"; };
    if (reports) {
        for (const auto& each : left_out) console.err << "mgplan: left out: " << each << "\n";
    }
    return work;
}

bool measure_device_alone(const runtime::RankDevices& devices, const runtime::CalibrateOptions& work, ClusterCalibration& into) {
    const auto device = devices.make(0, nullptr);
    return runtime::measure_device(device->device(), work, into) && runtime::measure_graphs(*device, work, into);
}

// The functions below return false where they were interrupted.

bool measure_over_mpi(const runtime::RankDevices& devices, const runtime::LaunchedRank& launched,
                      const std::vector<runtime::MeasuredGroup>& groups, runtime::CalibrateOptions& work, ClusterCalibration& into) {
    into.transport = "MPI";
    runtime::MpiOptions mpi;
    mpi.expected_size = launched.size;
    mpi.expected_by = to_string(launched.source);
    runtime::MpiWorld world(mpi);
    bool whole = true;
    world.run([&] {
        // The others wait at their first operation meanwhile; MPI looks for messages all the time, on processors of their own.
        if (world.rank() == 0) whole = measure_device_alone(devices, work, into);
        work.node_of_rank = runtime::node_numbers(world.gather_names(runtime::node_name(runtime::process_environment())));
        const auto device = devices.make(world.rank(), nullptr);
        whole = runtime::measure_collectives(world.view(), device->device(), groups, work, into) && whole;
    });
    return whole;
}

bool measure_over_nccl(const runtime::RankDevices& devices, const runtime::LaunchedRank& launched,
                       const std::vector<runtime::MeasuredGroup>& groups, const runtime::CalibrateOptions& work, ClusterCalibration& into,
                       Console& console) {
    into.transport = "NCCL";
    const auto on_stuck = [&](const std::string& text) {
        console.err << "mgplan: " << text << "\n" << std::flush;
        std::_Exit(kRunFailed);
    };
    return runtime::calibrate_over_nccl(devices, meeting_of(launched, std::chrono::minutes{10}), on_stuck, groups, work, into);
}

bool measure_in_process(const runtime::RankDevices& devices, std::int64_t ranks, const std::vector<runtime::MeasuredGroup>& groups,
                        const runtime::CalibrateOptions& work, ClusterCalibration& into) {
    if (!measure_device_alone(devices, work, into)) return false;
    if (ranks == 1) return true;
    into.transport = "threads of one process";
    runtime::InProcessWorld world(static_cast<int>(ranks));
    const ClusterCalibration before = into;
    bool whole = true;
    runtime::run_ranks(world, [&](int rank) {
        const auto device = devices.make(rank, nullptr);
        ClusterCalibration own = before;
        const bool done = runtime::measure_collectives(world.view(rank), device->device(), groups, work, own);
        if (rank == 0) {
            whole = done;
            into = std::move(own);
        }
    });
    return whole;
}

int calibrate(const Options& options, const CalibrateValues& values, Console& console) {
    if (!options.output_path()) throw ConfigError("--output is missing; name the cluster file to write, as in --output cluster.json");
    const std::string& path = *options.output_path();
    const auto launched = runtime::rank_from_environment({}, runtime::process_environment());
    const bool processes = launched.size > 1, gpus = values.device == "cuda", writes = launched.rank == 0;
    if (!gpus) refuse_without_mpi(launched);
    const Setup setup = set_up(values, launched);
    const runtime::RankDevices& devices = *setup.devices;
    std::optional<Plan> plan;
    if (values.plan) plan = read_priced_plan(*values.plan, "--plan");
    const std::int64_t ranks = ranks_of(values, plan, launched);

    ClusterCalibration calibration = setup.fresh;
    if (auto begun = writes ? earlier(path, values.resume, setup.fresh) : std::nullopt) {
        calibration = std::move(*begun);
        calibration.date = setup.fresh.date;
    }
    calibration.complete = false;
    calibration.parameters.clear();
    if (writes) options.try_outputs();

    const InterruptWatch watch("mgplan: interrupted; stops after this measurement, Ctrl-C again ends at once\n");
    runtime::CalibrateOptions work = options_of(values, setup, plan, path, writes, console);
    work.interrupt = &watch.interrupted();
    std::vector<runtime::MeasuredGroup> groups;
    if (ranks > 1) groups = plan ? runtime::groups_of(plan->layout.sizes) : runtime::groups_of(ranks);
    const bool whole = !processes ? measure_in_process(devices, ranks, groups, work, calibration)
                       : gpus     ? measure_over_nccl(devices, launched, groups, work, calibration, console)
                                  : measure_over_mpi(devices, launched, groups, work, calibration);
    if (!writes) return whole ? kDone : kRunFailed;
    if (!whole) {
        write_whole_file(path, "--output", cluster_file_text(cluster_with(setup, calibration)));
        console.err << fmt::format("mgplan: interrupted; {} holds what was measured, and --resume goes on with it\n", path);
        return kRunFailed;
    }
    calibration.complete = true;
    ClusterSpec cluster = cluster_with(setup, calibration);
    cluster.calibration->parameters = simulator::fitted_parameters(cluster);
    write_whole_file(path, "--output", cluster_file_text(cluster));
    print_summary(options, cluster, console);
    console.err << fmt::format("mgplan: wrote {}; use it with --cluster {}\n", path, path);
    return kDone;
}

}  // namespace

int run_calibrate(const std::vector<std::string>& args, Console& console) {
    Options options(
        "calibrate --output FILE [--model NAME[,NAME...]] [--plan PLAN] [options]",
        "Measures this machine and writes a cluster file for --cluster: products and attention of the models' shards, experts included, "
        "kernels bound by memory, launches, copies, and collectives among several ranks. --output is written after each "
        "measurement; Ctrl-C leaves what there is for --resume.");
    CalibrateValues values;
    declare(options, values);
    options.try_outputs_later();  // an empty file would look like one to go on with
    if (!options.parse(args, console.out)) return kDone;
    if (!values.shapes.models && !values.plan) {
        values.shapes.models = values.device == "cuda" ? "llama3-8b,llama3-70b" : "tiny-gpt,tiny-llama";
        console.err << fmt::format("mgplan: assumed: --model {}\n", *values.shapes.models);
    }
    return calibrate(options, values, console);
}

}  // namespace mgplan::cli
