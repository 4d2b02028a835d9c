#pragma once
// Published weights that `mgplan run` begins with or writes, as its options set them.

#include <memory>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "plan/model/model_spec.hpp"
#include "runtime/checkpoint/published_checkpoint.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::cli {

struct WeightRequest {
    std::optional<std::string> weights;  ///< a folder as the hub has it, or a safetensors file
    std::optional<std::string> folder;   ///< where weights are written
    bool reports = true;                 ///< this rank reports for the job
};

/// Returns the weights to begin with; nullptr if none are requested. Throws ConfigError for a model whose checkpoints are not supported,
/// and for files of another model.
[[nodiscard]] std::shared_ptr<const runtime::PublishedCheckpoint> weights_of(const WeightRequest& request, const ModelSpec& model);

/// Returns the weights to write at the end, with their config.json: that of the folder itself, of the weights the run began with, of the
/// preset, or of the file that the plan was made from, the first of these that describes the model. Makes the folder. Throws ConfigError
/// if none does, and as weights_of() does.
[[nodiscard]] std::optional<runtime::WeightExport> weight_export_of(const WeightRequest& request, const ModelSpec& model, Console& console);

}  // namespace mgplan::cli
