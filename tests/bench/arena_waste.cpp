// How much more than the most bytes alive at once does the arena of a plan's ranks take? One line for each plan and the first
// rank of its first, second, middle and last stage, traced on shapes with as few microbatches as tell of all of them.
//
//     arena_waste PLAN.json …        or with - for lines of paths on standard input

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>

#include <fmt/core.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/meta/step_arena.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "plan/plan.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "runtime/training_run/rank_prediction.hpp"

namespace mgplan {
namespace {

/// The plan without what the layers do not compute: it has hardly a part in memory.
model::TrainingTask task_of(const Plan& plan) {
    model::TrainingTask task{plan.model, plan.batch, plan.training, plan.layout, {}, {}, {}, 4321, false};
    ModelSpec& spec = task.model;
    spec.rotary_scaling.clear();
    if (spec.moe) {
        spec.moe->expert_bias = false;
        spec.moe->groups = spec.moe->group_top_k = 0;
    }
    task.layout.cuda_graphs = {};
    return runtime::with_few_microbatches(task);
}

double gigabytes(std::int64_t bytes) {
    return static_cast<double>(bytes) / 1e9;
}

void report(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const Plan plan = plan_from_json(parse_json(text.str(), path), path);
    const model::TrainingTask task = task_of(plan);
    if (const auto features = model::features_not_executed(task); !features.empty()) {
        fmt::print("{},skipped: {}\n", path, features.front());
        return;
    }
    const ParallelSizes& sizes = task.layout.sizes;
    for (const std::int64_t stage : std::set<std::int64_t>{0, std::min<std::int64_t>(1, sizes.pp - 1), sizes.pp / 2, sizes.pp - 1}) {
        const auto rank = static_cast<int>(first_rank_of_stage(sizes, stage));
        model::MetaDevice device({.keep_allocations = true, .keep_ops = false});
        model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(sizes.world)));
        (void)trainer.step({}, 0);
        const auto begin = std::chrono::steady_clock::now();
        const model::StepArena arena = model::plan_step(device.allocations(), device.ranges());
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        fmt::print("{},tp{} cp{} ep{} dp{} pp{} vpp{} b{} {},{},{},{:.3f},{:.3f},{:.3f},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.2f},{:.2f}\n",
                   path, sizes.tp, sizes.cp, sizes.ep, task.layout.dp(), sizes.pp, task.layout.vpp, task.layout.micro_batch,
                   to_string(task.layout.recompute), stage, device.allocations().size(), gigabytes(arena.persistent),
                   gigabytes(arena.carried), gigabytes(arena.slots), arena.slot_count, gigabytes(arena.scratch), gigabytes(arena.outside),
                   gigabytes(arena.total), gigabytes(arena.lower_bound), 100 * arena.waste(), seconds);
        std::fflush(stdout);
    }
}

}  // namespace
}  // namespace mgplan

int main(int argc, char** argv) {
    fmt::print("plan,layout,stage,records,persistent GB,carried GB,slots GB,slots,scratch GB,outside GB,total GB,bound GB,waste %,s\n");
    int failed = 0;
    const auto run = [&](const std::string& path) {
        try {
            mgplan::report(path);
        } catch (const std::exception& error) {
            fmt::print(stderr, "{}: {}\n", path, error.what());
            failed = 1;
        }
    };
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "-") {
            for (std::string line; std::getline(std::cin, line);) run(line);
        } else {
            run(argv[i]);
        }
    }
    return failed;
}
