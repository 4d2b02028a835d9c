#pragma once
// The answer of mgplan simulate, in each of its forms.

#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/disturbances.hpp"
#include "cli/options.hpp"
#include "cli/simulated_schedule.hpp"
#include "cli/stage_memories.hpp"
#include "formats/input/flag_account.hpp"
#include "plan/layout/layout.hpp"
#include "plan/training/batch_schedule.hpp"
#include "plan/workload.hpp"
#include "planner/balanced_layout.hpp"
#include "reports/memory_snapshot.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

/// The layout to simulate, and its source.
struct SimulatedLayout {
    Workload work;
    Layout layout;
    std::vector<std::string> assumed;
    BatchSource batch_source = BatchSource::given;
    std::optional<formats::FlagAccount> flags;  ///< of a Megatron-LM command
    BatchSchedule batches;                      ///< the same
};

/// All results, and those to show.
struct SimulateAnswer {
    const SimulatedLayout& asked;
    const simulator::Prediction& prediction;
    const SimulatedSchedule& schedule;
    const std::optional<planner::BalancedLayout>& balanced;
    const DisturbanceOptions& disturbances;
    const std::optional<DisturbedIteration>& disturbed;
    const StageMemories& memories;
    const std::vector<simulator::StageUse>& use;
    const std::optional<TrainingCourse>& training;  ///< where a command states it, and its own schedule runs undisturbed
    const std::optional<reports::SnapshotSummary>& snapshot;
    bool per_rank;
    bool markdown;

    [[nodiscard]] std::string text_of_balance() const;
    [[nodiscard]] std::string text_of_disturbance() const;
};

/// Returns the lines at the head of the page.
[[nodiscard]] std::vector<std::string> details_of(const SimulateAnswer& answer);

/// Writes the answer in the format of the options.
void write_simulate_answer(const Options& options, const SimulateAnswer& answer, simulator::CostModel& model, Console& console);

}  // namespace mgplan::cli
