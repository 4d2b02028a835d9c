#pragma once
// Communicators for shapes: they act as any rank of any world. No data moves; the public functions check and report as usual.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "model/communicator/communicator.hpp"
#include "model/communicator/world.hpp"

namespace mgplan::model {

/// Is called when the rank waits for a started operation.
class WaitListener {
public:
    virtual ~WaitListener() = default;
    /// `number` of the group's operations that listeners heard of, from 0.
    virtual void on_wait(std::string_view group, std::int64_t number) = 0;
};

/// Acts as rank `rank` of a group of `size`. Every operation is done as soon as it is issued; no partner is needed.
class RecordingCommunicator final : public Communicator {
public:
    RecordingCommunicator(std::string group, int size, int rank) : Communicator(std::move(group), size, rank) {}

    void abort(const std::string& reason) noexcept override;

    /// Must outlive the communicator; nullptr: nobody.
    void set_wait_listener(WaitListener* listener) { waits_ = listener; }

private:
    std::unique_ptr<Pending> do_all_reduce(const Tensor& tensor, Reduction reduction) override;
    std::unique_ptr<Pending> do_all_gather(const Tensor& part, const Tensor& whole) override;
    std::unique_ptr<Pending> do_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) override;
    std::unique_ptr<Pending> do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) override;
    std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows,
                                                    Reduction reduction) override;
    std::unique_ptr<Pending> do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                           std::span<const std::int64_t> receive_rows) override;
    std::unique_ptr<Pending> do_broadcast(const Tensor& tensor, int root) override;
    std::unique_ptr<Pending> do_send(const Tensor& tensor, int peer) override;
    std::unique_ptr<Pending> do_receive(const Tensor& tensor, int peer) override;
    void do_barrier() override;

    [[nodiscard]] std::unique_ptr<Pending> done(CollectiveKind kind);
    void check(CollectiveKind kind) const;

    std::once_flag first_abort_;
    std::atomic<bool> aborted_ = false;  // set after the reason
    std::string reason_;
    WaitListener* waits_ = nullptr;
    std::int64_t issued_ = 0;
};

/// A world of `size` ranks of which only this one exists. Every communicator made reports to `listener` (which may be
/// null and must outlive them).
[[nodiscard]] World recording_world(int rank, int size, CollectiveListener* listener = nullptr);

}  // namespace mgplan::model
