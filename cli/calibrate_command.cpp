#include <algorithm>
#include <filesystem>
#include <ostream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/cluster_file.hpp"
#include "cli/command.hpp"
#include "cli/interrupt_watch.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "cli/workload_options.hpp"
#include "importers/model_source.hpp"
#include "plan/cluster_json.hpp"
#include "plan/errors.hpp"
#include "plan/json_reader.hpp"
#include "plan/plan.hpp"
#include "plan/text.hpp"
#include "planner/constraints.hpp"
#include "reports/table.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/calibration/cpu_cluster.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/comm/mpi/mpi_world.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "runtime/launch/rank_from_environment.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/training_run.hpp"
#include "simulator/cluster_parameters.hpp"

namespace mgplan::cli {
namespace {

constexpr std::int64_t kMostModels = 64;

struct CalibrateValues {
    std::string device = "cpu";
    std::optional<std::string> models, plan, cluster;
    std::vector<std::int64_t> tp{1, 2, 4, 8};
    std::optional<std::int64_t> sequence;
    std::int64_t micro_batch = 1;
    std::vector<std::string> precisions;
    std::int64_t ranks = 0;
    double seconds = 0.5;
    std::optional<std::int64_t> most_bytes;
    bool resume = false;
};

void declare(Options& options, CalibrateValues& values) {
    options.group("What is measured");
    options.choice("device", values.device, {"cpu", "cuda"}, "what computes: a CPU rank, or the first GPU that CUDA shows");
    options.text("model", values.models, "NAME[,NAME...]",
                 "models whose products and attention are measured, as --model of mgplan plan; without it and --plan "
                 "tiny-gpt,tiny-llama, on a GPU llama3-8b,llama3-70b");
    options.text("plan", values.plan, "FILE", "the products and attention of a plan's ranks, and collectives in its groups");
    options.integers("tp", values.tp, 1, 1024, "tensor parallel sizes of the models' shards");
    options.integer("seq", values.sequence, 1, ModelLimits::positions, "tokens of a sequence; without it the model's own, at most 4096");
    options.integer("micro-batch", values.micro_batch, 1, 65536, "sequences of a microbatch");
    options.choices("precision", values.precisions, {"bf16", "fp32", "fp64"}, "number formats; without it bf16, on the CPU also fp32");
    options.integer("ranks", values.ranks, 0, 512,
                    "CPU ranks, as threads, for collectives; without it 2, or the plan's; 1: none. Under mpirun its ranks");
    options.real("seconds", values.seconds, 1e-6, 3600, "for each measurement, which is repeated that long");
    options.bytes("most-bytes", values.most_bytes,
                  "largest kernel bound by memory, copy and collective; without it 64 MiB on the CPU, 1 GiB on a GPU");
    options.group("The cluster file");
    options.text("cluster", values.cluster, "NAME|FILE",
                 "where figures come from that are not measured (network, peak rates); without it the preset of the GPU, or this machine");
    options.flag("resume", values.resume, "go on with --output, which an earlier run began");
}

bool holds_something(const std::string& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    return !error && size > 0;
}

/// What is there already, checked against this machine.
std::optional<ClusterCalibration> earlier(const std::string& path, bool resume, const ClusterCalibration& fresh) {
    if (!holds_something(path)) return std::nullopt;
    if (!resume) throw ConfigError(fmt::format("--output {} is there already; go on with it by --resume, or name another file", path));
    const ClusterSpec cluster = cluster_from_json(parse_json(importers::read_text_file(path, "--output"), path), path);
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

/// One layer of each kind that the model has: shapes repeat.
ModelSpec without_repetition(ModelSpec model) {
    if (model.moe) {
        const auto mixture = std::find(model.moe_layers.begin(), model.moe_layers.end(), true);
        const auto dense = std::find(model.moe_layers.begin(), model.moe_layers.end(), false);
        model.layers = (mixture != model.moe_layers.end() ? 1 : 0) + (dense != model.moe_layers.end() ? 1 : 0);
        model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
        if (dense != model.moe_layers.end()) model.moe_layers.front() = false;
        if (mixture == model.moe_layers.end()) model.moe_layers.assign(1, false);
    } else {
        model.layers = 1;
    }
    return model;
}

model::TrainingTask task_of(const Workload& work, const Layout& layout) {
    model::TrainingTask task;
    task.model = work.model;
    task.batch = work.batch;
    task.training = work.training;
    task.layout = layout;
    task.layout.cuda_graphs = {};
    return task;
}

/// Products and attention of the models' shards. Models and sizes of which nothing can be computed are named in `left_out`.
runtime::TracedWork work_of_models(const CalibrateValues& values, const std::vector<Precision>& precisions, const ClusterSpec& cluster,
                                   const model::KernelTraits& traits, std::vector<std::string>& left_out) {
    runtime::TracedWork all;
    if (!values.models) return all;
    const auto names = split(*values.models, ',');
    if (std::ssize(names) > kMostModels)
        throw ConfigError(fmt::format("--model names {} models; use at most {}", names.size(), kMostModels));
    Problems problems;
    for (const auto& name : names) {
        std::optional<ModelSpec> model;
        try {
            model = without_repetition(importers::load_model(name).model);
        } catch (const ConfigError& error) {
            problems.absorb(error, "--model: ");
            continue;
        }
        bool any = false;
        std::string why;
        for (const auto tp : values.tp) {
            for (const auto precision : precisions) {
                Workload work;
                work.model = *model;
                work.cluster = cluster;
                work.world = tp;
                work.confine_tp = false;
                work.memory_limit = cluster.memory_bytes;
                work.training.precision = precision;
                work.training.grad_dtype = precision == Precision::fp64 ? Dtype::fp64 : Dtype::fp32;
                const std::int64_t longest = model->max_positions > 0 ? model->max_positions : 4096;
                work.batch.sequence = values.sequence.value_or(model->default_sequence.value_or(std::min<std::int64_t>(longest, 4096)));
                work.batch.global_batch = values.micro_batch;
                LayoutRequest request;
                request.tp = tp;
                request.micro_batch = values.micro_batch;
                request.sequence_parallel = tp > 1;
                try {
                    const Layout layout = planner::make_layout(request, work);
                    all.merge(runtime::traced_work(task_of(work, layout), 0, traits));
                    any = true;
                } catch (const ConfigError& error) {
                    why = error.problems().front();
                }
            }
        }
        if (!any)
            problems.add("--model {}: none of the shards can be computed: {}", name, why);
        else if (!why.empty())
            left_out.push_back(fmt::format("some shards of {}: {}", name, why));
    }
    problems.throw_if_any();
    return all;
}

/// The same of a rank of every pipeline stage of the plan.
runtime::TracedWork work_of_plan(const Plan& plan, const model::KernelTraits& traits) {
    Workload work{plan.model,  plan.cluster, plan.batch, plan.training, plan.layout.sizes.world, false, plan.cluster.memory_bytes,
                  plan.routing};
    if (auto broken = planner::broken_messages(work, plan.layout); !broken.empty()) throw ConfigError(std::move(broken));
    const model::TrainingTask task = runtime::with_few_microbatches(task_of(work, plan.layout));
    std::int64_t stride = 1;
    for (const auto& axis : dense_grid(plan.layout.sizes)) {
        if (axis.axis == Axis::pp) stride = axis.stride;
    }
    runtime::TracedWork all;
    for (std::int64_t stage = 0; stage < plan.layout.sizes.pp; ++stage)
        all.merge(runtime::traced_work(task, static_cast<int>(stage * stride), traits));
    return all;
}

/// The preset whose GPU is in the card's name: "NVIDIA H200" is an H200-SXM-141GB.
std::string preset_of_card(const std::string& card) {
    std::vector<std::string> fitting;
    for (const auto& name : cluster_preset_names()) {
        const std::string gpu = split(load_cluster(name).gpu, '-').front();
        if (card.find(gpu) != std::string::npos) fitting.push_back(name);
    }
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

Setup set_up(const CalibrateValues& values) {
    Setup setup;
    if (values.device == "cuda") {
        if (values.ranks > 1)
            throw ConfigError("--ranks: ranks that share a GPU say nothing about its links; leave it out with --device cuda");
        try {
            setup.held = runtime::cuda_devices(false);
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
        "{} on {}, {}: {} products, {} attentions, {} memory-bound kernels, {} copies, {} collectives; an op is launched in {:.2f} "
        "us\n\n{}",
        calibration.device, calibration.hardware, calibration.date, calibration.products.size(), calibration.attention.size(),
        calibration.kernels.size(), calibration.copies.size(), calibration.collectives.size(), calibration.launch.seconds * 1e6,
        table.to_text());
}

int calibrate(const Options& options, const CalibrateValues& values, Console& console) {
    if (!options.output_path()) throw ConfigError("--output is missing; name the cluster file to write, as in --output cluster.json");
    const std::string& path = *options.output_path();
    const auto launched = runtime::rank_from_environment({}, runtime::process_environment());
    const bool over_mpi = launched.source != runtime::RankSource::none && launched.size > 1;
    if (over_mpi && (values.device == "cuda" || values.ranks > 0))
        throw ConfigError(fmt::format("{} started {} processes: leave --ranks out, and measure a GPU with one process",
                                      to_string(launched.source), launched.size));
    const Setup setup = set_up(values);
    const runtime::RankDevices& devices = *setup.devices;

    std::optional<Plan> plan;
    if (values.plan) plan = read_plan(*values.plan, "--plan");
    std::int64_t ranks = over_mpi ? launched.size : values.ranks;
    if (ranks == 0) ranks = values.device == "cuda" ? 1 : plan ? std::min<std::int64_t>(plan->layout.sizes.world, 512) : 2;
    if (plan && ranks > 1 && ranks != plan->layout.sizes.world)
        throw ConfigError(fmt::format("--plan is for {} ranks and {} are here; collectives in its groups need as many (--ranks 1: none)",
                                      plan->layout.sizes.world, ranks));

    std::vector<Precision> precisions;
    for (const auto& name : values.precisions) precisions.push_back(*parse_precision(name));
    if (precisions.empty()) precisions.push_back(Precision::bf16);
    if (values.precisions.empty() && values.device == "cpu") precisions.push_back(Precision::fp32);

    const bool writes = !over_mpi || launched.rank == 0;
    ClusterCalibration calibration = setup.fresh;
    if (auto begun = earlier(path, values.resume, setup.fresh)) {
        calibration = std::move(*begun);
        calibration.date = setup.fresh.date;
    }
    calibration.complete = false;
    calibration.parameters.clear();
    if (writes) options.try_outputs();

    const InterruptWatch watch("mgplan: interrupted; stops behind this measurement, Ctrl-C again ends at once\n");
    runtime::CalibrateOptions work;
    std::vector<std::string> left_out;
    work.work = work_of_models(values, precisions, cluster_with(setup, setup.fresh), devices.traits(), left_out);
    if (plan) work.work.merge(work_of_plan(*plan, devices.traits()));
    for (const auto precision : precisions) {
        TrainingSpec training;
        training.precision = precision;
        work.dtypes.push_back(training.compute_dtype());
    }
    work.seconds = values.seconds;
    work.memory_bytes = devices.memory().bytes;
    work.most_bytes = values.most_bytes.value_or((values.device == "cpu" ? std::int64_t{64} : std::int64_t{1024}) << 20);
    work.interrupt = &watch.interrupted();
    work.on_measured = [&](const ClusterCalibration& so_far, const runtime::CalibrationProgress& progress) {
        console.err << fmt::format("mgplan: {:3.0f}% {}\n", 100.0 * static_cast<double>(progress.done) / static_cast<double>(progress.all),
                                   progress.text);
        console.err.flush();
        write_whole_file(path, "--output", cluster_file_text(cluster_with(setup, so_far)));
    };
    work.on_left_out = [&](const std::string& text) { console.err << "mgplan: " << text << "\n"; };
    if (writes) {
        for (const auto& each : left_out) console.err << "mgplan: left out: " << each << "\n";
    }

    bool whole = true;
    const auto device_alone = [&] {
        const auto device = devices.make(0, nullptr);
        whole = runtime::measure_device(device->device(), work, calibration);
    };
    const auto groups = [&] { return plan ? runtime::groups_of(plan->layout.sizes) : runtime::groups_of(ranks); };
    if (over_mpi) {
        calibration.transport = "MPI";
        runtime::MpiOptions mpi;
        mpi.expected_size = launched.size;
        mpi.expected_by = to_string(launched.source);
        runtime::MpiWorld world(mpi);
        world.run([&] {
            // The others wait at their first operation meanwhile; MPI looks for messages all the time, on processors of their own.
            if (world.rank() == 0) device_alone();
            const auto device = devices.make(world.rank(), nullptr);
            whole = runtime::measure_collectives(world.view(), device->device(), groups(), work, calibration) && whole;
        });
        if (world.rank() != 0) return whole ? kDone : kRunFailed;
    } else {
        device_alone();
        if (whole && ranks > 1) {
            calibration.transport = "threads of one process";
            runtime::InProcessWorld world(static_cast<int>(ranks));
            const ClusterCalibration before = calibration;
            bool rank_0_whole = true;
            runtime::run_ranks(world, [&](int rank) {
                const auto device = devices.make(rank, nullptr);
                ClusterCalibration own = before;
                const bool done = runtime::measure_collectives(world.view(rank), device->device(), groups(), work, own);
                if (rank == 0) {
                    rank_0_whole = done;
                    calibration = std::move(own);
                }
            });
            whole = rank_0_whole;
        }
    }
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
    Options options("calibrate --output FILE [--model NAME[,NAME...]] [--plan PLAN] [options]",
                    "Measures this machine and writes a cluster file for --cluster: products and attention of the models' shards, kernels "
                    "bound by memory, launches, copies, and collectives among several ranks. --output is written behind each "
                    "measurement; Ctrl-C leaves what there is for --resume.");
    CalibrateValues values;
    declare(options, values);
    options.try_outputs_later();  // an empty file would look like one to go on with
    if (!options.parse(args, console.out)) return kDone;
    if (!values.models && !values.plan) {
        values.models = values.device == "cuda" ? "llama3-8b,llama3-70b" : "tiny-gpt,tiny-llama";
        console.err << fmt::format("mgplan: assumed: --model {}\n", *values.models);
    }
    return calibrate(options, values, console);
}

}  // namespace mgplan::cli
