#include "plan/training/batch_schedule.hpp"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/rounding.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// The batch of a step, and the samples at which another follows.
struct Run {
    std::int64_t batch = 0, until = kNever;
};

/// The batch as a function of the samples consumed so far.
class BatchCourse {
public:
    BatchCourse(const BatchSchedule& schedule, const BatchSpec& batch)
        : last_(schedule.whole_batch > 0 ? schedule.whole_batch : batch.global_batch), ramp_(schedule.ramp_up) {
        for (const auto& step : schedule.steps) {
            const std::int64_t from = step.from_tokens / batch.sequence;
            if (steps_.empty() && from > 0)
                throw ConfigError(fmt::format("--step-batch-size-schedule begins with sample {}; let its first step begin with 0", from));
            if (!steps_.empty() && from <= steps_.back().from_samples)
                throw ConfigError(
                    fmt::format("--step-batch-size-schedule: the step to {} begins with sample {}, as the one before it; let it begin at "
                                "least a sequence of {} later",
                                step.batch, from, counted(batch.sequence, "token")));
            steps_.push_back({.batch = step.batch, .from_samples = from});
        }
        if (ramp_ && ramp_->samples > BatchSchedule::most_tokens)
            throw ConfigError("--rampup-batch-size: the ramp-up is longer than 2^62 samples; give fewer");
        if (ramp_) increments_ = std::max<std::int64_t>(1, (last_ - ramp_->start) / ramp_->increment);
    }

    [[nodiscard]] Run at(std::int64_t consumed) const {
        if (ramp_) return in_ramp_up(consumed);
        if (steps_.empty()) return {last_};
        const auto next = std::find_if(steps_.begin(), steps_.end(), [&](const BatchStage& step) { return step.from_samples > consumed; });
        return {std::prev(next)->batch, next == steps_.end() ? kNever : next->from_samples};
    }

private:
    /// Number of times the batch has grown, in the floating-point numbers of the original.
    [[nodiscard]] std::int64_t level(std::int64_t consumed) const {
        const double of_each = static_cast<double>(ramp_->samples) / static_cast<double>(increments_);
        return std::min(increments_, static_cast<std::int64_t>(static_cast<double>(consumed) / of_each));
    }

    [[nodiscard]] Run in_ramp_up(std::int64_t consumed) const {
        if (consumed > ramp_->samples) return {last_};
        const std::int64_t now = level(consumed);
        if (now >= increments_) return {last_};
        // Starts next to the multiple, where rounding puts the end.
        const double of_each = static_cast<double>(ramp_->samples) / static_cast<double>(increments_);
        auto until = std::max(consumed + 1, static_cast<std::int64_t>(of_each * static_cast<double>(now + 1)) - 1);
        while (level(until) == now && until <= ramp_->samples) ++until;
        return {ramp_->start + now * ramp_->increment, until};
    }

    std::int64_t last_;
    std::optional<BatchSchedule::RampUp> ramp_;
    std::int64_t increments_ = 1;
    std::vector<BatchStage> steps_;  ///< batch and first sample
};

/// Steps that training goes on for with this batch, as far as the flags end it; nothing: they do not.
std::optional<std::int64_t> steps_to_the_end(const BatchSchedule& schedule, std::int64_t consumed, std::int64_t taken, const Run& run) {
    if (schedule.train_iterations) return *schedule.train_iterations - taken;
    if (!schedule.train_samples) return std::nullopt;
    const std::int64_t rest = *schedule.train_samples - consumed;
    if (!schedule.steps.empty()) return rest > 0 ? divide_up(rest, run.batch) : 0;
    if (!schedule.ramp_up || consumed > schedule.ramp_up->samples) return rest > 0 ? rest / run.batch : 0;
    // In the ramp-up a step begins as long as no more samples are consumed than there are.
    const std::int64_t begun = rest >= 0 ? rest / run.batch + 1 : 0;
    return run.until == kNever ? std::max<std::int64_t>(rest >= 0 ? 1 : 0, rest / run.batch) : begun;
}

/// The stages whose batches are as many sequences as `divisor` divides.
std::vector<BatchStage> stages_of(const BatchSchedule& schedule, const BatchSpec& batch, std::int64_t divisor) {
    const BatchCourse course(schedule, batch);
    const std::int64_t most_samples = BatchSchedule::most_tokens / batch.sequence;
    std::vector<BatchStage> stages;
    std::int64_t consumed = 0, taken = 0;
    while (true) {
        const Run run = course.at(consumed);
        const std::int64_t runs = run.batch - run.batch % divisor;  // sequences
        const auto end = steps_to_the_end(schedule, consumed, taken, run);
        std::optional<std::int64_t> steps = end;
        if (run.until != kNever) {
            const std::int64_t change = divide_up(run.until - consumed, std::max<std::int64_t>(runs, 1));
            steps = end ? std::min(*end, change) : change;
        }
        if (steps == 0) return stages;
        if (runs == 0)
            throw ConfigError(
                fmt::format("the batch of {} from sample {} on is less than dp times the micro-batch, {}; begin with at least that",
                            with_thousands(run.batch), with_thousands(consumed), with_thousands(divisor)));
        if (stages.size() == BatchSchedule::most_stages)
            throw ConfigError(fmt::format("the batch changes more than {} times; let it grow in larger steps",
                                          with_thousands(static_cast<std::int64_t>(BatchSchedule::most_stages))));
        if (steps && *steps > (most_samples - consumed) / runs)
            throw ConfigError("the training is longer than 2^62 tokens; give fewer samples, iterations, or an earlier schedule");
        if (!stages.empty() && stages.back().batch == runs && stages.back().steps) {
            if (steps)
                *stages.back().steps += *steps;
            else
                stages.back().steps.reset();
        } else {
            stages.push_back({.batch = runs, .from_samples = consumed, .steps = steps});
        }
        if (!steps || steps == end) return stages;
        consumed += *steps * runs;
        taken += *steps;
    }
}

}  // namespace

std::vector<BatchStage> batch_stages(const BatchSchedule& schedule, const BatchSpec& batch, std::int64_t divisor) {
    if (!schedule.decreases) return stages_of(schedule, batch, 1);
    // training.py, update_train_iters, counts whole batches; those that run are what is consumed.
    BatchSchedule counted = schedule;
    if (!schedule.train_iterations && schedule.train_samples) {
        counted.train_iterations = 0;
        for (const BatchStage& stage : stages_of(schedule, batch, 1)) *counted.train_iterations += stage.steps.value_or(0);
    }
    return stages_of(counted, batch, divisor);
}

std::optional<std::int64_t> TrainingCourse::steps() const {
    std::int64_t sum = 0;
    for (const auto& timed : stages) {
        if (!timed.stage.steps) return std::nullopt;
        sum += *timed.stage.steps;
    }
    return sum;
}

std::optional<std::int64_t> TrainingCourse::samples() const {
    std::int64_t sum = 0;
    for (const auto& timed : stages) {
        if (!timed.stage.steps) return std::nullopt;
        sum += *timed.stage.steps * timed.stage.batch;
    }
    return sum;
}

std::optional<double> TrainingCourse::seconds() const {
    double sum = 0;
    for (const auto& timed : stages) {
        if (!timed.stage.steps) return std::nullopt;
        sum += static_cast<double>(*timed.stage.steps) * timed.iteration_seconds;
    }
    return sum;
}

}  // namespace mgplan
