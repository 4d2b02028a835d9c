#pragma once
// Folders of jobs: one for each, per user, with script, plan, logs, and a record that outlives every crash.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/job.hpp"
#include "jobs/rank_failure.hpp"
#include "runtime/launch/rank_from_environment.hpp"

namespace mgplan::jobs {

enum class State : std::uint8_t {
    starting,  ///< recorded, not yet passed to the engine
    waiting,   ///< for the engine to begin it
    running,
    finished,  ///< all ranks ended with 0
    failed,
    cancelled,  ///< by Ctrl-C, a signal to the launcher, or scancel
    lost,       ///< not watched any more; its end is unknown
};
[[nodiscard]] std::string_view to_string(State state);
[[nodiscard]] constexpr bool is_over(State state) {
    return state >= State::finished;
}

/// Identifies a process, also against a later one of the same number.
struct ProcessMark {
    std::int64_t process = 0;
    std::string host;
    std::string boot;          ///< of the machine
    std::int64_t started = 0;  ///< clock ticks since then
    bool operator==(const ProcessMark&) const = default;
};
[[nodiscard]] ProcessMark this_process();
/// Returns true if the process is alive, nothing if it is on another machine.
[[nodiscard]] std::optional<bool> alive(const ProcessMark& mark);

struct Record {
    std::string id;
    std::string folder;
    std::string title;
    std::string via;
    std::string program;  ///< "mgplan" or "megatron"
    int world = 1;
    int nodes = 1;
    std::string begun;  ///< UTC, "2026-01-31T12:00:00Z"
    std::string ended;  ///< empty until then
    State state = State::starting;
    int attempt = 0;  ///< counted from 1
    int max_restarts = 0;
    std::string engine_job;  ///< Slurm's number of the attempt
    ProcessMark launcher;
    int exit_code = 0;
    std::string reason;  ///< of its end, or for which it waits
    std::optional<RankFailure> failure;
};

/// Returns $XDG_STATE_HOME/mgplan/jobs, else $HOME/.local/state/mgplan/jobs. Throws ConfigError if neither is an absolute path.
[[nodiscard]] std::string jobs_folder(const runtime::Environment& environment);

/// Returns an unused name of a job: time and title in plain letters.
[[nodiscard]] std::string new_job_id(const std::string& jobs_folder, const std::string& title);

/// Does the same and makes the job's folder: two launches at the same time get two folders. Throws RunError.
[[nodiscard]] std::string claim_job_id(const std::string& jobs_folder, const std::string& title);

/// Makes a folder and those above it, for this user alone. Throws RunError.
void make_folder(const std::string& path);
/// Replaces the file by one that has all of the text, or throws RunError and leaves it as it was. `mode` as for chmod.
void write_whole(const std::string& path, const std::string& text, unsigned mode = 0644);

/// Writes FOLDER/record.json. Throws RunError.
void write_record(const Record& record);
/// Returns nothing if there is no record; throws RunError, naming file and reason, for one that cannot be read.
[[nodiscard]] std::optional<Record> read_record(const std::string& folder);
/// Returns all jobs, oldest first; folders whose record cannot be read add a sentence to `unreadable`.
[[nodiscard]] std::vector<Record> read_records(const std::string& jobs_folder, std::vector<std::string>& unreadable);

/// FOLDER/attempt-N
[[nodiscard]] std::string logs_folder(const std::string& job_folder, int attempt);
/// Returns the last line of progress in rank 0's log, without "mgplan: "; empty if there is none.
[[nodiscard]] std::string progress(const std::string& job_folder, int attempt);
/// Returns the end of a text file: whole lines, at most `most`, out of the last 64 KiB.
[[nodiscard]] std::vector<std::string> last_lines(const std::string& path, std::size_t most);

/// "2026-01-31T12:00:00Z"
[[nodiscard]] std::string utc_now();

}  // namespace mgplan::jobs
