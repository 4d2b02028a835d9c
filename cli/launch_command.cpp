#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <ostream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/launch_request.hpp"
#include "cli/megatron_round_trip.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "jobs/job_folder.hpp"
#include "jobs/supervisor.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/terminal_text.hpp"
#include "reports/job_script.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

std::atomic<bool> stop_wanted = false;
static_assert(std::atomic<bool>::is_always_lock_free);
extern "C" void want_stop(int /*signal*/) {
    stop_wanted = true;
}

/// While it lives, signals that would end this process set stop_wanted, which ends the job.
class StopSignals {
public:
    StopSignals() {
        stop_wanted = false;
        struct sigaction action {};
        action.sa_handler = want_stop;
        for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
    }
    ~StopSignals() {
        for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
    }
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

private:
    static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
    std::array<struct sigaction, kSignals.size()> before_{};
};

std::string format_name(Format format) {
    return format == Format::json ? "json" : format == Format::csv ? "csv" : "table";
}

std::string dry_run_text(const Options& options, const jobs::Job& job) {
    const std::string script = reports::job_script(job);
    const std::vector<std::string> start = reports::start_command(job, 1);
    if (options.format() == Format::json) {
        Json environment = Json::object();
        for (const auto* list : {&job.environment, &job.weak_environment})
            for (const auto& [name, value] : *list) environment[name] = value;
        return Json{{"world", job.world},
                    {"nodes", job.nodes},
                    {"ranks_per_node", job.ranks_per_node},
                    {"folder", job.folder},
                    {"environment", environment},
                    {"command", job.command},
                    {"start", start},
                    {"script", script}}
                   .dump(1, ' ', false, Json::error_handler_t::replace) +
               "\n";
    }
    return script + "\n# started by: " + shell_words(start) + "\n";
}

/// Prints the plan's assumptions that this job does not meet.
void note_differences(const LaunchRequest& request, const Plan& plan, const jobs::Job& job, Console& console) {
    const int fast = plan.cluster.gpus_per_node;
    if (job.gpus && job.ranks_per_node != std::min<std::int64_t>(fast, job.world))
        console.err << fmt::format(
            "mgplan: the plan's times are for {} GPUs a node, and this job has {}; plan again with --cluster {},gpus_per_node={}\n", fast,
            job.ranks_per_node, plan.cluster.name, job.ranks_per_node);
    if (!request.megatron()) return;
    for (const auto& field : lost_in_megatron_flags(plan)) console.err << fmt::format("mgplan: no flag says that {}\n", field);
}

jobs::Record record_of(const LaunchRequest& request, const jobs::Job& job) {
    jobs::Record record;
    record.id = job.id;
    record.folder = job.folder;
    record.title = job.title;
    record.via = to_string(job.via);
    record.program = request.job;
    record.world = job.world;
    record.nodes = job.nodes;
    record.begun = jobs::utc_now();
    record.max_restarts = job.max_restarts;
    record.launcher = jobs::this_process();
    return record;
}

jobs::Watch watch_for(Console& console) {
    jobs::Watch watch;
    watch.say = [&console](const std::string& line) { console.err << fmt::format("mgplan: {}\n", line) << std::flush; };
    watch.rank_0 = [&console](std::string_view text) { console.err << text << std::flush; };
    watch.stopped = [] { return stop_wanted.load(); };
    return watch;
}

/// Supervises to the end; returns the job's exit code.
int follow(const jobs::Job& job, jobs::Record& record, const jobs::Watch& watch) {
    const StopSignals signals;
    supervise(
        job, record, [&](int attempt) { return reports::start_command(job, attempt); }, watch);
    watch.say(record.state == jobs::State::finished
                  ? fmt::format("job {} finished; logs: {}", job.id, jobs::logs_folder(job.folder, record.attempt))
                  : fmt::format("job {} {}: {}; logs: {}", job.id, to_string(record.state), record.reason,
                                jobs::logs_folder(job.folder, record.attempt)));
    return record.exit_code;
}

int wait_for_job(const Options& options, const jobs::Job& job, jobs::Record record, Console& console) {
    const int code = follow(job, record, watch_for(console));
    std::ifstream report(report_file(job), std::ios::binary);
    if (report) options.write(console, std::string(std::istreambuf_iterator<char>(report), {}));
    return code;
}

/// Starts a process that follows the job, and returns as soon as the engine has accepted the job.
int leave_job(const Options& options, const jobs::Job& job, const LaunchRequest& request, Console& console) {
    std::array<int, 2> news{};
    if (::pipe2(news.data(), O_CLOEXEC) != 0) throw RunError("--detach: no pipe to the process that follows the job");
    console.out.flush();
    console.err.flush();
    const pid_t follower = ::fork();
    if (follower < 0) throw RunError("--detach: the process that follows the job cannot be started");
    if (follower == 0) {
        ::setsid();
        constexpr mode_t kMode = 0644;
        const int log = ::open((job.folder + "/launch.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, kMode);
        const int nothing = ::open("/dev/null", O_RDONLY);
        ::dup2(nothing, STDIN_FILENO);
        ::dup2(log, STDOUT_FILENO);
        ::dup2(log, STDERR_FILENO);
        const auto tell = [&](const std::string& text) {
            [[maybe_unused]] const auto written = ::write(news[1], text.data(), text.size());
            ::close(news[1]);
        };
        // Output to the console would be lost with this process's memory: its streams are the parent's.
        jobs::Watch watch;
        watch.say = [](const std::string& line) {
            fmt::print(stderr, "{} mgplan: {}\n", jobs::utc_now(), terminal_text(line));
            std::fflush(stderr);
        };
        watch.rank_0 = [](std::string_view) {};
        watch.stopped = [] { return stop_wanted.load(); };
        bool taken = false;
        watch.taken = [&] {
            if (!taken) tell("taken");
            taken = true;
        };
        int code = kRunFailed;
        try {
            jobs::Record record = record_of(request, job);
            code = follow(job, record, watch);
        } catch (const std::exception& error) {
            watch.say(error.what());
            if (!taken) tell(error.what());
        }
        std::_Exit(code);
    }
    ::close(news[1]);
    std::string said;
    std::array<char, 4096> some{};
    for (;;) {
        const ssize_t length = ::read(news[0], some.data(), some.size());
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) break;
        said.append(some.data(), static_cast<std::size_t>(length));
    }
    ::close(news[0]);
    if (said != "taken")
        throw RunError(said.empty() ? fmt::format("the process that follows the job ended; see {}/launch.log", job.folder) : said);
    if (options.format() == Format::json) {
        options.write(console, Json{{"id", job.id}, {"folder", job.folder}}.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    } else {
        options.write(console, job.id + "\n");
        console.err << fmt::format("mgplan: the job goes on by itself; mgplan status {} says how it is, its files: {}\n", job.id,
                                   job.folder);
    }
    return kDone;
}

}  // namespace

int run_launch(const std::vector<std::string>& all_args, Console& console) {
    Options options(
        "launch PLAN --via local|mpirun|slurm|torchrun [options] [-- OPTIONS OF RUN]",
        "Writes the script that starts the plan's ranks where the plan assumed them, starts it, and follows the job: rank 0's words "
        "appear here, every rank has a log, and when one fails it is named and all end. Arguments after -- are passed to "
        "mgplan run, or to Megatron-LM's script.");
    LaunchRequest request;
    request.declare(options);
    const auto mark = std::find(all_args.begin(), all_args.end(), "--");
    if (mark != all_args.end()) request.more.assign(mark + 1, all_args.end());
    if (!options.parse({all_args.begin(), mark}, console.out)) return kDone;
    check(request);

    const Plan plan = load_plan(request.plan.front());
    const std::string folder = jobs::jobs_folder(runtime::process_environment());
    const auto job_named = [&](const std::string& id) {
        return job_of(request, plan, id, folder + "/" + id, format_name(options.format()));
    };
    jobs::Job job = job_named(jobs::new_job_id(folder, plan.model.name));
    note_differences(request, plan, job, console);
    if (request.dry_run) {
        options.write(console, dry_run_text(options, job));
        return kDone;
    }
    if (reports::needs_a_start_on_each_node(job))
        throw ConfigError(
            "--via torchrun on several nodes must be started on each of them, which cannot be done from here; --dry-run prints the script "
            "to "
            "start there, or use --via slurm or mpirun");

    job = job_named(jobs::claim_job_id(folder, plan.model.name));
    jobs::write_whole(plan_file(job), plan_to_json(plan).dump(1) + "\n");
    constexpr unsigned kExecutable = 0755;
    jobs::write_whole(script_file(job), reports::job_script(job), kExecutable);
    write_record(record_of(request, job));
    return request.detach ? leave_job(options, job, request, console) : wait_for_job(options, job, record_of(request, job), console);
}

}  // namespace mgplan::cli
