#include "runtime/training_run/rank_checkpoints.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/load_state.hpp"
#include "runtime/checkpoint/save_state.hpp"
#include "runtime/training_run/export_weights.hpp"

namespace mgplan::runtime {

RankCheckpoints::RankCheckpoints(const TrainingRunOptions& options, int rank, model::RankTrainer& trainer)
    : options_(options), rank_(rank), trainer_(trainer) {}

std::int64_t RankCheckpoints::resume() {
    const auto& checkpoint = options_.checkpoint.resume;
    if (checkpoint == nullptr) {
        if (options_.weights == nullptr) return 0;
        options_.weights->load(trainer_.state());
        trainer_.go_on_from({});
        return 0;
    }
    load_state(*checkpoint, trainer_.state());
    trainer_.go_on_from(checkpoint->manifest().position);
    saved_ = trainer_.position().steps;
    return saved_;
}

bool RankCheckpoints::is_due(std::int64_t step) const {
    return !options_.checkpoint.folder.empty() && options_.checkpoint.every > 0 && step % options_.checkpoint.every == 0;
}

bool RankCheckpoints::save() {
    const CheckpointOptions& options = options_.checkpoint;
    const model::TrainingPosition position = trainer_.position();
    if (options.folder.empty() || position.steps == saved_) return false;
    const auto begin = std::chrono::steady_clock::now();
    const std::string folder = step_folder(options.folder, position.steps);
    if (rank_ == options_.speaker && options.before_save) options.before_save();
    // No rank writes before the speaker's before_save has returned.
    trainer_.meet_all();
    save_rank_file(folder, rank_, position.steps, trainer_.state());
    // Returns only if the files of all ranks are on the disk.
    trainer_.meet_all();
    saved_ = position.steps;
    if (rank_ != options_.speaker) return true;
    Manifest manifest;
    manifest.identity = identity_of(options_.task, *options_.data);
    manifest.position = position;
    manifest.layout = summary(options_.task.layout);
    finish_checkpoint(folder, static_cast<int>(options_.task.layout.sizes.world), manifest);
    remove_leftovers(options.folder, position.steps, options.keep);
    if (options.on_saved) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        options.on_saved(position.steps, manifest.bytes(), seconds);
    }
    return true;
}

bool RankCheckpoints::export_weights() {
    if (!options_.export_weights) return false;
    const WeightExport& wanted = *options_.export_weights;
    // A checkpoint of the parameters alone puts the shards of any layout together.
    std::vector<model::StatePiece> parameters = trainer_.state();
    std::erase_if(parameters, [](const model::StatePiece& piece) { return piece.kind != model::StateKind::parameter; });
    const std::string shards = (std::filesystem::path(wanted.folder) / "shards.unfinished").string();
    const model::TrainingPosition position = trainer_.position();
    const std::string folder = step_folder(shards, position.steps);
    trainer_.meet_all();
    save_rank_file(folder, rank_, position.steps, parameters);
    trainer_.meet_all();
    if (rank_ != options_.speaker) return true;
    Manifest manifest;
    manifest.identity = identity_of(options_.task, *options_.data);
    manifest.position = position;
    manifest.layout = summary(options_.task.layout);
    finish_checkpoint(folder, static_cast<int>(options_.task.layout.sizes.world), manifest);
    const auto complete = SavedCheckpoint::open(shards, position.steps);
    const std::int64_t bytes = write_published_weights(*complete, wanted, options_.task.training.compute_dtype());
    std::error_code error;
    std::filesystem::remove_all(shards, error);
    if (wanted.on_written) wanted.on_written(bytes);
    return true;
}

}  // namespace mgplan::runtime
