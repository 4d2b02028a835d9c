#pragma once
// What the communicators of one rank share: the watchdog, the abort, and the sends and receives that are held back.

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace mgplan::runtime::cuda {

/// An NCCL communicator and its stream.
struct NcclGroup {
    std::string text;  ///< "tp (ranks 0, 1)"
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
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

class NcclState {
public:
    NcclState(CudaDevice& device, int rank, NcclOptions options);
    ~NcclState();
    NcclState(const NcclState&) = delete;
    NcclState& operator=(const NcclState&) = delete;

    [[nodiscard]] CudaDevice& device() const { return device_; }
    [[nodiscard]] int rank() const { return rank_; }

    /// Waits until the communicator's last non-blocking call is done. Throws CommunicationError naming `what`.
    void settle(ncclComm_t communicator, ncclResult_t result, const std::string& what);
    /// From here on watched, and destroyed with this object.
    std::shared_ptr<NcclGroup> adopt(std::string text, ncclComm_t communicator);

    /// Runs `call` on the group's stream, behind the device's stream; watched until its event.
    std::shared_ptr<NcclTicket> issue(NcclGroup& group, model::CollectiveKind kind, const std::function<ncclResult_t()>& call);
    /// Holds a send or receive back, see make_nccl_world().
    std::shared_ptr<NcclTicket> hold(std::shared_ptr<NcclGroup> group, model::CollectiveKind kind, std::function<ncclResult_t()> call);
    void flush();
    /// The device's stream goes on when the operation is done.
    void wait(NcclTicket& ticket);

    void abort(const std::string& reason) noexcept;
    /// Throws CommunicationError once the world was aborted.
    void check(model::CollectiveKind kind, const std::string& group);

private:
    struct Held {
        std::shared_ptr<NcclGroup> group;
        std::shared_ptr<NcclTicket> ticket;
        std::function<ncclResult_t()> call;
    };

    void behind_the_device(NcclGroup& group);
    void watch(const std::shared_ptr<NcclTicket>& ticket, NcclGroup& group);
    void watch_over();
    [[nodiscard]] std::string trouble();

    CudaDevice& device_;
    int rank_;
    NcclOptions options_;
    cudaEvent_t ready_ = nullptr;
    std::vector<Held> held_;  // the rank's thread alone

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
