#include <fmt/format.h>

#include "plan/errors.hpp"
#include "runtime/comm/mpi/mpi_world.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/gather_values.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

std::optional<RunValues> run_over_mpi(const TrainingRunOptions& options, const LaunchedRank& launched) {
    std::optional<RunValues> result;
    std::string problem;
    {
        MpiOptions mpi;
        mpi.deadline = options.deadline;
        mpi.expected_size = launched.size;
        MpiWorld world(mpi);
        world.run([&] {
            if (world.rank() != launched.rank) {
                throw RunError(fmt::format("it is rank {} by {} and rank {} by MPI; let mpirun number the ranks and leave --rank out",
                                           launched.rank, to_string(launched.source), world.rank()));
            }
            LastStep last_step(options.steps, nullptr);
            RankOutcome outcome = run_rank(options, world.view(), world.traffic(), last_step);
            if (!outcome.problem.text.empty()) {  // on all ranks
                const std::vector<Problem> problems = gather_problems(world.view(), outcome.problem);
                if (world.rank() == 0) problem = most_telling(problems);
                return;
            }
            std::vector<RankValues> ranks = gather_values(world.view(), outcome.values);
            if (world.rank() != 0) return;
            result = RunValues{};
            result->transport = "MPI";
            result->steps = std::move(outcome.steps);
            result->ranks = std::move(ranks);
        });
    }
    if (!problem.empty()) throw RunError(problem);
    if (result) compare(*result);
    return result;
}

}  // namespace mgplan::runtime
