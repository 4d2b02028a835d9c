#pragma once
// State shared by the communicators of one rank: the watchdog, the abort, the sends and receives that are held back, and the graphs
// that hold operations.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/communicator.hpp"
#include "model/device/graph_capture.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace mgplan::runtime::cuda {

/// Why a rank's world was ended. Empty until then; the first reason stays. Any thread.
class AbortReason {
public:
    /// false where there was a reason already. Never throws: without memory for the words the world is ended without them.
    bool set(const std::string& reason) noexcept {
        const std::scoped_lock lock(mutex_);
        if (given_.load(std::memory_order_relaxed)) return false;
        try {
            text_ = reason;
        } catch (...) {  // no memory for the words
        }
        given_.store(true, std::memory_order_release);
        return true;
    }

    [[nodiscard]] bool given() const noexcept { return given_.load(std::memory_order_acquire); }

    [[nodiscard]] std::string text() const {
        const std::scoped_lock lock(mutex_);
        return text_;
    }

    /// Throws CommunicationError once there is a reason. `what`: "all_reduce in group tp (ranks 0, 1)".
    void check(int rank, const std::string& what) const {
        if (given()) throw model::CommunicationError(fmt::format("rank {}: {} was aborted: {}", rank, what, text()));
    }

private:
    std::atomic<bool> given_ = false;
    mutable std::mutex mutex_;  // of text_
    std::string text_;
};

/// An NCCL communicator and its stream. On the heap, because a thread of NCCL's writes the communicator here while it is made.
struct NcclGroup {
    std::string text;            ///< "tp (ranks 0, 1)"
    bool beside_layers = false;  ///< its operations run while layers compute and send
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
    std::atomic<bool> made = false;  ///< NCCL is done with making it

    [[nodiscard]] ncclComm_t live() { return std::atomic_ref(communicator).load(std::memory_order_acquire); }
    [[nodiscard]] ncclComm_t take() { return std::atomic_ref(communicator).exchange(nullptr, std::memory_order_acq_rel); }
};

/// One issued operation, or one launch of a graph that holds some: done when its event is. The event of an operation inside a capture
/// orders streams and is never queried.
struct NcclTicket {
    explicit NcclTicket(std::string text);
    ~NcclTicket();
    NcclTicket(const NcclTicket&) = delete;
    NcclTicket& operator=(const NcclTicket&) = delete;

    std::string what;  ///< "all_reduce in group tp (ranks 0, 1)"
    cudaEvent_t event = nullptr;
    bool issued = false;  ///< the rank's thread alone
    std::chrono::steady_clock::time_point since;
};

/// Returns true if NCCL accepted a call, even if a thread of its own still works on it.
[[nodiscard]] constexpr bool is_taken(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

/// NCCL's communicators must not be used from two threads at once, and the watchdog looks at all of them: every call into
/// NCCL is made under one lock of this rank's.
///
/// While the device's stream is captured, operations go into the capture: forked off the device's stream by an event and joined again
/// by wait(). Those of the layers' groups are on one stream, so that they begin in one order on all ranks whatever a graph runs side by
/// side; those of groups outside the layers have their own streams, so that no other operation waits for them. Graphs with operations
/// must be destroyed before this object: NCCL keeps a communicator until they are.
class NcclState final : public model::GraphLaunches {
public:
    NcclState(CudaDevice& device, int rank, NcclOptions options);
    /// Waits until partners have received all messages, within limits; after an error it ends everything at once.
    ~NcclState() override;
    NcclState(const NcclState&) = delete;
    NcclState& operator=(const NcclState&) = delete;

    [[nodiscard]] CudaDevice& device() const { return device_; }
    [[nodiscard]] int rank() const { return rank_; }
    /// For the rank's thread alone.
    [[nodiscard]] model::CollectiveCounter& traffic() { return traffic_; }

    /// A group without a communicator yet.
    std::shared_ptr<NcclGroup> prepare(std::string text, bool beside_layers = false);
    /// To be called when the group's communicator is made: gives it a stream, and the watchdog watches it from here on.
    void made(NcclGroup& group);

    /// Runs `call` and waits until it has been taken up: calls are non-blocking. Throws CommunicationError naming `what`.
    void perform(NcclGroup& group, const std::function<ncclResult_t()>& call, const std::string& what);
    /// Waits until the communicator's last call has been taken up.
    void settle(NcclGroup& group, ncclResult_t result, const std::string& what);

    /// Stream on which the group's operations are issued now: its own, or that of the capture.
    [[nodiscard]] cudaStream_t stream_of(const NcclGroup& group) const {
        return captures() && !group.beside_layers ? captured_ : group.stream;
    }
    /// Runs `call` on stream_of(group), after the device's stream and all held operations; the watchdog watches it until its event.
    std::shared_ptr<NcclTicket> issue(NcclGroup& group, model::CollectiveKind kind, const std::function<ncclResult_t()>& call);
    /// Holds a send or receive back, see make_nccl_world(). `what`: for errors; empty: the operation and its group.
    std::shared_ptr<NcclTicket> hold(std::shared_ptr<NcclGroup> group, model::CollectiveKind kind, std::function<ncclResult_t()> call,
                                     std::string what = {});
    void flush();
    /// Makes the device's stream wait until the operation is done.
    void wait(NcclTicket& ticket);

    [[nodiscard]] std::string take_recorded() override;
    void before_launch(const std::string& graph) override;
    void launched(const std::string& graph) override;

    /// Four bytes of the card outside of the device's pool, whose memory is counted. They are zero, and only zeros are written there.
    [[nodiscard]] void* flag(std::size_t place = 0);
    static constexpr std::size_t kFlags = 3;

    /// Any thread may call it. Does not wait for NCCL, which ends a communicator when the graphs with its operations are destroyed.
    void abort(const std::string& reason) noexcept;

private:
    struct Held {
        std::shared_ptr<NcclGroup> group;
        std::shared_ptr<NcclTicket> ticket;
        bool sends, captured;
        std::function<ncclResult_t()> call;
    };

    /// Returns true while the device's stream is captured.
    [[nodiscard]] bool captures() const;
    [[noreturn]] void fail(NcclGroup& group, ncclResult_t result, const std::string& what);
    void behind_the_device(NcclGroup& group);
    /// Records the ticket's event on the group's stream: the operation ends with it.
    void issued(const std::shared_ptr<NcclTicket>& ticket, const NcclGroup& group);
    void watch(const std::shared_ptr<NcclTicket>& ticket);
    void watch_over();
    [[nodiscard]] std::string trouble();
    /// Returns the i-th group, nullptr after the last.
    [[nodiscard]] std::shared_ptr<NcclGroup> group_at(std::size_t i) noexcept;
    [[nodiscard]] bool idle() noexcept;
    [[nodiscard]] bool idle_by(std::chrono::steady_clock::time_point until) noexcept;
    void say_farewell();
    void end_communicators() noexcept;

    CudaDevice& device_;
    int rank_;
    NcclOptions options_;
    model::CollectiveCounter traffic_;
    int exceptions_;  ///< that were under way when this object was made
    AbortReason abort_reason_;
    cudaEvent_t ready_ = nullptr;
    cudaStream_t captured_ = nullptr;  // of the layers' operations inside captures
    // Operations since take_recorded() and how often each, in the order of their first times; the rank's thread alone.
    std::vector<std::pair<std::string, std::int64_t>> recorded_;
    void* flag_ = nullptr;
    std::vector<Held> held_;  // the rank's thread alone

    std::timed_mutex api_;  // of NCCL; locked before mutex_, never while holding it

    std::mutex mutex_;  // of all below
    std::condition_variable stop_;
    bool stopping_ = false;
    std::vector<std::shared_ptr<NcclGroup>> groups_;
    std::deque<std::shared_ptr<NcclTicket>> running_;
    std::vector<std::thread> enders_;  // of communicators
    std::thread watchdog_;
};

}  // namespace mgplan::runtime::cuda
