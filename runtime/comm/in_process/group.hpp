#pragma once
// State shared by the members of one group of threads.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plan/training/numeric_types.hpp"
#include "runtime/comm/in_process/operation.hpp"
#include "runtime/comm/in_process/wait_board.hpp"

namespace mgplan::runtime {

/// A tensor's bytes on their way from one rank to another.
struct TensorMessage {
    Dtype dtype{};
    std::vector<std::byte> bytes;
};

/// The messages from one rank to another of its group, first in, first out. They are held here until they are received, so that a sender
/// never waits. Receives get tickets in the order in which they are issued; ticket n takes message n, in whatever order they are waited
/// for.
class Channel final : public Awaited {
public:
    Channel(std::int32_t sender, const std::string& group_text) : Awaited(group_text), sender_(sender) {}

    void put(TensorMessage message);
    [[nodiscard]] std::int64_t next_ticket() { return tickets_++; }
    [[nodiscard]] bool has(std::int64_t ticket) const { return sent_.load(std::memory_order_acquire) > ticket; }
    /// Records the ticket of the receiver's next wait, which missing() reports.
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

/// Any member's thread may call it.
class Group {
public:
    Group(std::string name, std::vector<std::int32_t> ranks, std::shared_ptr<WaitBoard> board);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const std::vector<std::int32_t>& ranks() const { return ranks_; }
    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] WaitBoard& board() const { return *board_; }

    /// Returns the group's operation number `index`, counted from 0 by each member for itself. Each member calls it once per index.
    [[nodiscard]] std::shared_ptr<Operation> operation(std::int64_t index);
    /// The messages from one member to another.
    [[nodiscard]] std::shared_ptr<Channel> channel(int sender, int receiver);

private:
    struct Open {
        std::shared_ptr<Operation> operation;
        std::size_t asked = 0;
    };

    std::string name_;
    std::vector<std::int32_t> ranks_;
    std::string text_;
    std::shared_ptr<WaitBoard> board_;

    std::mutex mutex_;
    std::map<std::int64_t, Open> open_;  // until the last member called operation()
    std::map<std::pair<int, int>, std::shared_ptr<Channel>> channels_;
};

}  // namespace mgplan::runtime
