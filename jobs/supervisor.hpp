#pragma once
// Starts a job, watches it to its end, and restarts it where the job allows restarts.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/job.hpp"
#include "jobs/job_folder.hpp"

namespace mgplan::jobs {

struct Watch {
    /// Lines for people: what the job waits for, which rank failed first.
    std::function<void(const std::string& line)> say;
    /// Receives rank 0's output as it comes.
    std::function<void(std::string_view text)> rank_0;
    /// Returns true once the job is to end.
    std::function<bool()> stopped;
    /// The engine has taken the job.
    std::function<void()> taken;
};

/// Runs the attempts of a job to their end and keeps `record` and its file up to date. `start_words`: what starts an attempt
/// (reports::start_command). An attempt that failed is followed by another while there are restarts left, unless its ranks refused
/// their input (exit code 2) or somebody ended it. When a rank has failed, the engine has two seconds to end the others before their
/// end is requested, and three more before they are killed. The record then says how it went; its exit code is 0, 2 where ranks
/// refused their input, else 4. Throws RunError where an engine does not take the job.
void supervise(const Job& job, Record& record, const std::function<std::vector<std::string>(int attempt)>& start_words, const Watch& watch);

/// Returns the current record: of a job whose launcher ended without writing it, from its engine and its folder.
[[nodiscard]] Record seen_now(Record record);

}  // namespace mgplan::jobs
