#pragma once
// One rank of a training run, whatever carries its messages.

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/world.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

/// How ranks of one process agree on the step behind which they stop, without a message. Rank 0 alone looks at the
/// interrupt before it begins a step; until it has begun no rank can finish that step, because each waits for all others
/// in the sums of loss and gradient norm. So all of them see the choice before they begin the next one.
class LastStep {
public:
    LastStep(std::int64_t steps, const std::atomic<bool>* interrupt) : last_(steps), interrupt_(interrupt) {}
    /// Whether this rank is to do this step, counted from 1.
    [[nodiscard]] bool includes(int rank, std::int64_t step) {
        if (rank == 0 && interrupt_ != nullptr && interrupt_->load() && step < last_) last_ = step;
        return step <= last_;
    }

private:
    std::atomic<std::int64_t> last_;
    const std::atomic<bool>* interrupt_;
};

/// Why all ranks stopped behind a step, as one of them sees it.
struct Problem {
    std::string text;     ///< empty where they did not
    bool saw_it = false;  ///< the loss of its own tokens or one of its own gradients was to blame
};

/// What to tell the user, out of what the ranks say.
[[nodiscard]] std::string most_telling(std::span<const Problem> problems);

struct RankOutcome {
    RankValues values;
    std::vector<StepValues> steps;  ///< on rank 0
    Problem problem;
};

/// Trains on a device of its own, measures (`traffic`: what the transport counts for this rank) and predicts, each step
/// behind the real one.
[[nodiscard]] RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, const model::World& world,
                                   const model::CollectiveCounter& traffic, LastStep& last_step);

}  // namespace mgplan::runtime
