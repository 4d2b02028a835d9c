#pragma once
// Published weights that `mgplan run` begins with or writes, as its options set them.

#include <memory>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "cli/run_folder.hpp"
#include "plan/model/model_spec.hpp"
#include "runtime/checkpoint/published_checkpoint.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::cli {

struct WeightRequest {
    std::optional<std::string> weights;  ///< a folder as the hub has it, or a safetensors file
    std::optional<std::string> folder;   ///< where weights are written
    bool force = false;                  ///< weights of another model there are replaced
    bool reports = true;                 ///< this rank speaks for the job
};

/// The folder of --export-weights.
[[nodiscard]] RunFolder weights_folder(const std::string& path);

/// The weights to begin with; nullptr without --weights. Throws ConfigError for a model whose checkpoints cannot be read, and for
/// files that hold another model.
[[nodiscard]] std::shared_ptr<const runtime::PublishedCheckpoint> weights_of(const WeightRequest& request, const ModelSpec& model);

/// The weights to write at the end, with their config.json: that of the folder itself, of the weights the run began with, of the
/// preset, or of the file that the plan was made from, the first of these that describes the model. `lock`: nullptr, or outlives the run.
/// Throws ConfigError where there is no such text, where the folder holds something that the export would destroy, and as weights_of()
/// does.
[[nodiscard]] std::optional<runtime::WeightExport> weight_export_of(const WeightRequest& request, const runtime::TrainingRunOptions& run,
                                                                    runtime::FolderLock* lock, Console& console);

}  // namespace mgplan::cli
