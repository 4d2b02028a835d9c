#pragma once
// One rank of a training run, over any transport.

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/world.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

/// The last step of a run, on which the ranks of one process agree without a message. The speaker alone looks at the
/// interrupt before it begins a step; until it has begun no rank can finish that step or have issued all of it, because each waits
/// for all others in the sums of loss and gradient norm, on the host. So all of them see the choice before they begin the next one.
class LastStep {
public:
    LastStep(std::int64_t steps, const std::atomic<bool>* interrupt, int speaker = 0)
        : last_(steps), interrupt_(interrupt), speaker_(speaker) {}
    /// Returns true if this rank is to do this step, counted from 1.
    [[nodiscard]] bool includes(int rank, std::int64_t step) {
        if (rank == speaker_ && interrupt_ != nullptr && interrupt_->load() && step < last_) last_ = step;
        return step <= last_;
    }

private:
    std::atomic<std::int64_t> last_;
    const std::atomic<bool>* interrupt_;
    int speaker_;
};

/// Reason why all ranks stopped after a step, as one of them sees it. On asynchronous devices the next step was issued by then.
struct Problem {
    std::string text;     ///< empty where they did not
    bool saw_it = false;  ///< the loss of its own tokens or one of its own gradients was to blame
};

/// Returns the message for the user: the problem of a rank that saw it itself, else the first one, and a way out.
[[nodiscard]] std::string most_telling(std::span<const Problem> problems);

struct RankOutcome {
    RankValues values;
    std::vector<StepValues> steps;  ///< of the speaker
    Problem problem;
};

/// A rank's transport, made after its device.
struct Connection {
    model::World world;
    const model::CollectiveCounter* traffic = nullptr;  ///< the transport's counts for this rank
    std::shared_ptr<void> owner;                        ///< of what both need; may be empty
};
using Connect = std::function<Connection(RankDevice& device)>;

/// The same for a transport that needs the device: it connects before the first allocation and ends before the last is given
/// back. `failed` is called with an exception before any of the rank's objects but its trainer is destroyed.
[[nodiscard]] RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, int rank, const Connect& connect,
                                   LastStep& last_step, const std::function<void(const std::exception&)>& failed = {});

/// Trains on a device of its own, measures (`traffic`: the transport's counts for this rank) and predicts each step after the
/// real one. On an asynchronous device a step is read when the next one's passes are issued.
[[nodiscard]] RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, const model::World& world,
                                   const model::CollectiveCounter& traffic, LastStep& last_step);

}  // namespace mgplan::runtime
