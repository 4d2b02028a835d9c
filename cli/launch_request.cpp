#include "cli/launch_request.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "cli/assumed_architecture.hpp"
#include "cli/run_command.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "plan/cluster/nvlink_domains.hpp"
#include "plan/layout/switched_layout.hpp"
#include "plan/text/text.hpp"
#include "runtime/comm/mpi/mpi_world.hpp"
#include "runtime/cuda_loader/hardware_queues.hpp"

namespace mgplan::cli {
namespace {

namespace files = std::filesystem;
using jobs::Meeting;
using jobs::Via;

constexpr std::int64_t kMostNodes = 1'000'000;
constexpr std::int64_t kMostLaunchSteps = 1'000'000'000;
constexpr std::array kVias{Via::local, Via::mpirun, Via::slurm, Via::torchrun};

Via via_of(const LaunchRequest& request) {
    for (const Via via : kVias)
        if (to_string(via) == request.via) return via;
    return Via::local;
}

bool on_path(std::string_view program) {
    const char* const path = std::getenv("PATH");
    for (const auto& folder : split(path == nullptr ? "" : path, ':'))
        if (::access(fmt::format("{}/{}", folder.empty() ? "." : folder, program).c_str(), X_OK) == 0) return true;
    return false;
}

void check_engine(const LaunchRequest& request, Problems& problems) {
    const auto need = [&](std::string_view program, std::string_view way_out) {
        if (!on_path(program)) problems.add("--via {}: {} is not on PATH; {}", *request.via, program, way_out);
    };
    switch (via_of(request)) {
        case Via::local:
            break;
        case Via::mpirun:
            need("mpirun", "install Open MPI (on Debian: apt-get install openmpi-bin), load its module, or use --via local");
            break;
        case Via::slurm:
            for (const char* program : {"sbatch", "scontrol", "scancel"})
                need(program, "start this where Slurm's commands are (a login node), or print the script with --dry-run");
            break;
        case Via::torchrun:
            need("torchrun", "it comes with PyTorch: install that, activate its environment, or use another engine");
            break;
    }
}

/// Arguments that are not launch's own must be valid for run; this is checked before a job waits in a queue for hours.
void check_run_words(const LaunchRequest& request, Problems& problems) {
    RunJob job;
    Options options("run", "");
    job.declare(options);
    options.try_outputs_later();
    std::vector<std::string> words = request.more;
    std::ostringstream help;
    try {
        if (!options.parse(words, help)) {
            problems.add("--help after -- asks run for its help; ask mgplan run --help");
            return;
        }
    } catch (const ConfigError& error) {
        problems.absorb(error, "after --: ");
        return;
    }
    if (!job.plan_files().empty())
        problems.add("'{}' after -- is no option of mgplan run; only those go there", job.plan_files().front().substr(0, 60));
    for (const char* name : {"device", "steps", "checkpoint", "checkpoint-every", "resume"})
        if (options.given(name)) problems.add("--{} is given after --; give it before, launch has it too", name);
    for (const char* name : {"format", "output", "rank", "ranks-in-process", "ranks-per-node"})
        if (options.given(name)) problems.add("--{} after -- is launch's to decide; leave it out", name);
}

bool is_slurm_name(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ',' || c == '+';
    });
}

void check_script(const LaunchRequest& request, Problems& problems) {
    if (!request.megatron()) {
        if (request.script) problems.add("--script is Megatron-LM's pretrain_gpt.py; add --job megatron, or leave it out");
        return;
    }
    if (request.dry_run) return;
    if (!request.script) {
        problems.add("--job megatron needs --script FILE, Megatron-LM's pretrain_gpt.py; --dry-run prints the job without it");
    } else if (std::error_code error; !files::is_regular_file(*request.script, error)) {
        problems.add("--script = {} is no file; name Megatron-LM's pretrain_gpt.py, or print the job with --dry-run",
                     request.script->substr(0, 200));
    }
}

std::string program_path() {
    std::error_code error;
    const files::path self = files::read_symlink("/proc/self/exe", error);
    return error ? "mgplan" : self.string();
}

std::vector<std::string> run_command(const LaunchRequest& request, const jobs::Job& job, std::string_view format) {
    std::vector<std::string> words{job.program, "run", plan_file(job), "--device", request.device};
    const auto add = [&](const char* name, const auto& value) {
        words.emplace_back(name);
        words.push_back(fmt::format("{}", value));
    };
    if (request.steps) add("--steps", *request.steps);
    if (job.meeting == Meeting::none)
        words.emplace_back("--ranks-in-process");
    else
        add("--ranks-per-node", job.ranks_per_node);
    if (request.checkpoint) add("--checkpoint", *request.checkpoint);
    if (request.checkpoint_every) add("--checkpoint-every", *request.checkpoint_every);
    if (request.resume) words.emplace_back("--resume");
    words.insert(words.end(), request.more.begin(), request.more.end());
    add("--format", format);
    add("--output", report_file(job));
    return words;
}

std::vector<std::string> megatron_command(const LaunchRequest& request, const Plan& plan) {
    refuse_assumed_architecture(plan.model, "launched as Megatron-LM");
    formats::refuse_incomplete_job(plan, request.more);
    const formats::MegatronJob job = formats::megatron_job(plan);
    formats::refuse_what_stops(job, plan.cluster.compute_capability, request.more);
    std::string script = request.script.value_or(job.script);
    if (request.script) script = files::absolute(script).string();
    std::vector<std::string> words{"python3", script};
    for (auto& word : job.words()) words.push_back(std::move(word));
    const auto add = [&](const char* name, const auto& value) {
        words.emplace_back(name);
        words.push_back(fmt::format("{}", value));
    };
    if (request.steps) add("--train-iters", *request.steps);
    if (request.checkpoint) add("--save", *request.checkpoint);
    if (request.checkpoint_every) add("--save-interval", *request.checkpoint_every);
    if (request.resume) add("--load", *request.checkpoint);
    words.insert(words.end(), request.more.begin(), request.more.end());
    return words;
}

Meeting meeting_of_request(const LaunchRequest& request, Via via) {
    if (request.megatron()) return Meeting::address;
    if (request.device == "cpu") return via == Via::local ? Meeting::none : Meeting::mpi;
    return via == Via::local && !request.gpus_per_node ? Meeting::none : Meeting::folder;
}

}  // namespace

void LaunchRequest::declare(Options& options) {
    options.positional("PLAN", plan, 1, "a plan written by --save-plan");
    options.choice("via", via, {"local", "mpirun", "slurm", "torchrun"}, "program that starts the ranks");
    options.choice("job", job, {"mgplan", "megatron"}, "training program: mgplan run, or Megatron-LM's pretrain_gpt.py");
    options.text("script", script, "FILE", "with --job megatron: the path of pretrain_gpt.py");
    options.flag("dry-run", dry_run, "print the script and the command that would start it; start nothing");
    options.flag("detach", detach, "return after submitting the job; mgplan status shows it");
    options.integer("nodes", nodes, 1, kMostNodes, "machines (default: as many as the plan's ranks need)");
    options.integer("gpus-per-node", gpus_per_node, 1, kMostNodes,
                    "ranks on each machine (default: the plan's cluster's; without Slurm all of them on this one)");
    options.text("partition", partition, "NAME", "Slurm's partition (default: Slurm's)");
    options.integer(
        "segment", segment, 0, kMostNodes,
        "nodes that Slurm keeps inside one NVLink domain, 0: leave it to Slurm (default: those of a domain, where one spans nodes)");
    options.text("hostfile", hostfile, "FILE", "the machines for mpirun (default: mpirun's own)");
    options.choice("device", device, {"cpu", "cuda"}, "device of the ranks");
    options.integer("steps", steps, 1, kMostLaunchSteps, "training steps (default: those of run, or of the script)");
    options.group("Failures");
    options.text("checkpoint", checkpoint, "DIR", "write checkpoints there");
    options.integer("checkpoint-every", checkpoint_every, 1, kMostLaunchSteps, "steps between two checkpoints (default: run's)");
    options.flag("resume", resume, "continue from the last complete checkpoint");
    options.integer("max-restarts", max_restarts, 0, 1000, "restarts after a failure, each from the last complete checkpoint");
}

void check(const LaunchRequest& request) {
    Problems problems;
    if (request.plan.empty()) problems.add("launch needs a PLAN; mgplan --world 8 --model tiny-llama --save-plan FILE writes one");
    if (!request.via) problems.add("--via is missing; use local, mpirun, slurm or torchrun");
    const Via via = via_of(request);
    check_script(request, problems);
    if (!request.megatron()) {
        check_run_words(request, problems);
        if (request.via && request.device == "cpu") {
            if ((via == Via::mpirun || via == Via::slurm) && !runtime::mpi_available())
                problems.add(
                    "--via {} with --device cpu needs MPI, and this build has none; install it (on Debian: apt-get install libopenmpi-dev "
                    "openmpi-bin) and build again, or use --via local",
                    *request.via);
            if (via == Via::torchrun)
                problems.add(
                    "--via torchrun with --device cpu: torchrun connects no ranks by MPI, which CPU ranks that are processes need; use "
                    "--via "
                    "mpirun, --via local (threads of one process), or --device cuda");
        }
    }
    if (request.partition && via != Via::slurm)
        problems.add("--partition is Slurm's; use --via slurm, or leave it out");
    else if (request.partition && !is_slurm_name(*request.partition))
        problems.add("--partition = '{}' is no name of a partition; use letters, digits and _ - . + ,", request.partition->substr(0, 60));
    if (request.segment && via != Via::slurm) problems.add("--segment is Slurm's; use --via slurm, or leave it out");
    if (request.hostfile && via != Via::mpirun) problems.add("--hostfile is for mpirun; use --via mpirun, or leave it out");
    if (request.hostfile && ::access(request.hostfile->c_str(), R_OK) != 0)
        problems.add("--hostfile = {} cannot be read; name a file with a machine a line", request.hostfile->substr(0, 200));
    if (!request.checkpoint) {
        if (request.checkpoint_every) problems.add("--checkpoint-every needs --checkpoint DIR; add it, or leave both out");
        if (request.resume) problems.add("--resume needs --checkpoint DIR, from which to go on");
        if (request.max_restarts > 0)
            problems.add("--max-restarts needs --checkpoint DIR: without one every restart would begin at step 1");
    }
    if (request.dry_run && request.detach) problems.add("--dry-run and --detach exclude each other; drop one");
    if (request.via && !request.dry_run) check_engine(request, problems);
    problems.throw_if_any();
}

Placement placement_of(const LaunchRequest& request, const Plan& plan) {
    const std::int64_t world = plan.layout.sizes.world;
    const Via via = via_of(request);
    const bool gpus = request.megatron() || request.device == "cuda";
    std::int64_t nodes = 1, per_node = world;
    if (request.nodes && request.gpus_per_node) {
        nodes = *request.nodes;
        per_node = (world + nodes - 1) / nodes;
        if (per_node > *request.gpus_per_node)
            throw ConfigError(
                fmt::format("--nodes = {} with --gpus-per-node = {} hold {} ranks, and the plan has {}; use more nodes, or plan for {}",
                            nodes, *request.gpus_per_node, nodes * *request.gpus_per_node, world, nodes * *request.gpus_per_node));
    } else if (request.nodes) {
        nodes = *request.nodes;
        per_node = (world + nodes - 1) / nodes;
    } else if (request.gpus_per_node || via == Via::slurm || (gpus && via != Via::local)) {
        per_node = std::min(world, request.gpus_per_node.value_or(plan.cluster.gpus_per_node));
        nodes = (world + per_node - 1) / per_node;
    }
    if (nodes * per_node != world)
        throw ConfigError(fmt::format("the plan's {} ranks do not fill {} nodes evenly with {} on each; use a number of nodes out of {}",
                                      world, nodes, per_node, divisors_text(world, world)));
    if (via == Via::local && nodes > 1)
        throw ConfigError(
            fmt::format("--via local is this machine alone, and {} nodes were asked for; use mpirun or slurm, or drop --nodes and "
                        "--gpus-per-node",
                        nodes));
    if (via == Via::mpirun && gpus && nodes > 1 && !request.hostfile)
        throw ConfigError("--via mpirun on several machines needs --hostfile FILE, whose first machine is where ranks with GPUs meet");
    return {static_cast<int>(nodes), static_cast<int>(per_node)};
}

namespace {

/// The divisor of `nodes` nearest to `asked`, the smaller of two.
std::int64_t nearest_divisor(std::int64_t nodes, std::int64_t asked) {
    for (std::int64_t away = 0;; ++away) {
        for (const std::int64_t tried : {asked - away, asked + away}) {
            if (tried >= 1 && nodes % tried == 0) return tried;
        }
    }
}

/// Nodes of a segment. Slurm wants the job's to be a multiple of it (sbatch --segment).
int segment_of(const LaunchRequest& request, const Plan& plan, const Placement& placement) {
    if (request.segment) {
        if (*request.segment > 0 && placement.nodes % *request.segment != 0)
            throw ConfigError(
                fmt::format("--segment = {} does not divide the job's {} nodes, as Slurm's segments must; use {}, or 0 for none",
                            *request.segment, placement.nodes, nearest_divisor(placement.nodes, *request.segment)));
        return static_cast<int>(*request.segment);
    }
    // The plan's times hold where a domain's nodes are those of the plan's cluster.
    const bool gpus = request.megatron() || request.device == "cuda";
    if (!gpus || !spans_nodes(plan.cluster) || placement.nodes == 1 || placement.ranks_per_node != plan.cluster.gpus_per_node) return 0;
    const std::int64_t used = used_gpus_of_domain(plan.cluster, plan.layout.sizes.world) / placement.ranks_per_node;
    const std::int64_t segment = std::min<std::int64_t>(used, placement.nodes);
    return placement.nodes % segment == 0 ? static_cast<int>(segment) : 0;
}

}  // namespace

jobs::Job job_of(const LaunchRequest& request, const Plan& plan, const std::string& id, const std::string& folder,
                 std::string_view format) {
    const Placement placement = placement_of(request, plan);
    jobs::Job job;
    job.id = id;
    job.folder = folder;
    job.working_directory = files::current_path().string();
    job.title = fmt::format("{}: {}", plan.model.name, summary(plan.layout, plan.model, plan.training));
    job.via = via_of(request);
    job.world = static_cast<int>(plan.layout.sizes.world);
    job.nodes = placement.nodes;
    job.ranks_per_node = placement.ranks_per_node;
    job.gpus = request.megatron() || request.device == "cuda";
    job.meeting = meeting_of_request(request, job.via);
    job.torch_variables = request.megatron();
    // A different port for each job: two may run at the same time.
    constexpr std::size_t kFirst = 20000, kPorts = 10000;
    job.port = static_cast<int>(kFirst + std::hash<std::string>{}(id) % kPorts);
    job.partition = request.partition.value_or("");
    if (job.via == Via::slurm) job.segment = segment_of(request, plan, placement);
    if (request.hostfile) job.hostfile = files::absolute(*request.hostfile).string();
    job.program = program_path();
    job.max_restarts = static_cast<int>(request.max_restarts);
    if (job.gpus) {
        // Megatron-LM asserts one hardware queue for some layouts. mgplan's own ranks have more streams than queues by default, of which
        // some wait for partners.
        if (request.megatron())
            job.environment = formats::megatron_environment(plan);
        else
            job.environment = {{runtime::kQueuesVariable, runtime::kHardwareQueues}};
        job.weak_environment = {{"NCCL_DEBUG", "WARN"}, {"OMP_NUM_THREADS", "1"}};
    } else if (job.meeting == Meeting::mpi) {
        // Ranks are often more than cores, and without yielding one that waits takes the core of one that computes.
        job.weak_environment = {{"OMPI_MCA_mpi_yield_when_idle", "1"}};
        // Slurm carries a fence without data along a tree by default, and its tree (22.05) lets a node's ranks go before other nodes' ranks
        // have come (docs/measurements/2026-11-26-slurm-fence.md). MPI_Init's second fence is one: ranks that left it send to one that is
        // not ready, and Open MPI calls a null pointer there. Slurm's ring waits for all.
        if (job.via == Via::slurm) job.weak_environment.emplace_back("SLURM_PMIX_FENCE", "ring");
    }
    if (request.megatron()) {
        job.command = megatron_command(request, plan);
        if (request.checkpoint && !request.resume) job.resume_words = {"--load", *request.checkpoint};
    } else {
        job.command = run_command(request, job, format);
        if (request.checkpoint && !request.resume) job.resume_words = {"--resume"};
    }
    if (job.max_restarts == 0) job.resume_words.clear();
    return job;
}

}  // namespace mgplan::cli
