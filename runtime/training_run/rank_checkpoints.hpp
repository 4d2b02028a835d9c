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

    /// Reads the checkpoint that the run resumes from, or the weights that it begins with, if there are any; returns the number of steps
    /// done.
    std::int64_t resume();
    /// Returns true if resume() reads anything.
    [[nodiscard]] bool resumed() const { return options_.checkpoint.resume != nullptr || options_.weights != nullptr; }
    /// Returns true if a checkpoint is to be saved after this step, which is not the last one.
    [[nodiscard]] bool is_due(std::int64_t step) const;
    /// Saves the state after the trainer's last step, unless that is done. Every rank calls it; returns true if it saved.
    bool save();
    /// Writes the weights in the hub's format, if the options request it. Every rank calls it; returns true if it wrote them.
    bool export_weights();

private:
    /// Every rank writes its file into the folder, then the speaker the manifest; returns it on the speaker.
    std::optional<Manifest> save_shards(const std::string& folder, std::span<const model::StatePiece> pieces,
                                        const std::function<void()>& before, FilePurpose purpose);

    const TrainingRunOptions& options_;
    int rank_;
    model::RankTrainer& trainer_;
    std::int64_t saved_ = 0;  ///< the last step that is in the folder
};

}  // namespace mgplan::runtime
