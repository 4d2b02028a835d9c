#include <exception>
#include <functional>

#include <fmt/core.h>

#include "model/communicator/communicator.hpp"
#include "plan/text/error_reason.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/comm/mpi/mpi_world.hpp"
#include "runtime/launch/node_name.hpp"
#include "runtime/launch/placement.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/agreement.hpp"
#include "runtime/training_run/gather_values.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {
namespace {

/// Returns the options of the MPI world: its deadline, its expected size, and the source of that size for the message.
MpiOptions mpi_options(const TrainingRunOptions& options, const LaunchedRank& launched) {
    MpiOptions mpi;
    mpi.deadline = options.deadline;
    mpi.expected_size = launched.size;
    mpi.expected_by = to_string(launched.source);
    if (launched.source == RankSource::torchrun) mpi.expected_by = "the variables RANK and WORLD_SIZE";
    return mpi;
}

/// Refuses runs that the kernel's out-of-memory killer would end; takes the machine's other ranks for as large as this one.
void check_size(const TrainingRunOptions& options, const LaunchedRank& launched) {
    std::int64_t here = 1;
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
        const auto text = process_environment()(name);
        const auto number = text ? parse_integer(*text) : std::nullopt;
        if (number && *number >= 1 && *number <= launched.size) here = *number;
    }
    check_one_rank(options, cpu_devices(), launched.rank, here);
}

/// Does the work, and passes its failure to options.on_failure.
void telling_of_failure(const TrainingRunOptions& options, const std::function<void()>& work) {
    const auto tell = [&](const std::exception& error, int code) {
        if (options.on_failure) options.on_failure(reason_of(error), code);
    };
    try {
        work();
    } catch (const model::CommunicationError&) {
        throw;
    } catch (const ConfigError& error) {
        tell(error, 2);
        throw;
    } catch (const std::exception& error) {
        tell(error, 4);
        throw;
    }
}

}  // namespace

std::optional<RunValues> run_over_mpi(const TrainingRunOptions& options, const LaunchedRank& launched) {
    std::optional<RunValues> result;
    {
        check_size(options, launched);
        MpiWorld world(mpi_options(options, launched));
        const auto train = [&] {
            if (world.rank() != launched.rank) {
                throw RunError(fmt::format("it is rank {} by {} and rank {} by MPI; let mpirun number the ranks and leave --rank out",
                                           launched.rank, to_string(launched.source), world.rank()));
            }
            // Only rank 0 has all texts; its abort ends the others, which wait for it in their first collective.
            if (const std::string problem = disagreement(world.gather_names(options.alike)); !problem.empty()) throw ConfigError(problem);
            if (options.ranks_per_node) {
                const std::vector<std::string> nodes = world.gather_names(node_name(process_environment()));
                if (const std::string problem = placement_problem(nodes, *options.ranks_per_node); !problem.empty())
                    throw ConfigError(problem);
            }
            LastStep last_step(options.steps, nullptr);
            RankOutcome outcome = run_rank(options, cpu_devices(), world.view(), world.traffic(), last_step);
            const model::World view = world.view();
            const GatherTexts gather = gather_over(view);
            std::vector<Problem> problems;  // where there is one, all ranks have it
            if (!outcome.problem.text.empty()) problems = gather_problems(gather, outcome.problem);
            std::vector<RankValues> ranks = gather_values(gather, outcome.values);
            if (world.rank() != 0) return;
            result = RunValues{};
            result->device = cpu_devices().text();
            result->memory = options.memory;
            result->transport = "MPI";
            if (!problems.empty()) result->problem = most_telling(problems);
            result->steps = std::move(outcome.steps);
            result->ranks = std::move(ranks);
        };
        world.run([&] { telling_of_failure(options, train); });
    }
    if (result) compare(*result);
    return result;
}

}  // namespace mgplan::runtime
