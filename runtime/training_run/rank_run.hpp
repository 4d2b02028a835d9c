#pragma once
// One rank of a training run, whatever carries its messages.

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

/// How ranks of one process agree on the step behind which they stop, without a message. The speaker alone looks at the
/// interrupt before it begins a step; until it has begun no rank can finish that step or have issued all of it, because each waits
/// for all others in the sums of loss and gradient norm, on the host. So all of them see the choice before they begin the next one.
class LastStep {
public:
    LastStep(std::int64_t steps, const std::atomic<bool>* interrupt, int speaker = 0)
        : last_(steps), interrupt_(interrupt), speaker_(speaker) {}
    /// Whether this rank is to do this step, counted from 1.
    [[nodiscard]] bool includes(int rank, std::int64_t step) {
        if (rank == speaker_ && interrupt_ != nullptr && interrupt_->load() && step < last_) last_ = step;
        return step <= last_;
    }

private:
    std::atomic<std::int64_t> last_;
    const std::atomic<bool>* interrupt_;
    int speaker_;
};

/// Why all ranks stopped behind a step, as one of them sees it. Where devices work behind the host, the next one was issued by then.
struct Problem {
    std::string text;     ///< empty where they did not
    bool saw_it = false;  ///< the loss of its own tokens or one of its own gradients was to blame
};

/// What to tell the user, out of what the ranks say.
[[nodiscard]] std::string most_telling(std::span<const Problem> problems);

struct RankOutcome {
    RankValues values;
    std::vector<StepValues> steps;  ///< of the speaker
    Problem problem;
};

/// What a rank talks through, once it has a device.
struct Connection {
    model::World world;
    const model::CollectiveCounter* traffic = nullptr;  ///< what the transport counts for this rank
    std::shared_ptr<void> owner;                        ///< of what both need; may be empty
};
using Connect = std::function<Connection(RankDevice& device)>;

/// The same for a transport that needs the device: it connects before the first and goes before the last allocation is given
/// back. `failed` hears of an exception before anything of the rank's is destroyed but its trainer.
[[nodiscard]] RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, int rank, const Connect& connect,
                                   LastStep& last_step, const std::function<void(const std::exception&)>& failed = {});

/// Trains on a device of its own, measures (`traffic`: what the transport counts for this rank) and predicts, each step
/// behind the real one. Where the device works behind the host a step is read when the next one's passes are issued.
[[nodiscard]] RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, const model::World& world,
                                   const model::CollectiveCounter& traffic, LastStep& last_step);

}  // namespace mgplan::runtime
