#pragma once
// Sequences of a step as a training goes on, and the training's length.
// Source: megatron/core/num_microbatches_calculator.py and update_train_iters() of megatron/training/training.py, Megatron-LM: the ramp-up
// as up to core 0.17 (later releases ignore it), steps as from core 0.18 on.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/training/batch_spec.hpp"

namespace mgplan {

/// A plain value: as the flags say it. With neither a ramp-up nor steps the batch stays the same.
struct BatchSchedule {
    /// --rampup-batch-size: from `start` to the global batch by `increment`, over `samples` samples.
    struct RampUp {
        std::int64_t start = 1, increment = 1, samples = 1;
        bool operator==(const RampUp&) const = default;
    };
    /// --step-batch-size-schedule: `batch` sequences from `from_tokens` tokens on.
    struct Step {
        std::int64_t from_tokens = 0, batch = 1;
        bool operator==(const Step&) const = default;
    };
    static constexpr std::size_t most_stages = 65'536;
    static constexpr std::int64_t most_tokens = std::int64_t{1} << 62;  ///< of a training

    std::optional<RampUp> ramp_up{};                 ///< of at most most_tokens samples
    std::vector<Step> steps{};                       ///< ascending, the first from 0
    std::optional<std::int64_t> train_iterations{};  ///< --train-iters
    std::optional<std::int64_t> train_samples{};     ///< --train-samples, where there are no iterations
    bool resumed = false;                            ///< --load: the first stages may have been run before, on other GPUs
    /// --decrease-batch-size-if-needed: each batch runs as far as dp times the micro-batch divides it. Steps are counted by whole batches.
    bool decreases = false;
    std::int64_t whole_batch = 0;  ///< where the workload has the decreased batch: the one that the flags say; else 0

    bool operator==(const BatchSchedule&) const = default;

    /// True if the schedule states more than a constant batch.
    [[nodiscard]] bool stated() const { return ramp_up || !steps.empty() || train_iterations || train_samples; }
};

/// Steps of one batch.
struct BatchStage {
    std::int64_t batch = 0;                 ///< sequences
    std::int64_t from_samples = 0;          ///< consumed before its first step
    std::optional<std::int64_t> steps = 0;  ///< nothing: it has no end
};

/// The stages in order, of which the last alone may have no end; none if no step is taken. `batch`: its sequences are those after a
/// ramp-up, and those of a schedule that has neither. `divisor`: dp times the micro-batch, by which a schedule that decreases its batches
/// rounds them down; others ignore it. Throws ConfigError if two steps begin with the same sample or the first after sample 0
/// (Megatron-LM's assertions), for more than `most_stages` stages or `most_tokens` tokens, and for a batch that is less than the divisor.
[[nodiscard]] std::vector<BatchStage> batch_stages(const BatchSchedule& schedule, const BatchSpec& batch, std::int64_t divisor = 1);

/// A stage on a layout.
struct TimedStage {
    BatchStage stage;
    std::int64_t num_microbatches = 0;  ///< 0: run before, on other GPUs
    double iteration_seconds = 0;
};

/// Time of a training alone, without evaluations, checkpoints and restarts.
struct TrainingCourse {
    std::vector<TimedStage> stages;
    std::int64_t sequence = 0;  ///< tokens

    /// Nothing where the last stage has no end.
    [[nodiscard]] std::optional<std::int64_t> steps() const;
    [[nodiscard]] std::optional<std::int64_t> samples() const;
    [[nodiscard]] std::optional<double> seconds() const;  ///< of the stages that the layout runs
};

}  // namespace mgplan
