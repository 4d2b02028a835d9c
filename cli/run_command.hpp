#pragma once
// A training run with the options of `mgplan run`, for commands that do more with it.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/plan.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::cli {

struct RunOutcome {
    Plan plan;
    model::TrainingTask task;    ///< the training that ran
    model::KernelTraits traits;  ///< of the ranks' devices
    runtime::RunValues values;
    bool in_process = true;  ///< all ranks were threads of this process
    [[nodiscard]] bool finished() const { return values.problem.empty() && !values.interrupted; }
};

class RunJob {
public:
    RunJob();
    ~RunJob();
    RunJob(const RunJob&) = delete;
    RunJob& operator=(const RunJob&) = delete;

    void declare(Options& options);
    /// None or one.
    [[nodiscard]] const std::vector<std::string>& plan_files() const;
    /// Called after parsing. Checks, trains, and returns the values to report; nothing on ranks that do not report. Throws
    /// ConfigError and RunError as `mgplan run` does.
    [[nodiscard]] std::optional<RunOutcome> train(const Options& options, Console& console) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Waits a little on other ranks than the launcher's first; called by the handler of bad input.
void let_rank_0_speak();

}  // namespace mgplan::cli
