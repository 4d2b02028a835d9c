#pragma once
// Starts a job, watches it to its end, and restarts it if the job allows restarts.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/job.hpp"
#include "jobs/job_folder.hpp"

namespace mgplan::jobs {

struct Watch {
    /// Receives lines for people: the reason of a wait, the rank that failed first.
    std::function<void(const std::string& line)> say;
    /// Receives rank 0's output as it arrives.
    std::function<void(std::string_view text)> rank_0;
    /// Returns true once the job is to end.
    std::function<bool()> stopped;
    /// Called when the engine has accepted the job.
    std::function<void()> taken;
};

/// Runs the attempts of a job to their end and keeps `record` and its file up to date. `start_words`: the words that start an
/// attempt (reports::start_command). A failed attempt is followed by another while restarts are left, unless its ranks refused
/// their input (exit code 2) or it was ended from outside. When a rank has failed, the engine has two seconds to end the others before
/// their end is requested, and three more before they are killed. The record then has the result; its exit code is 0, 2 if ranks
/// refused their input, else 4. Throws RunError if an engine does not accept the job.
void supervise(const Job& job, Record& record, const std::function<std::vector<std::string>(int attempt)>& start_words, const Watch& watch);

/// Returns the current record: of a job whose launcher ended without writing it, from its engine and its folder.
[[nodiscard]] Record seen_now(Record record);

}  // namespace mgplan::jobs
