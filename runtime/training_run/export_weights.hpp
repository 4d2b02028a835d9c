#pragma once
// Writes trained weights in the format of a repository on the Hugging Face hub.

#include <string>

#include "plan/parameters/published_weights.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

/// Throws ConfigError where the folder of an export holds something that the export would destroy: symbolic links in place of its files,
/// the weights that the run reads (`read`, may be nullptr), and, unless `force`, a model that is not of this training.
void check_export_folder(const std::string& folder, const TrainingIdentity& training, const PublishedCheckpoint* read, bool force);

/// The folder inside the folder of an export that holds the ranks' shards until the weights are complete.
[[nodiscard]] std::string shards_folder(const std::string& folder);

/// Writes FOLDER/model.safetensors from a checkpoint, in the parameters' type (bf16 rounds to the nearest), and FOLDER/config.json. Files
/// of these names are replaced when both are complete. Returns the bytes of the weights. Throws RunError naming a file that cannot be
/// written.
std::int64_t write_published_weights(const SavedCheckpoint& checkpoint, const WeightExport& wanted, Dtype dtype);

}  // namespace mgplan::runtime
