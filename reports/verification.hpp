#pragma once
// Output of `mgplan verify`: a plan that ran, or the log of a Megatron-LM job, compared with the prediction.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/measurement/run_values.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// A part of an iteration in seconds. measured: nothing if it was not timed separately.
struct TimePart {
    std::string name;
    double predicted = 0;
    std::optional<double> measured;
};

/// One kind of op in a step, averaged over ranks.
struct OpComparison {
    std::string op;
    double count = 0;
    double predicted_count = 0;
    double predicted = 0;  ///< seconds of all of them
    double measured = 0;
    bool communication = false;  ///< measured including waits for partners; predicted only in `parts`
};

struct TimeComparison {
    double predicted = 0;
    double measured = 0;     ///< median
    double tolerance = 0.1;  ///< share of the measured seconds
    std::string why_not_judged;
    std::vector<TimePart> parts;  ///< add up to the iteration on both sides, if all of them are measured
    std::vector<OpComparison> ops;
    [[nodiscard]] double error() const { return predicted / measured - 1; }
    [[nodiscard]] bool misses() const { return error() > tolerance || error() < -tolerance; }
};

struct Verification {
    runtime::RunValues run;
    std::string cluster;  ///< the cluster whose figures predict the time
    TimeComparison time;
    /// True if no checked value differs.
    [[nodiscard]] bool holds() const { return run.as_predicted && (!time.why_not_judged.empty() || !time.misses()); }
};

[[nodiscard]] std::string verification_text(const Verification& verification);
/// {"holds", "bytes": {"fields", "different"}, "collectives", "time", "run"}
[[nodiscard]] std::string verification_json(const Verification& verification);
/// kind (byte, collective, time, part, op), index (rank), name, measured, predicted, difference
[[nodiscard]] std::string verification_csv(const Verification& verification);

/// One rank of a job that reported its memory. Bytes; 0: not reported.
struct LoggedRankMemory {
    std::optional<std::int64_t> rank;  ///< nothing: the fullest one
    std::int64_t stage = 0;
    std::int64_t measured_allocated = 0, predicted_allocated = 0;  ///< the allocator's maximum
    std::int64_t measured_reserved = 0, predicted_reserved = 0;
};

struct RefitResult {
    std::string file;
    double compute_factor = 1;
    double communication_factor = 1;
    double predicted_before = 0;
    double predicted_after = 0;
    bool at_bound = false;  ///< the factors that would match the measurement are outside their bounds
};

struct LogVerification {
    std::string log;
    std::string workload;  ///< as text, with a newline
    std::string cluster;
    std::int64_t lines = 0;
    double lower_quartile = 0, upper_quartile = 0;
    TimeComparison time;
    std::optional<double> logged_tflops, predicted_tflops;
    /// Logged FLOPs of one iteration divided by those of the model; far from 1 the arguments are not those of the job.
    std::optional<double> flops_ratio;
    std::vector<LoggedRankMemory> memory;
    double memory_tolerance = 0.1;
    std::optional<RefitResult> refit;
    [[nodiscard]] bool memory_misses(const LoggedRankMemory& rank) const;
    [[nodiscard]] bool holds() const;
};

[[nodiscard]] std::string log_verification_text(const LogVerification& verification);
[[nodiscard]] std::string log_verification_json(const LogVerification& verification);
[[nodiscard]] std::string log_verification_csv(const LogVerification& verification);

}  // namespace mgplan::reports
