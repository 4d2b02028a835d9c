#include "runtime/training_run/rank_checkpoints.hpp"

#include <chrono>
#include <filesystem>
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

std::optional<Manifest> RankCheckpoints::save_shards(const std::string& folder, std::span<const model::StatePiece> pieces,
                                                     const std::function<void()>& before, FilePurpose purpose) {
    const model::TrainingPosition position = trainer_.position();
    if (rank_ == options_.speaker && before) before();
    // Nobody writes before the speaker may.
    trainer_.meet_all();
    save_rank_file(folder, rank_, position.steps, pieces, purpose);
    // Everybody's file is on the disk, or nobody gets past this.
    trainer_.meet_all();
    if (rank_ != options_.speaker) return std::nullopt;
    Manifest manifest;
    manifest.identity = identity_of(options_.task, *options_.data);
    manifest.position = position;
    manifest.layout = summary(options_.task.layout);
    finish_checkpoint(folder, static_cast<int>(options_.task.layout.sizes.world), manifest, purpose);
    return manifest;
}

bool RankCheckpoints::save() {
    const CheckpointOptions& options = options_.checkpoint;
    const std::int64_t steps = trainer_.position().steps;
    if (options.folder.empty() || steps == saved_) return false;
    const auto begin = std::chrono::steady_clock::now();
    const auto manifest = save_shards(step_folder(options.folder, steps), trainer_.state(), options.before_save, FilePurpose::checkpoint);
    saved_ = steps;
    if (!manifest) return true;
    remove_leftovers(options.folder, steps, options.keep);
    if (options.on_saved) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        options.on_saved(steps, manifest->bytes(), seconds);
    }
    return true;
}

bool RankCheckpoints::export_weights() {
    if (!options_.export_weights) return false;
    const WeightExport& wanted = *options_.export_weights;
    // A checkpoint of the parameters alone puts the shards of any layout together.
    std::vector<model::StatePiece> parameters = trainer_.state();
    std::erase_if(parameters, [](const model::StatePiece& piece) { return piece.kind != model::StateKind::parameter; });
    const std::string shards = shards_folder(wanted.folder);
    const std::int64_t steps = trainer_.position().steps;
    if (!save_shards(step_folder(shards, steps), parameters, wanted.before_write, FilePurpose::weights)) return true;
    const auto complete = SavedCheckpoint::open(shards, steps);
    const std::int64_t bytes = write_published_weights(*complete, wanted, options_.task.training.compute_dtype());
    std::error_code error;
    std::filesystem::remove_all(shards, error);
    if (wanted.on_written) wanted.on_written(bytes);
    return true;
}

}  // namespace mgplan::runtime
