#pragma once
// What the communicators of one rank share: the watchdog, the abort, and the sends and receives that are held back.

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

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/communicator.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace mgplan::runtime::cuda {

/// An NCCL communicator and its stream. On the heap, because a thread of NCCL's writes the communicator here while it is made.
struct NcclGroup {
    std::string text;  ///< "tp (ranks 0, 1)"
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
    std::atomic<bool> made = false;  ///< NCCL is done with making it

    [[nodiscard]] ncclComm_t live() { return std::atomic_ref(communicator).load(std::memory_order_acquire); }
    [[nodiscard]] ncclComm_t take() { return std::atomic_ref(communicator).exchange(nullptr, std::memory_order_acq_rel); }
};

/// One issued operation: done when its event is.
struct NcclTicket {
    NcclTicket();
    ~NcclTicket();
    NcclTicket(const NcclTicket&) = delete;
    NcclTicket& operator=(const NcclTicket&) = delete;

    model::CollectiveKind kind{};
    std::string group;
    cudaEvent_t event = nullptr;
    bool issued = false;  ///< the rank's thread alone
    std::chrono::steady_clock::time_point since;
};

/// NCCL's communicators must not be used from two threads at once, and the watchdog looks at all of them: every call into
/// NCCL is made under one lock of this rank's.
class NcclState {
public:
    NcclState(CudaDevice& device, int rank, NcclOptions options);
    /// Waits until partners have what was sent to them, within limits; after an error it ends everything at once.
    ~NcclState();
    NcclState(const NcclState&) = delete;
    NcclState& operator=(const NcclState&) = delete;

    [[nodiscard]] CudaDevice& device() const { return device_; }
    [[nodiscard]] int rank() const { return rank_; }
    /// Of the rank's thread.
    [[nodiscard]] model::CollectiveCounter& traffic() { return traffic_; }

    /// A group without a communicator yet.
    std::shared_ptr<NcclGroup> prepare(std::string text);
    /// The group's communicator is there: watched from here on, with a stream.
    void made(NcclGroup& group);

    /// Runs `call` and waits until it has been taken up: calls are non-blocking. Throws CommunicationError naming `what`.
    void perform(NcclGroup& group, const std::function<ncclResult_t()>& call, const std::string& what);
    /// Waits until the communicator's last call has been taken up.
    void settle(NcclGroup& group, ncclResult_t result, const std::string& what);

    /// Runs `call` on the group's stream, behind the device's stream and whatever is held back; watched until its event.
    std::shared_ptr<NcclTicket> issue(NcclGroup& group, model::CollectiveKind kind, const std::function<ncclResult_t()>& call);
    /// Holds a send or receive back, see make_nccl_world().
    std::shared_ptr<NcclTicket> hold(std::shared_ptr<NcclGroup> group, model::CollectiveKind kind, std::function<ncclResult_t()> call);
    void flush();
    /// The device's stream goes on when the operation is done.
    void wait(NcclTicket& ticket);

    /// Four bytes of the card that are no memory of the model's: none of the device's pool, which counts.
    [[nodiscard]] void* flag();

    /// Any thread may call it.
    void abort(const std::string& reason) noexcept;
    /// Throws CommunicationError once the world was aborted.
    void check(model::CollectiveKind kind, const std::string& group);

private:
    struct Held {
        std::shared_ptr<NcclGroup> group;
        std::shared_ptr<NcclTicket> ticket;
        std::function<ncclResult_t()> call;
    };

    void throw_if_aborted(const std::string& what);
    [[noreturn]] void fail(NcclGroup& group, ncclResult_t result, const std::string& what);
    void behind_the_device(NcclGroup& group);
    void watch(const std::shared_ptr<NcclTicket>& ticket, NcclGroup& group);
    void watch_over();
    [[nodiscard]] std::string trouble();
    /// The i-th group, nullptr behind the last.
    [[nodiscard]] std::shared_ptr<NcclGroup> group_at(std::size_t i) noexcept;
    [[nodiscard]] bool idle_by(std::chrono::steady_clock::time_point until) noexcept;
    void say_farewell();
    void end_communicators() noexcept;

    CudaDevice& device_;
    int rank_;
    NcclOptions options_;
    model::CollectiveCounter traffic_;
    int exceptions_;  ///< that were under way when this object was made
    cudaEvent_t ready_ = nullptr;
    void* flag_ = nullptr;
    std::vector<Held> held_;  // the rank's thread alone

    std::timed_mutex api_;  // of NCCL; taken before mutex_, never behind it

    std::mutex mutex_;  // of all below
    std::condition_variable stop_;
    bool stopping_ = false;
    std::vector<std::shared_ptr<NcclGroup>> groups_;
    std::deque<std::shared_ptr<NcclTicket>> running_;
    std::string reason_;
    std::atomic<bool> aborted_ = false;
    std::thread watchdog_;
};

}  // namespace mgplan::runtime::cuda
