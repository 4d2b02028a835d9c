#pragma once
// What the parity tests share: mixtures, training on ranks as threads, and the same ranks on shapes alone.

#include <cstdint>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/training/rank_trainer.hpp"
#include "tests/support/small_mixtures.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::model {

inline constexpr int kSteps = 5;

using tests::Case;
using tests::Outcome;
using tests::Prediction;
using tests::task_for;
using tests::tokens_of;

/// kSteps steps on CPU ranks as threads.
[[nodiscard]] Outcome train(const TrainingTask& task);

/// The same steps of one rank on shapes alone. `routing`: a run's log to take counts from, or nothing.
[[nodiscard]] Prediction predict(const TrainingTask& task, int rank, RoutingLog* routing);

/// Bytes by category, each at its most and all of them at the peak, those on the host, and traffic by group: no difference at all. The
/// prediction gets the run's own routing counts.
void expect_prediction_equals(const TrainingTask& task, int rank, RoutingLog& routing, const MemoryUse& memory,
                              const CollectiveCounter& traffic, std::int64_t host = 0);
void expect_prediction_equals(const TrainingTask& task, Outcome& outcome, int rank);

/// The run that all layouts are compared with; made once for equal names and sizes. A mixture's auxiliary loss
/// is of a microbatch, so the one rank takes the same microbatches one by one.
[[nodiscard]] const Outcome& one_rank(const ModelSpec& model, int micro_batch, Precision precision = Precision::fp64,
                                      std::int64_t sequence = 16);

/// Losses and auxiliary losses agree to `tolerance`, relative, and so do the gradient norms of the first `norms` steps; and
/// the loss falls.
void expect_equal_steps(const std::vector<StepReport>& steps, const std::vector<StepReport>& expected, double tolerance,
                        std::size_t norms = kSteps);

}  // namespace mgplan::model
