#include "jobs/rank_process.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include <fmt/core.h>

#include "jobs/child.hpp"
#include "jobs/rank_failure.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/launch/node_name.hpp"

namespace mgplan::jobs {
namespace {

using Clock = std::chrono::steady_clock;

/// Variable with the folder in which the command of a rank may report its failure.
constexpr const char* kLogsVariable = "MGPLAN_JOB_LOGS";
constexpr auto kPatience = std::chrono::seconds(2);
/// Delay of failures that may follow from another rank's: a rank that ends because a connection broke must not count as the first. Some
/// are killed by it: SIGPIPE while MPI writes, and with a lost peer an Open MPI process "may even hang or crash" (help-mpi-btl-tcp.txt).
/// Only a kill from outside is reported at once.
constexpr auto kReflection = std::chrono::milliseconds(300);

/// Number of ranks of this machine, if the launcher gives it.
std::optional<std::int64_t> local_size(const runtime::LaunchedRank& launched, const runtime::Environment& environment) {
    const auto number = [&](const char* name) -> std::optional<std::int64_t> {
        const auto text = environment(name);
        return text ? parse_integer(*text) : std::nullopt;
    };
    switch (launched.source) {
        case runtime::RankSource::torchrun:
            return number("LOCAL_WORLD_SIZE");
        case runtime::RankSource::open_mpi:
            return number("OMPI_COMM_WORLD_LOCAL_SIZE");
        case runtime::RankSource::pmi:
            return number("MPI_LOCALNRANKS");
        default:
            return std::nullopt;
    }
}

/// Signals that end a job, and the end of a child, taken one by one.
class Signals {
public:
    Signals() {
        sigemptyset(&set_);
        for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set_, number);
        ::sigprocmask(SIG_BLOCK, &set_, &before_);
    }
    ~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    /// The next one, or 0 after `time`.
    [[nodiscard]] int next(std::chrono::milliseconds time) const {
        const timespec limit{time.count() / 1000, static_cast<long>(time.count() % 1000) * 1'000'000};
        const int number = ::sigtimedwait(&set_, nullptr, &limit);
        return number < 0 ? 0 : number;
    }

private:
    sigset_t set_{};
    sigset_t before_{};
};

}  // namespace

std::string rank_log(const std::string& logs, int rank) {
    return fmt::format("{}/rank-{:05}.log", logs, rank);
}

std::string start_problem(const RankProcessOptions& options, const runtime::LaunchedRank& launched,
                          const runtime::Environment& environment) {
    if (options.world == 1) return "";
    if (launched.source == runtime::RankSource::none) {
        return fmt::format(
            "the plan has {} ranks, and nothing in the environment says which of them this process is: the engine started jobs of one rank "
            "each; start them with srun --mpi=pmix, mpirun or torchrun of the same installation",
            options.world);
    }
    if (launched.size != options.world) {
        return fmt::format("the plan has {} ranks, and {} started {}{}; start as many as the plan has", options.world,
                           to_string(launched.source), launched.size,
                           launched.size == 1 ? " (so there are perhaps many jobs of one rank each)" : "");
    }
    const int expected = launched.rank % options.ranks_per_node;
    if (launched.local_rank && *launched.local_rank != expected) {
        return fmt::format(
            "the plan puts rank {} on node {} as local rank {} of {}, and {} made it local rank {}; let ranks fill nodes one after the "
            "other "
            "(srun --distribution=block:block, mpirun --map-by ppr:{}:node)",
            launched.rank, launched.rank / options.ranks_per_node, expected, options.ranks_per_node, to_string(launched.source),
            *launched.local_rank, options.ranks_per_node);
    }
    if (const auto here = local_size(launched, environment); here && *here != options.ranks_per_node) {
        return fmt::format("the plan has {} ranks on a node, and {} started {} on this one; say --nodes and --gpus-per-node as they are",
                           options.ranks_per_node, to_string(launched.source), *here);
    }
    return "";
}

int run_rank_process(const RankProcessOptions& options) {
    // This process must end with the engine's: if that is killed, nothing else ends this one.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const Signals signals;
    const runtime::Environment environment = runtime::process_environment();
    const runtime::LaunchedRank launched = options.world == 1 ? runtime::LaunchedRank{} : runtime::rank_from_environment({}, environment);
    RankFailure failure{launched.rank, runtime::node_name(environment), 0, "", ""};
    if (const std::string problem = start_problem(options, launched, environment); !problem.empty()) {
        failure.code = 2;
        failure.reason = problem;
        leave_word(options.logs, failure);
        throw ConfigError(problem);
    }
    ChildOptions child_options;
    child_options.words = options.command;
    child_options.output = rank_log(options.logs, launched.rank);
    if (options.torch_variables) {
        child_options.variables = {{"RANK", std::to_string(launched.rank)},
                                   {"WORLD_SIZE", std::to_string(launched.size)},
                                   {"LOCAL_RANK", std::to_string(launched.rank % options.ranks_per_node)},
                                   {"LOCAL_WORLD_SIZE", std::to_string(options.ranks_per_node)}};
    }
    child_options.variables.emplace_back(kLogsVariable, options.logs);
    failure.log = child_options.output;
    int status = 0;
    bool stopped = false;
    try {
        Child child(child_options);
        std::optional<Clock::time_point> kill_at;
        for (;;) {
            if (const auto ended = child.ended()) {
                status = *ended;
                break;
            }
            if (kill_at && Clock::now() >= *kill_at) child.signal(SIGKILL);
            const int number = signals.next(std::chrono::milliseconds(kill_at ? 50 : 1000));
            if (number == 0 || number == SIGCHLD) continue;
            child.signal(number);
            stopped = true;
            if (!kill_at) kill_at = Clock::now() + kPatience;
        }
    } catch (const RunError& error) {
        failure.code = 4;
        failure.reason = fmt::format("cannot begin: {}", error.what());
        failure.log.clear();
        leave_word(options.logs, failure);
        throw;
    }
    failure.code = exit_code_of(status);
    if (failure.code == 0 || stopped) return failure.code;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        // A rank that is stopped meanwhile, because another one failed, is not the first.
        for (const auto until = Clock::now() + kReflection; Clock::now() < until;) {
            const int number = signals.next(kReflection);
            if (number != 0 && number != SIGCHLD) return failure.code;
        }
    }
    failure.reason = end_text(status);
    leave_word(options.logs, failure);
    return failure.code;
}

void leave_word_of_own_failure(const runtime::LaunchedRank& launched, const runtime::Environment& environment, const std::string& what,
                               int code) {
    const auto logs = environment(kLogsVariable);
    if (!logs) return;
    leave_word(*logs, {launched.rank, runtime::node_name(environment), code, fmt::format("ended with exit code {}: {}", code, what),
                       rank_log(*logs, launched.rank)});
}

}  // namespace mgplan::jobs
