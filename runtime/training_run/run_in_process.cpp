#include <unistd.h>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "plan/text.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {
namespace {

/// More threads than this are no sensible way to run on one machine.
constexpr std::int64_t kMostThreads = 512;

std::int64_t bytes_of_this_machine() {
    return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
}

/// Refuses what can only end in the kernel killing somebody.
void check_size(const model::TrainingTask& task) {
    const std::int64_t world = task.layout.sizes.world;
    if (world > kMostThreads) {
        throw ConfigError(fmt::format(
            "the plan is for {} ranks, and one process runs at most {} as threads; start them with mpirun -n {}, or make a smaller plan",
            world, kMostThreads, world));
    }
    const std::int64_t machine = bytes_of_this_machine();
    std::int64_t needed = 0;
    for (int rank = 0; rank < static_cast<int>(world); ++rank) {
        const StepFacts one_step;
        needed += predict_rank(task, rank, CpuDevice::kernel_traits(), {&one_step, 1}).memory.reserved_bytes;
        if (needed > machine) break;
    }
    if (needed > machine) {
        throw ConfigError(
            fmt::format("the ranks of this plan together need more than the {} of memory that this machine has; run it on more machines "
                        "with mpirun, or plan a smaller model or batch",
                        human_bytes(machine)));
    }
}

}  // namespace

bool training_available() {
    return true;
}

RunValues run_in_process(const TrainingRunOptions& options) {
    check_size(options.task);
    const int ranks = static_cast<int>(options.task.layout.sizes.world);
    InProcessWorld world(ranks, {.deadline = options.deadline});
    LastStep last_step(options.steps, options.interrupt);
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
    RunRanksOptions run_options;
    run_options.on_stuck = options.on_stuck;
    run_ranks(
        world,
        [&](int rank) { outcomes[static_cast<std::size_t>(rank)] = run_rank(options, world.view(rank), world.traffic(rank), last_step); },
        run_options);
    if (!outcomes[0].problem.text.empty()) {
        std::vector<Problem> problems;
        for (const auto& outcome : outcomes) problems.push_back(outcome.problem);
        throw RunError(most_telling(problems));
    }
    RunValues values;
    values.transport = "threads of one process";
    values.steps = std::move(outcomes[0].steps);
    for (auto& outcome : outcomes) values.ranks.push_back(std::move(outcome.values));
    compare(values);
    return values;
}

}  // namespace mgplan::runtime
