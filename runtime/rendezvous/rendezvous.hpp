#pragma once
// Connects ranks that a launcher started as processes: over TCP, at rank 0, with a secret of the job. Then they
// share values by name (NCCL's id), a heartbeat, and an abort.
//
// The secret keeps other jobs and strangers out. It and everything else travel in the clear, as NCCL's own traffic does, so
// the network between the machines must be one that others do not listen to.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/rank_from_environment.hpp"

namespace mgplan::runtime {

struct RendezvousOptions {
    int rank = 0;
    int size = 1;
    std::string folder;  ///< rank 0 makes it if it is not there
    /// Until all ranks have come.
    std::chrono::milliseconds join_deadline{std::chrono::minutes{5}};
    /// Until a value that another rank sets is there.
    std::chrono::milliseconds deadline{std::chrono::minutes{10}};
    /// From the news that the job has ended to the end of a process whose thread does not stop by itself.
    std::chrono::milliseconds patience{3000};
};

/// The folder is the first of these:
///   MGPLAN_JOB_FOLDER  set by the user on all ranks
///   MGPLAN_JOB_LOGS    folder of the attempt, which `mgplan rank` sets for jobs of `mgplan launch`
///   a folder of this user under the machine's temporary one, named after the launcher's job and attempt, if the launcher says
///   that all ranks are on this machine
/// Throws ConfigError if there is none, or if the temporary one belongs to another user.
[[nodiscard]] RendezvousOptions rendezvous_options(const LaunchedRank& launched, const Environment& environment);

/// Exit codes of an aborted job: bad input, or a run that failed (docs/errors.md).
inline constexpr int kAbortBadInput = 2, kAbortFailed = 4;

/// One rank of a job. Rank 0 opens a session, a folder of a new name inside the job's folder; the others join it and check that rank 0
/// answers them there, so files of an earlier job or attempt are never taken for this one's. Any thread may call where() and reason(), the
/// rank's thread alone all else.
class Rendezvous {
public:
    /// Called once with the reason when this rank learns that another one aborted the job.
    using OnAbort = std::function<void(const std::string& reason)>;

    /// Waits until all ranks have come. Throws ConfigError for another world and for two processes of one rank, RunError naming
    /// the ranks that did not come in time.
    explicit Rendezvous(RendezvousOptions options, OnAbort on_abort = {});

    [[nodiscard]] int rank() const { return options_.rank; }
    [[nodiscard]] int size() const { return options_.size; }

    /// Sets a value for all ranks, once for each key. A key is a file name.
    void set(const std::string& key, const std::string& value);
    /// Waits until some rank has set the value. Throws RunError, or ConfigError after an abort for bad input, when the job is
    /// aborted, and RunError at the deadline.
    [[nodiscard]] std::string get(const std::string& key);
    /// Rank 0's bytes on every rank. All ranks call it equally often.
    [[nodiscard]] std::vector<std::byte> from_rank_0(const std::vector<std::byte>& mine);

    /// Sets where this rank is, for the others' message if it dies: "in all_reduce in group tp". Cheap.
    void at(std::string_view what, std::string_view group);
    [[nodiscard]] std::string where() const;

    /// Ends the job for all, with a sentence and exit code 2 or 4. Returns when the message is sent, after 2 s at the latest.
    void abort(const std::string& reason, int code = kAbortFailed) noexcept;
    /// Reads why the job ends; empty while it does not.
    [[nodiscard]] std::string reason();
    /// Exit code that belongs to reason().
    [[nodiscard]] int code() const;

    /// Waits until all ranks are done. Throws as get() does.
    void leave();

private:
    using Clock = std::chrono::steady_clock;

    void open_session();
    void join_session();
    /// Answers processes that have come since, and refuses those that do not belong to this job.
    void greet_new_ranks(std::map<int, std::string>& seen) const;
    /// Checks for an abort; true if there is one. Does not call on_abort_.
    bool look();
    void throw_if_ended(const std::string& what);
    /// Polls until `found` has a value; throws `late` as RunError at the deadline, and what throw_if_ended() throws.
    template <class Found>
    auto poll(Clock::time_point until, const std::string& what, const std::function<std::string()>& late, Found found);

    RendezvousOptions options_;
    OnAbort on_abort_;
    std::string session_;  ///< path of its folder
    bool joined_ = false;  ///< the session is of this job
    int turn_ = 0;

    mutable std::mutex mutex_;  // of all below
    std::string what_, group_, reason_;
    int code_ = kAbortFailed;
};

}  // namespace mgplan::runtime
