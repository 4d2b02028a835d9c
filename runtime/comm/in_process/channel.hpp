#pragma once
// The messages from one rank to another of its group, first in, first out.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "plan/training/numeric_types.hpp"
#include "runtime/comm/in_process/wait_board.hpp"

namespace mgplan::runtime {

/// A tensor's bytes on their way from one rank to another.
struct TensorMessage {
    Dtype dtype{};
    std::vector<std::byte> bytes;
};

/// Messages are held here until they are received, so that a sender never waits. Receives get tickets in the order in
/// which they are issued; ticket n takes message n, in whatever order they are waited for.
class Channel final : public Awaited {
public:
    Channel(std::int32_t sender, const std::string& group_text) : Awaited(group_text), sender_(sender) {}

    void put(TensorMessage message);
    [[nodiscard]] std::int64_t next_ticket() { return tickets_++; }
    [[nodiscard]] bool has(std::int64_t ticket) const { return sent_.load(std::memory_order_acquire) > ticket; }
    /// Sets the ticket of the receiver's next wait, which missing() refers to.
    void expect(std::int64_t ticket) { expected_.store(ticket, std::memory_order_release); }
    /// has(ticket) holds; each ticket once.
    [[nodiscard]] TensorMessage take(std::int64_t ticket);

    [[nodiscard]] std::vector<std::int32_t> missing() const override;

private:
    std::int32_t sender_;
    std::int64_t tickets_ = 0;  // the receiver's thread alone
    std::atomic<std::int64_t> sent_ = 0;
    std::atomic<std::int64_t> expected_ = 0;
    std::mutex mutex_;
    std::deque<TensorMessage> messages_;  // from number first_ on; those taken out of turn are left empty
    std::int64_t first_ = 0;
    std::deque<bool> taken_;
};

}  // namespace mgplan::runtime
