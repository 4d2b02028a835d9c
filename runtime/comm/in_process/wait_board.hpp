#pragma once
// A board on which the ranks of one process record what they wait for, so that an abort can wake them, and a rank that never
// comes is noticed.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "model/communicator/communicator.hpp"

namespace mgplan::runtime {

/// Something that a rank can wait for.
class Awaited {
public:
    explicit Awaited(const std::string& group_text) : group_text_(group_text) {}
    virtual ~Awaited() = default;
    Awaited(const Awaited&) = delete;
    Awaited& operator=(const Awaited&) = delete;

    /// Global ranks that have not yet done their share; none if nothing more is needed from them. Any thread.
    [[nodiscard]] virtual std::vector<std::int32_t> missing() const = 0;
    /// "tp (ranks 0, 1)"
    [[nodiscard]] const std::string& group_text() const { return group_text_; }

    /// Wakes all waiting ranks, which then check again.
    void ring() {
        bell_.fetch_add(1, std::memory_order_release);
        bell_.notify_all();
    }

private:
    friend class WaitBoard;
    // A wait for std::barrier and the like cannot be ended early; one for a counter that every waiter compares can.
    std::atomic<int> bell_ = 0;
    const std::string& group_text_;
};

/// Shared by all ranks of a world. A thread of its own looks at it a few times a second and aborts the world when a rank
/// waited longer than the deadline, or when all ranks wait for each other or have left: then nothing could ever change.
class WaitBoard {
public:
    using Clock = std::chrono::steady_clock;

    WaitBoard(int ranks, std::optional<std::chrono::milliseconds> deadline);
    ~WaitBoard();
    WaitBoard(const WaitBoard&) = delete;
    WaitBoard& operator=(const WaitBoard&) = delete;

    /// Waits until ready() or the abort; true if ready. `awaited` is rung whenever ready() may have become true.
    template <class Ready>
    [[nodiscard]] bool wait(int rank, Awaited& awaited, model::CollectiveKind kind, const Ready& ready) {
        if (ready()) return true;
        begin(rank, awaited, kind);
        bool is_ready = false;
        for (;;) {
            const int heard = awaited.bell_.load(std::memory_order_acquire);
            is_ready = ready();
            if (is_ready || aborted()) break;
            awaited.bell_.wait(heard, std::memory_order_acquire);
        }
        end(rank);
        return is_ready;
    }

    /// Only the first reason counts.
    void abort(const std::string& reason) noexcept;
    [[nodiscard]] bool aborted() const { return aborted_.load(std::memory_order_acquire); }
    /// Returns the error that this rank's current call throws after an abort.
    [[nodiscard]] model::CommunicationError error(int rank, model::CollectiveKind kind, const std::string& group_text) const;
    /// Throws it if there was one.
    void check(int rank, model::CollectiveKind kind, const std::string& group_text) const {
        if (aborted()) throw error(rank, kind, group_text);
    }

    /// The operation that a rank begins: "after" it is where the rank was when it fails.
    void note(int rank, model::CollectiveKind kind, const std::string& group_text);
    /// "after all_reduce in group tp (ranks 0, 1)", or "before its first operation".
    [[nodiscard]] std::string whereabouts(int rank) const;

    /// The rank takes part (again), or will never call anything more.
    void enter(int rank);
    void leave(int rank);

private:
    struct Slot {
        std::mutex mutex;
        Awaited* awaited = nullptr;  // outlives its entry here
        model::CollectiveKind kind{};
        Clock::time_point since;
        bool left = false;
        std::uint64_t changes = 0;
        model::CollectiveKind last_kind{};
        std::string last_group;  // empty before the first operation; a copy, for the group may be gone
    };
    struct Seen {
        bool left = false;
        std::uint64_t changes = 0;
        std::vector<std::int32_t> missing;  // whom it waits for
        std::string text;
        Clock::duration waited{};
        [[nodiscard]] bool stuck() const { return !missing.empty(); }
    };

    void begin(int rank, Awaited& awaited, model::CollectiveKind kind);
    void end(int rank);
    void watch();
    [[nodiscard]] std::vector<Seen> look() const;
    [[nodiscard]] std::string chain_from(const std::vector<Seen>& seen, std::int32_t first) const;
    [[nodiscard]] std::optional<std::string> verdict(const std::vector<Seen>& before, const std::vector<Seen>& now) const;

    std::vector<std::unique_ptr<Slot>> slots_;
    std::optional<std::chrono::milliseconds> deadline_;
    std::once_flag first_abort_;
    std::atomic<bool> aborted_ = false;  // set after the reason
    std::string reason_;

    std::mutex stop_mutex_;
    std::condition_variable stop_changed_;
    bool stop_ = false;
    std::thread watcher_;  // last: it sees all of the above
};

}  // namespace mgplan::runtime
