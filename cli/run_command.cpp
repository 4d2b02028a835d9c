#include "cli/run_command.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <ostream>
#include <thread>

#include <fmt/core.h>
#include <fmt/format.h>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/interrupt_watch.hpp"
#include "cli/launched_rank.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "cli/run_checkpoints.hpp"
#include "cli/run_choices.hpp"
#include "cli/run_optimizer.hpp"
#include "cli/run_weights.hpp"
#include "cli/stage_memories.hpp"
#include "formats/model_source.hpp"
#include "jobs/rank_process.hpp"
#include "model/device/kernel_traits.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "plan/workload.hpp"
#include "planner/constraints.hpp"
#include "reports/run_report.hpp"
#include "runtime/checkpoint/crc32c.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/data/token_data.hpp"
#include "runtime/launch/rank_from_environment.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/training_run.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

/// Throws ConfigError where mgplan's own engine needs more memory for `layout`, the plan's as it is to run, than a GPU of the plan's
/// cluster has: by the search's estimate and, where that says so, by the exact timeline of every stage too. `device` is what computes: CPU
/// ranks have no CUDA context.
void refuse_what_own_engine_cannot_hold(const Plan& plan, const Layout& layout, model::DeviceKind device) {
    Layout own = layout;
    own.engine = Engine::mgplan;
    const Workload work = workload_of(plan);
    simulator::CostModel model(work);
    if (model.memory(own).fits()) return;
    const StageMemories memories = stage_memories(model, work, own, device);
    const reports::StageMemory& worst = reports::fullest(memories.stages);
    const std::int64_t needed = worst.memory.deciding_bytes();
    if (needed <= work.memory_limit) return;
    throw ConfigError(fmt::format(
        "engine = {} of the plan, and run and verify train with mgplan's own engine, which needs {} on rank {} (stage {}), more "
        "than the {} of a GPU of {}; use a plan of mgplan --engine mgplan, more recompute or a smaller micro-batch",
        to_string(plan.layout.engine), human_bytes(needed), worst.first_rank, worst.stage, human_bytes(work.memory_limit),
        plan.cluster.name));
}

constexpr std::int64_t kMostSteps = 1'000'000'000;

struct RunOptions {
    std::vector<std::string> plan;
    std::string device = "cpu";
    std::string memory = "auto";
    bool check_memory = false;
    bool ranks_in_process = false;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> ranks_per_node;
    std::int64_t steps = 20;
    std::optional<std::string> data;
    std::optional<std::string> weights, export_weights;
    bool force = false;
    std::optional<std::string> cuda_graphs;
    std::int64_t seed = 1234;
    bool deterministic = false;
    bool per_rank_seeds = false;
    double lr = 1e-3, min_lr = 0;
    std::int64_t lr_warmup_steps = 0;
    std::optional<std::int64_t> lr_decay_steps;
    std::string lr_decay_style = "constant";
    double weight_decay = 0.01, clip_grad = 1, adam_beta1 = 0.9, adam_beta2 = 0.999, adam_eps = 1e-8;
    OtherOptimizers other_optimizers;
    bool check_for_nan = false, no_check_for_nan = false;
    double timeout_minutes = 10;
    std::int64_t log_interval = 1;
    std::optional<std::string> checkpoint;
    std::optional<std::int64_t> checkpoint_every;
    std::int64_t checkpoint_keep = 0;
    bool resume = false;
};

void declare(Options& options, RunOptions& values) {
    options.positional("PLAN", values.plan, 1, "a plan written by --save-plan");
    options.choice("device", values.device, {"cpu", "cuda"},
                   "device of the ranks; cuda: one process per GPU, or all ranks on this process's first GPU");
    options.choice("memory", values.memory, {"auto", "pool", "arena"},
                   "tensor allocator: a pool of reused blocks, or an arena with planned offsets; auto: the arena with CUDA graphs");
    options.flag("check-memory", values.check_memory,
                 "with an arena: fill free memory with NaN, and stop on a write beyond a tensor; slow");
    options.flag("ranks-in-process", values.ranks_in_process,
                 "all ranks as threads of this process (default where no launcher started one process per rank)");
    options.integer("rank", values.rank, 0, std::numeric_limits<int>::max() - 1,
                    "run this rank alone with emulated partners, for its memory and compute time; its losses are meaningless");
    options.integer("ranks-per-node", values.ranks_per_node, 1, std::numeric_limits<int>::max(),
                    "with processes as ranks: require that each machine holds this number of consecutive ranks");
    options.integer("steps", values.steps, 1, kMostSteps, "training steps");
    options.text("data", values.data, "FILE", "a text, or Megatron-LM's FILE.bin with FILE.idx (default: a synthetic stream)");
    options.text("weights", values.weights, "PATH",
                 "start from published weights: a Hugging Face folder with model.safetensors, or a file");
    options.text("export-weights", values.export_weights, "DIR",
                 "write model.safetensors and config.json for transformers after the last step; all ranks share the folder");
    options.flag("force", values.force, "let --export-weights replace another model in its folder");
    options.integer("seed", values.seed, 0, std::numeric_limits<std::int64_t>::max() / 2,
                    "seed of weights, dropout and the order of the data");
    options.flag("per-rank-seeds", values.per_rank_seeds,
                 "initialise weights from one seed per tp and pp rank, as Megatron-LM does (default: independent of the layout)");
    options.flag("deterministic", values.deterministic, "bitwise reproducible runs; CPU ranks always are, a GPU then runs without cuDNN");
    options.text("cuda-graphs", values.cuda_graphs, "none|SCOPE[,SCOPE...]",
                 "scopes of CUDA graphs in each layer (default: the plan's): attn, mlp, layer, with experts moe_router, moe_preprocess "
                 "and, padded, moe; or full_iteration, all passes of a step; on the CPU the calls of kernels are "
                 "recorded and repeated instead");
    options.integer("log-interval", values.log_interval, 1, kMostSteps, "steps between progress lines on standard error");
    options.group("Optimizer");
    options.real("lr", values.lr, 0, 1e30, "peak learning rate");
    options.real("min-lr", values.min_lr, 0, 1e30, "learning rate at the end of the decay");
    options.integer("lr-warmup-steps", values.lr_warmup_steps, 0, kMostSteps, "warm-up updates from rate 0");
    options.integer("lr-decay-steps", values.lr_decay_steps, 1, kMostSteps, "update at which the decay ends (default: --steps)");
    options.choice("lr-decay-style", values.lr_decay_style, {"constant", "linear", "cosine"}, "decay of the learning rate");
    options.real("weight-decay", values.weight_decay, 0, 1e6, "weight decay, not applied to biases and norms");
    options.real("clip-grad", values.clip_grad, 0, 1e30, "maximum global gradient norm; 0: no clipping");
    options.real("adam-beta1", values.adam_beta1, 0, 1, "decay of the first moment");
    options.real("adam-beta2", values.adam_beta2, 0, 1, "decay of the second moment");
    options.real("adam-eps", values.adam_eps, 0, 1, "added to the root of the second moment");
    declare_optimizers(options, values.other_optimizers);
    options.group("Faults");
    options.flag("check-for-nan-in-loss-and-grad", values.check_for_nan,
                 "stop when the loss or a gradient is NaN or infinite (the default)");
    options.flag("no-check-for-nan-in-loss-and-grad", values.no_check_for_nan, "skip such a step, with a message");
    options.real("distributed-timeout-minutes", values.timeout_minutes, 0.001, 1e6, "minutes that a rank waits for the others");
    options.group("Checkpoints");
    options.text("checkpoint", values.checkpoint, "DIR", "save a checkpoint there after the last step; all ranks share the folder");
    options.integer("checkpoint-every", values.checkpoint_every, 1, kMostSteps, "save every N steps, too");
    options.integer("checkpoint-keep", values.checkpoint_keep, 0, kMostSteps, "number of latest checkpoints to keep; 0: all");
    options.flag("resume", values.resume,
                 "continue from the last complete checkpoint in DIR, saved by any layout; start anew if there is none. --steps counts from "
                 "the first step");
}

/// Throws ConfigError for contradictions and missing files or devices; else returns the devices of the ranks, nothing for the CPU.
std::shared_ptr<const runtime::RankDevices> check(const RunOptions& values) {
    Problems problems;
    std::shared_ptr<const runtime::RankDevices> devices;
    if (values.cuda_graphs) {
        const EnumSet<CudaGraphScope> scopes = read_graph_scopes(*values.cuda_graphs, problems);
        check_graph_scopes(scopes, problems);
        if (!scopes.empty() && values.memory == "pool")
            problems.add(
                "--cuda-graphs = {} and --memory pool exclude each other: graphs repeat addresses, which only an arena fixes; "
                "leave --memory out, or use --cuda-graphs none",
                values.cuda_graphs->substr(0, 60));
    }
    if (values.plan.empty()) problems.add("run needs a PLAN; mgplan --world 8 --model tiny-llama --save-plan FILE writes one");
    if (values.device == "cuda") {
        try {
            const auto launched = runtime::rank_from_environment({}, runtime::process_environment());
            // A process that was started alone uses the card that CUDA shows it.
            const bool has_own_card = launched.size > 1 && !values.rank;
            devices = runtime::cuda_devices(values.deterministic, has_own_card ? launched.local_rank : std::nullopt);
        } catch (const runtime::CudaUnavailable& error) {
            problems.add("--device cuda: {} (--device cpu)", error.what());
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
    }
    if (!values.checkpoint && (values.checkpoint_every || values.resume || values.checkpoint_keep > 0))
        problems.add("--checkpoint-every, --checkpoint-keep and --resume need a folder; add --checkpoint DIR");
    if (values.checkpoint && values.checkpoint->empty()) problems.add("--checkpoint = '' is no folder; name one");
    if (values.checkpoint && values.rank)
        problems.add("--checkpoint and --rank exclude each other: what one rank computes alone is no training; drop one");
    for (const auto& [name, path] : {std::pair("--weights", &values.weights), std::pair("--export-weights", &values.export_weights)}) {
        if (*path && (*path)->empty()) problems.add("{} = '' names nothing; give a path", name);
        if (*path && values.rank)
            problems.add("{} and --rank exclude each other: what one rank computes alone is no training; drop one", name);
    }
    if (values.ranks_in_process && values.rank)
        problems.add("--ranks-in-process and --rank exclude each other: all ranks run, or one alone; drop one");
    if (values.check_for_nan && values.no_check_for_nan)
        problems.add("--check-for-nan-in-loss-and-grad and --no-check-for-nan-in-loss-and-grad exclude each other; drop one");
    if (values.lr <= 0) problems.add("--lr = {} trains nothing; use a rate above 0, such as 0.001", values.lr);
    if (values.min_lr > values.lr) problems.add("--min-lr = {} is above --lr = {}; use a smaller one", values.min_lr, values.lr);
    if (values.adam_beta1 >= 1 || values.adam_beta2 >= 1)
        problems.add("--adam-beta1 = {} and --adam-beta2 = {} must be below 1; use 0.9 and 0.999", values.adam_beta1, values.adam_beta2);
    const std::int64_t decay_steps = values.lr_decay_steps.value_or(values.steps);
    if (values.lr_decay_style != "constant" && values.lr_warmup_steps >= decay_steps)
        problems.add("--lr-warmup-steps = {} leaves nothing of the {} steps until the decay ends (--lr-decay-steps); use fewer",
                     values.lr_warmup_steps, decay_steps);
    problems.throw_if_any();
    return devices;
}

/// The plan as a task, once every rule of planner and runtime holds.
model::TrainingTask task_of(const Plan& plan, const RunOptions& values) {
    Layout layout = plan.layout;
    layout.engine = Engine::mgplan;  // the prediction next to the measurement is for the engine that runs
    if (values.cuda_graphs) {
        Problems problems;
        layout.cuda_graphs = read_graph_scopes(*values.cuda_graphs, problems);
        problems.throw_if_any();
    }
    const Workload work = workload_of(plan);
    if (auto broken = planner::broken_messages(work, layout); !broken.empty()) throw ConfigError(std::move(broken));
    model::TrainingTask task;
    task.model = plan.model;
    task.batch = plan.batch;
    task.training = plan.training;
    task.layout = layout;
    if (!layout.cuda_graphs.empty() && values.memory == "pool")
        throw ConfigError(
            fmt::format("cuda graphs = {} of the plan and --memory pool exclude each other: graphs repeat addresses, which "
                        "only an arena fixes; leave --memory out, or add --cuda-graphs none",
                        fmt::join(names_in(layout.cuda_graphs), ",")));
    task.initialization.seed = static_cast<std::uint64_t>(values.seed);
    if (values.per_rank_seeds) task.initialization.seeds = model::SeedKind::per_rank;
    task.dropout_seed = static_cast<std::uint64_t>(values.seed) + 1;
    task.optimizer.adam.weight_decay = values.weight_decay;
    task.optimizer.adam.beta1 = values.adam_beta1;
    task.optimizer.adam.beta2 = values.adam_beta2;
    task.optimizer.adam.epsilon = values.adam_eps;
    task.optimizer.clip_norm = values.clip_grad;
    apply_optimizers(values.other_optimizers, plan.training, task.optimizer);
    model::check_features(task);
    return task;
}

/// Returns choices of the plan that predictions read and training does not, except the defaults of `plan`.
std::vector<std::string> unused_choices(const Plan& plan) {
    std::vector<std::string> unused;
    const ParallelSizes& sizes = plan.layout.sizes;
    if (plan.training.overlap_tp && sizes.tp > 1) unused.emplace_back("overlap_tp");
    if (plan.training.overlap_moe && sizes.ep > 1) unused.emplace_back("overlap_moe");
    if (plan.training.fused_cross_entropy) unused.emplace_back("fused_cross_entropy");
    return unused;
}

runtime::LearningRateOptions learning_rate_of(const RunOptions& values) {
    runtime::LearningRateOptions rate;
    rate.maximum = values.lr;
    rate.minimum = values.min_lr;
    rate.warmup_steps = values.lr_warmup_steps;
    rate.decay_steps = values.lr_decay_steps.value_or(values.steps);
    rate.decay = values.lr_decay_style == "linear"   ? runtime::LearningRateDecay::linear
                 : values.lr_decay_style == "cosine" ? runtime::LearningRateDecay::cosine
                                                     : runtime::LearningRateDecay::constant;
    return rate;
}

/// Returns the value with six digits; a NaN has no sign.
std::string finite_text(double value) {
    return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

void print_step(std::ostream& err, const RunOptions& values, std::int64_t step, const runtime::StepValues& done) {
    if (done.skipped) {
        err << fmt::format(
            "mgplan: step {} of {} left out: the loss or a gradient is NaN or infinite (loss {}, gradient norm {}); parameters are as "
            "before\n",
            step, values.steps, finite_text(done.loss), finite_text(done.grad_norm));
    } else if (values.rank && (step % values.log_interval == 0 || step == values.steps)) {
        err << fmt::format("mgplan: step {} of {}: {:.3f} s\n", step, values.steps, done.seconds);
    } else if (step % values.log_interval == 0 || step == values.steps) {
        err << fmt::format("mgplan: step {} of {}: loss {:.5f}, gradient norm {:.4g}, {:.3f} s\n", step, values.steps, done.loss,
                           done.grad_norm, done.seconds);
    }
    err.flush();
}

/// Returns the options that every process of the run must have been started with.
std::string alike_text(const RunOptions& values, const Plan& plan, const runtime::TrainingRunOptions& run) {
    const std::string others =
        fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", values.device, values.memory,
                    values.cuda_graphs.value_or(""), values.seed, values.per_rank_seeds, values.deterministic, values.lr, values.min_lr,
                    values.lr_warmup_steps, values.lr_decay_steps.value_or(0), values.lr_decay_style, values.weight_decay, values.clip_grad,
                    values.adam_beta1, values.adam_beta2, values.adam_eps, values.no_check_for_nan, values.weights.value_or(""),
                    values.export_weights.value_or(""), alike_text(values.other_optimizers));
    return fmt::format(
        "--steps = {}\n--checkpoint-every = {}\n{}\na plan of checksum {}\ndata of checksum {}\ntraining options of checksum {}",
        values.steps, values.checkpoint ? values.checkpoint_every.value_or(0) : 0,
        run.checkpoint.resume ? fmt::format("a checkpoint of step {} to go on from", run.checkpoint.resume->manifest().position.steps)
                              : std::string("no checkpoint to go on from"),
        runtime::checksum_text(runtime::crc32c(plan_to_json(plan).dump())),
        runtime::checksum_text(runtime::identity_of(run.task, *run.data).data_checksum), runtime::checksum_text(runtime::crc32c(others)));
}

void report(const Options& options, const runtime::RunValues& result, Console& console) {
    // Printed before the report, whose file may not be writable any more.
    if (!result.problem.empty()) console.err << fmt::format("mgplan: {}\n", result.problem);
    if (result.interrupted)
        console.err << fmt::format("mgplan: interrupted: stopped after step {} of {}\n", result.steps_before + std::ssize(result.steps),
                                   result.steps_asked);
    if (!result.as_predicted) {
        console.err << "mgplan: what was held or sent differs from the prediction; the report says where, and the exit code does not "
                       "depend on it\n";
    }
    switch (options.format()) {
        case Format::json:
            options.write(console, reports::run_report_json(result));
            break;
        case Format::csv:
            options.write(console, reports::run_report_csv(result));
            break;
        case Format::table:
            options.write(console, reports::run_report_text(result));
            break;
    }
}

/// Prints settings of the plan or options that training does not use.
void say_what_is_not_used(const Options& options, const RunOptions& values, const Plan& plan, Console& console) {
    if (const auto unused = unused_choices(plan); !unused.empty()) {
        console.err << fmt::format("mgplan: run does not use {}: results do not depend on {}, time and memory may\n",
                                   fmt::join(unused, ", "), unused.size() == 1 ? "it" : "them");
    }
    note_assumed_architecture(plan.model, console);
    if (plan.model.adapters && (values.weights || values.export_weights))
        throw ConfigError(fmt::format(
            "{}: the plan trains adapters (LoRA), whose weights no published folder holds, and frozen weights are drawn, not read, in this "
            "version; leave the option out, or make the plan without --lora",
            values.weights ? "--weights" : "--export-weights"));
    if (plan.model.moe && plan.model.moe->sequence_auxiliary_loss > 0)
        console.err << "mgplan: run trains without the balancing loss within each sequence that the model states\n";
    options.note_idle(console, "force", !values.export_weights, "--export-weights is not given");
    for (const char* name : {"min-lr", "lr-decay-steps"})
        options.note_idle(console, name, values.lr_decay_style == "constant", "--lr-decay-style is constant");
}

/// The seeds of data follow those of weights and dropout (task_of).
std::uint64_t data_seed(const RunOptions& values) {
    return static_cast<std::uint64_t>(values.seed) + 2;
}

std::shared_ptr<const runtime::TokenData> token_data_of(const RunOptions& values, std::int64_t vocab) {
    if (values.data) return runtime::open_token_data(*values.data, vocab);
    return std::make_unique<runtime::SyntheticStream>(data_seed(values), vocab);
}

/// Returns the run's memory mode. Throws ConfigError if an arena is to be checked and there is none.
runtime::MemoryMode memory_of(const RunOptions& values, const Layout& layout) {
    const bool arena = values.memory == "arena" || (values.memory == "auto" && !layout.cuda_graphs.empty());
    if (values.check_memory && !arena) throw ConfigError("--check-memory looks into an arena; add --memory arena");
    return arena ? runtime::MemoryMode::arena : runtime::MemoryMode::pool;
}

/// Sets the callbacks that report steps, and those that end the run. `values` and `console` outlive it.
void set_watch(runtime::TrainingRunOptions& run, const RunOptions& values, Console& console) {
    run.skip_non_finite = values.no_check_for_nan;
    run.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(values.timeout_minutes * 60'000));
    run.on_step = [&](std::int64_t step, const runtime::StepValues& done) { print_step(console.err, values, step, done); };
    run.on_stuck = [&](const std::string& text) {
        console.err << "mgplan: " << text << "\n" << std::flush;
        std::_Exit(kRunFailed);
    };
}

/// Runs as one of the processes that a launcher started; returns values on rank 0 alone, which reports.
std::optional<runtime::RunValues> run_launched(runtime::TrainingRunOptions& run, const RunOptions& values,
                                               const runtime::LaunchedRank& launched) {
    run.on_failure = [&](const std::string& what, int code) {
        jobs::leave_word_of_own_failure(launched, runtime::process_environment(), what, code);
    };
    return values.device == "cuda" ? runtime::run_over_nccl(run, meeting_of(launched, run.deadline)) : runtime::run_over_mpi(run, launched);
}

/// Runs all ranks as threads, or the one of --rank.
runtime::RunValues run_here(runtime::TrainingRunOptions& run, const RunOptions& values) {
    const InterruptWatch watch("mgplan: interrupted; stops after this step, Ctrl-C again ends at once\n");
    run.interrupt = &watch.interrupted();
    return values.rank ? runtime::run_alone(run, static_cast<int>(*values.rank)) : runtime::run_in_process(run);
}

/// Locks of the folders that the run writes to. A folder of both checkpoints and weights has one.
struct RunLocks {
    std::unique_ptr<runtime::FolderLock> checkpoints, weights;
    [[nodiscard]] runtime::FolderLock* of_weights() const { return weights ? weights.get() : checkpoints.get(); }
};

RunLocks lock_folders(const RunOptions& values, bool reports, Console& console) {
    RunLocks locks;
    if (values.checkpoint) locks.checkpoints = lock_folder(checkpoint_folder(*values.checkpoint), reports, console);
    std::error_code error;
    const bool same =
        values.checkpoint && values.export_weights && std::filesystem::equivalent(*values.checkpoint, *values.export_weights, error);
    if (values.export_weights && !same) locks.weights = lock_folder(weights_folder(*values.export_weights), reports, console);
    return locks;
}

/// Trains; nothing on ranks that do not report.
std::optional<RunOutcome> train(const Options& options, const RunOptions& values, Console& console) {
    const auto devices = check(values);
    Plan plan = read_plan(values.plan.front());
    if (values.cuda_graphs) plan.layout.cuda_graphs = {};  // task_of() takes the option's
    const std::vector<std::string> replaced = replace_choices_of_megatron(plan);
    runtime::TrainingRunOptions run;
    run.task = task_of(plan, values);
    refuse_what_own_engine_cannot_hold(plan, run.task.layout, devices ? model::DeviceKind::cuda : model::DeviceKind::cpu);
    run.devices = devices;
    const auto launched = launched_rank({values.rank, values.ranks_in_process, values.device == "cuda"}, plan.layout.sizes.world);
    const bool reports = !launched || launched->rank == 0;
    if (reports) {
        options.try_outputs();
        say_what_is_not_used(options, values, plan, console);
        for (const std::string& choice : replaced) console.err << fmt::format("mgplan: run {}\n", choice);
    }
    const auto data = token_data_of(values, plan.model.vocab);
    run.data = std::make_shared<const runtime::Sequences>(data, plan.batch.sequence, plan.batch.global_batch, data_seed(values) + 1);
    run.steps = values.steps;
    if (values.ranks_per_node) run.ranks_per_node = static_cast<int>(*values.ranks_per_node);
    run.memory = memory_of(values, run.task.layout);
    run.check_memory = values.check_memory;
    run.learning_rate = learning_rate_of(values);
    const CheckpointRequest asked{
        values.checkpoint, values.checkpoint_every.value_or(0), values.checkpoint_keep, values.resume, values.steps, reports};
    const RunLocks locks = lock_folders(values, reports, console);
    run.checkpoint = checkpoints_of(asked, run, locks.checkpoints.get(), console);
    const WeightRequest weights{values.weights, values.export_weights, values.force, reports};
    run.weights = weights_of(weights, plan.model);
    run.export_weights = weight_export_of(weights, run, locks.of_weights(), console);
    if (run.weights && run.checkpoint.resume && reports)
        console.err << fmt::format("mgplan: --weights {} is not read: the run goes on from its checkpoint\n", *values.weights);
    if (launched) run.alike = alike_text(values, plan, run);
    const std::int64_t steps_before = run.checkpoint.resume ? run.checkpoint.resume->manifest().position.steps : 0;
    set_watch(run, values, console);

    std::optional<runtime::RunValues> result = launched ? run_launched(run, values, *launched) : run_here(run, values);
    if (!result) return std::nullopt;
    result->data = data->text();
    result->steps_asked = values.steps;
    result->steps_before = steps_before;
    result->interrupted = result->problem.empty() && steps_before + std::ssize(result->steps) < values.steps;
    const model::KernelTraits traits = devices ? devices->traits() : runtime::cpu_devices().traits();
    return RunOutcome{std::move(plan), std::move(run.task), traits, std::move(*result), !launched};
}

int run_checked(const Options& options, const RunOptions& values, Console& console) {
    const auto outcome = train(options, values, console);
    if (!outcome) return kDone;
    report(options, outcome->values, console);
    return outcome->finished() ? kDone : kRunFailed;
}

/// Returns this process's rank by the environment, 0 if the environment is contradictory.
int rank_by_environment() {
    try {
        return runtime::rank_from_environment({}, runtime::process_environment()).rank;
    } catch (const ConfigError&) {
        return 0;
    }
}

}  // namespace

struct RunJob::State {
    RunOptions values;
};

RunJob::RunJob() : state_(std::make_unique<State>()) {}
RunJob::~RunJob() = default;

void RunJob::declare(Options& options) {
    cli::declare(options, state_->values);
}

const std::vector<std::string>& RunJob::plan_files() const {
    return state_->values.plan;
}

std::optional<RunOutcome> RunJob::train(const Options& options, Console& console) const {
    return cli::train(options, state_->values, console);
}

void let_rank_0_speak() {
    // Bad input is bad on every rank: the launcher stops the others when rank 0 has reported it. A problem of this rank alone
    // (a file that is missing on its machine) is reported a little later.
    if (rank_by_environment() > 0) std::this_thread::sleep_for(std::chrono::seconds(3));
}

int run_run(const std::vector<std::string>& args, Console& console) {
    try {
        Options options("run PLAN [--steps N] [--data FILE] [options]",
                        "Trains the plan's model for some steps, prints losses, and compares memory and traffic of every rank with what "
                        "the same code predicts on shapes. Under mpirun or srun each process is one rank; otherwise ranks are threads. "
                        "On GPUs (--device cuda) each process is one rank with a GPU of its own where torchrun started several, and "
                        "else all ranks are threads that share one. --rank R runs one rank of a large plan alone.");
        RunOptions values;
        declare(options, values);
        options.try_outputs_later();  // rank 0 alone writes
        if (!options.parse(args, console.out)) return kDone;
        return run_checked(options, values, console);
    } catch (const ConfigError&) {
        let_rank_0_speak();
        throw;
    }
}

}  // namespace mgplan::cli
