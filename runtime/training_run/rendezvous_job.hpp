#pragma once
// A job of ranks that are processes with a GPU each, from their rendezvous to the end of all of them when one fails.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/rendezvous/rendezvous.hpp"
#include "runtime/training_run/gather_values.hpp"
#include "runtime/training_run/rank_devices.hpp"

namespace mgplan::runtime {

/// Ends the process if a rank's thread stays in a call that never returns: a kernel that hangs, a driver that does not answer.
class LastResort {
public:
    LastResort(std::chrono::milliseconds patience, std::function<void(const std::string&)> on_stuck);
    ~LastResort();
    LastResort(const LastResort&) = delete;
    LastResort& operator=(const LastResort&) = delete;

    /// Starts the deadline; `text` is the message at its end. Only the first call counts.
    void begin(const std::string& text);

private:
    std::chrono::milliseconds patience_;
    std::function<void(const std::string&)> on_stuck_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopped_ = false;
    std::thread thread_;
};

/// This process's rank of such a job.
class RendezvousJob {
public:
    /// Waits until all ranks have come; throws as Rendezvous does. `on_stuck`: called with a message when this rank does not
    /// stop within meeting.patience after the job has ended, so it should end the program.
    RendezvousJob(const RendezvousOptions& meeting, std::function<void(const std::string&)> on_stuck);

    [[nodiscard]] Rendezvous& rendezvous() { return rendezvous_; }
    /// Every rank's text on rank 0, through its store.
    [[nodiscard]] GatherTexts gather();
    /// Joins the world over NCCL on a device of `devices`; all ranks call it together.
    [[nodiscard]] std::unique_ptr<NcclWorldInterface> connect(const RankDevices& devices, RankDevice& device,
                                                              std::chrono::milliseconds deadline);

    /// To be called when this rank failed: aborts the others, unless they ended the job, and starts the deadline for ranks that do not
    /// stop. Only the first call counts; run() calls it for every exception.
    void failed(const std::exception& error);
    /// Does the work. An exception aborts the others and is thrown again, as a ConfigError if some rank's input was bad, else as a
    /// RunError, with the reason, and with where this rank was.
    void run(const std::function<void()>& work);

private:
    LastResort last_resort_;
    std::string said_;
    // Declared after the members that its thread uses, so that it is destroyed first.
    Rendezvous rendezvous_;
};

}  // namespace mgplan::runtime
