#pragma once
// State shared by the communicators of one MPI process. For this folder alone: it includes mpi.h.

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/mpi/mpi_world.hpp"

namespace mgplan::runtime {

/// The operation a rank is in: for its error messages, the deadline, and the last words when it is stopped.
class Whereabouts {
public:
    Whereabouts(int rank, const MpiOptions& options);
    ~Whereabouts();
    Whereabouts(const Whereabouts&) = delete;
    Whereabouts& operator=(const Whereabouts&) = delete;

    /// `what` is a literal, `group_text` stays for ever (State::intern).
    void enter(const char* what, const std::string& group_text);
    void leave();
    /// "in all_reduce of group tp (ranks 0, 1)", "after …", or "before its first operation"
    [[nodiscard]] std::string text() const;

    /// Enters and leaves.
    class Visit {
    public:
        Visit(Whereabouts& whereabouts, const char* what, const std::string& group_text) : whereabouts_(whereabouts) {
            whereabouts_.enter(what, group_text);
        }
        ~Visit() { whereabouts_.leave(); }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;

    private:
        Whereabouts& whereabouts_;
    };

private:
    void watch();

    int rank_;
    MpiOptions options_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    const char* last_what_ = nullptr;
    const std::string* last_group_ = nullptr;
    bool inside_ = false;
    std::chrono::steady_clock::time_point since_;
    bool stop_ = false;
    std::thread watcher_;  // only with a deadline
};

struct MpiWorld::State {
    explicit State(MpiOptions options);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    /// Throws CommunicationError with the library's text unless the call succeeded.
    void check(int code, const char* call, const char* what, const std::string& group_text) const;
    /// Returns when the request is done. Lets other processes on the same core run meanwhile.
    void wait(MPI_Request& request, const char* what, const std::string& group_text, MPI_Status* status = MPI_STATUS_IGNORE);
    /// Sends a copy of the bytes.
    void send_copy(const void* bytes, std::int64_t count, int peer, MPI_Comm communicator, const std::string& group_text);
    /// Ends all ranks; 4 is the exit code of a run that failed (docs/errors.md).
    [[noreturn]] void abort(const std::string& reason, int code = 4) const noexcept;

    /// A copy that lives as long as this object.
    [[nodiscard]] const std::string& intern(std::string text) { return *texts_.insert(std::move(text)).first; }

    struct Sent {
        MPI_Request request = MPI_REQUEST_NULL;
        std::vector<std::byte> bytes;
    };

    MpiOptions options;
    int rank = 0;
    int size = 1;
    MPI_Comm world = MPI_COMM_NULL;
    MPI_Op maximum = MPI_OP_NULL;  ///< of floating-point numbers; NaN wins
    std::list<Sent> under_way;
    model::CollectiveCounter traffic;
    std::optional<Whereabouts> whereabouts;
    int exceptions = 0;

private:
    std::set<std::string> texts_;

    void drop_delivered(const std::string& group_text);
};

}  // namespace mgplan::runtime
