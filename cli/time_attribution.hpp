#pragma once
// Measured and predicted time of a run by op, which `mgplan verify PLAN` compares.

#include <string>

#include "cli/run_command.hpp"
#include "plan/cluster/cluster_spec.hpp"
#include "reports/verification.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::cli {

/// Returns the median seconds of the run's steps but the first; if there are steps without timed ops, of these, because timing costs a
/// GPU's host time.
[[nodiscard]] double median_step(const runtime::RunValues& run);

/// Returns the reason why this run's time cannot test the prediction; empty if it can. `hardware`: as a calibration names it.
[[nodiscard]] std::string why_not_judged(const RunOutcome& outcome, const ClusterSpec& cluster, const std::string& hardware);

/// Fills in time.parts, and time.ops where ops were timed. time.predicted is predicted.iteration_seconds.
void attribute(const RunOutcome& outcome, const ClusterSpec& cluster, const simulator::TimePrediction& predicted,
               reports::TimeComparison& time);

/// Does the same for one rank alone, with time.predicted and time.measured. Predicted: its trace, priced op by op without communication,
/// or, if that is longer, the host's time to issue that number of ops by the cluster's calibration. Measured: the median
/// step without the copies that replace communication; those are timed with the ops.
void attribute_alone(const RunOutcome& outcome, const ClusterSpec& cluster, reports::TimeComparison& time);

}  // namespace mgplan::cli
