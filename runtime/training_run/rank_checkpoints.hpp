#pragma once
// The checkpoints of one rank's run.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "model/training/rank_trainer.hpp"
#include "runtime/checkpoint/durable_file.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

class RankCheckpoints {
public:
    /// Everything outlives this.
    RankCheckpoints(const TrainingRunOptions& options, int rank, model::RankTrainer& trainer);

    /// Reads the checkpoint that the run goes on from, or the weights that it begins with, if there are any; returns the number of steps
    /// done.
    std::int64_t resume();
    /// Whether resume() read anything.
    [[nodiscard]] bool resumed() const { return options_.checkpoint.resume != nullptr || options_.weights != nullptr; }
    /// Whether one is to be saved behind this step, which is not the last one.
    [[nodiscard]] bool is_due(std::int64_t step) const;
    /// Saves behind the trainer's last step, unless that is done. Every rank calls it; returns whether it did.
    bool save();
    /// Writes the weights as the hub has them, where that is asked for. Every rank calls it; returns whether it did.
    bool export_weights();

private:
    /// Every rank writes its file into the folder, the speaker the manifest behind all of them; returns it there.
    std::optional<Manifest> save_shards(const std::string& folder, std::span<const model::StatePiece> pieces,
                                        const std::function<void()>& before, FilePurpose purpose);

    const TrainingRunOptions& options_;
    int rank_;
    model::RankTrainer& trainer_;
    std::int64_t saved_ = 0;  ///< the last step that is in the folder
};

}  // namespace mgplan::runtime
