#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/comm/alone/lone_world.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/machine_memory.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

RunValues run_alone(const TrainingRunOptions& asked, int rank) {
    const int size = static_cast<int>(asked.task.layout.sizes.world);
    MGPLAN_ASSERT(rank >= 0 && rank < size, "the rank is inside the world");
    TrainingRunOptions options = asked;
    options.speaker = rank;
    // The rows of other ranks are unknown; balanced, their number is that of the plan's prediction.
    options.task.balanced_routing = true;
    const RankDevices& devices = options.devices ? *options.devices : cpu_devices();
    check_one_rank(options, devices, rank);
    LastStep last_step(options.steps, options.interrupt, rank);
    const std::vector<std::byte> numbers = stand_in_numbers();
    RankOutcome outcome = run_rank(
        options, devices, rank,
        [&](RankDevice& device) {
            const auto world = std::make_shared<LoneWorld>(rank, size, device.uncounted(numbers));
            return Connection{world->view(), &world->traffic(), world};
        },
        last_step);
    RunValues values;
    if (!outcome.problem.text.empty()) values.problem = most_telling({&outcome.problem, 1});
    values.device = devices.text();
    values.memory = options.memory;
    values.transport = fmt::format("rank {} of {} alone, its partners emulated", rank, size);
    values.emulated_partners = true;
    values.steps = std::move(outcome.steps);
    values.ranks.push_back(std::move(outcome.values));
    compare(values);
    return values;
}

}  // namespace mgplan::runtime
