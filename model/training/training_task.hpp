#pragma once
// A training's model, layout and options, and those of its features that the layers do not compute.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layers/initialization.hpp"
#include "model/optimizer/optimizer.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/batch_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::model {

/// Reaction to a loss or gradient that is NaN or infinite.
enum class OnNonFinite : std::uint8_t {
    stop,  ///< every rank throws RunError naming itself, the step and the cause
    skip,  ///< parameters, optimizer state and the count of updates stay as they are; the report says why
};

/// Scaling of gradients to those of the mean loss, and checks of the step (Megatron-LM's DistributedDataParallelConfig).
struct GradientOptions {
    std::optional<std::int64_t> bucket_size;  ///< elements, with overlapped reduction; nothing: Megatron-LM's default
    bool average_in_collective = false;       ///< collectives average instead of gradients being scaled before
    bool per_token_loss = false;              ///< gradients of the sum of losses, divided by the number of tokens at the end
    OnNonFinite on_non_finite = OnNonFinite::stop;
};

/// Description of a training; plain values that outlive the trainer.
struct TrainingTask {
    ModelSpec model;
    BatchSpec batch;
    TrainingSpec training;
    Layout layout;
    InitializationOptions initialization;
    OptimizerOptions optimizer;  ///< kind, distributed and the dtypes follow from `training`
    GradientOptions gradients;
    std::uint64_t dropout_seed = 4321;
    bool balanced_routing = false;  ///< MoE: experts chosen in turn, whatever the router says
};

/// Features of the task that the layers do not compute, in words; a task with any cannot be trained. `computes`: on a device
/// with values; without (the meta device) those that change values alone are left out, for they change no shape.
[[nodiscard]] std::vector<std::string> features_not_executed(const TrainingTask& task, bool computes = true);
/// Throws ConfigError naming them, if there are any.
void check_features(const TrainingTask& task, bool computes = true);

}  // namespace mgplan::model
