#include <algorithm>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/machine_memory.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {
namespace {

/// More threads than this are no sensible way to run on one machine.
constexpr std::int64_t kMostThreads = 512;
/// Most addresses that a kernel takes which adds up the arrays of a group (runtime/cuda/ops/reduce.hpp, kMostRanks).
constexpr std::int64_t kMostOnOneCard = 64;

/// Refuses runs that the kernel's out-of-memory killer would end.
void check_size(const TrainingRunOptions& options, const RankDevices& devices) {
    const std::int64_t world = options.task.layout.sizes.world;
    if (world > kMostThreads) {
        throw ConfigError(fmt::format(
            "the plan is for {} ranks, and one process runs at most {} as threads; start them with mpirun -n {}, or make a smaller plan",
            world, kMostThreads, world));
    }
    if (devices.traits().kind == model::DeviceKind::cuda && world > kMostOnOneCard) {
        throw ConfigError(
            fmt::format("the plan is for {} ranks, and at most {} share one GPU; start them as processes with a GPU each, run "
                        "them on CPUs with --device cpu, or make a smaller plan",
                        world, kMostOnOneCard));
    }
    const model::TrainingTask task = with_few_microbatches(options.task);
    std::int64_t together = 0, most = 0;
    for (int rank = 0; rank < static_cast<int>(world); ++rank) {
        if (options.interrupt != nullptr && options.interrupt->load()) throw RunError("interrupted before the first step");
        const std::int64_t needed = bytes_needed(task, rank, devices.traits(), options.memory, options.check_memory);
        together += needed;
        most = std::max(most, needed);
    }
    const MachineMemory machine = devices.memory();
    if (together > machine.bytes) {
        throw ConfigError(fmt::format(
            "the {} rank{} of this plan need up to {} each, {} together, more than the {} of memory that {}: {} are missing; {}", world,
            world == 1 ? "" : "s", human_bytes(most), human_bytes(together), human_bytes(machine.bytes), machine.text,
            human_bytes(together - machine.bytes),
            devices.traits().kind == model::DeviceKind::cpu
                ? "run it on more machines with mpirun, or plan a smaller model or batch"
                : "all of them share it, so plan a smaller model or batch, or run it on CPUs with --device cpu"));
    }
}

}  // namespace

bool training_available() {
    return true;
}

RunValues run_in_process(const TrainingRunOptions& options) {
    const RankDevices& devices = options.devices ? *options.devices : cpu_devices();
    check_size(options, devices);
    const int ranks = static_cast<int>(options.task.layout.sizes.world);
    InProcessWorld world(ranks, {.deadline = options.deadline});
    LastStep last_step(options.steps, options.interrupt);
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
    RunRanksOptions run_options;
    run_options.on_stuck = options.on_stuck;
    run_ranks(
        world,
        [&](int rank) {
            outcomes[static_cast<std::size_t>(rank)] = run_rank(options, devices, world.view(rank), world.traffic(rank), last_step);
        },
        run_options);
    RunValues values;
    if (!outcomes[0].problem.text.empty()) {
        std::vector<Problem> problems;
        for (const auto& outcome : outcomes) problems.push_back(outcome.problem);
        values.problem = most_telling(problems);
    }
    values.device = devices.text();
    values.memory = options.memory;
    values.transport = "threads of one process";
    values.steps = std::move(outcomes[0].steps);
    for (auto& outcome : outcomes) values.ranks.push_back(std::move(outcome.values));
    compare(values);
    return values;
}

}  // namespace mgplan::runtime
