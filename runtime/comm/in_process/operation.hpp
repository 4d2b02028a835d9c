#pragma once
// One collective of one group of threads: the members that have arrived, their memory, and the remaining work.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "plan/training/numeric_types.hpp"
#include "runtime/comm/in_process/wait_board.hpp"

namespace mgplan::runtime {

/// One member's arguments. The memory must stay until its leave() or until done().
struct Contribution {
    model::CollectiveKind kind{};
    Dtype dtype{};
    model::Reduction reduction{};
    int root = 0;
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::int64_t bytes = 0;                   ///< at `from`
    std::vector<std::int64_t> send_bytes;     ///< of an all-to-all, or a reduce-scatter of uneven parts: to each member
    std::vector<std::int64_t> receive_bytes;  ///< of an all-to-all, or an all-gather of uneven parts: from each member
    /// Operations of this member's device, if the memory is not the host's; its thread uses them for the parts that it takes.
    model::MemoryOperations* operations = nullptr;
};

/// Nothing is copied when it is issued. Once all members have come, the work is cut into parts, and whoever waits takes
/// parts until none is left, those of members who do not wait yet included. So waiting needs only that the others have
/// issued, and no order of waiting can deadlock. The thread that does a part does not change the result.
class Operation final : public Awaited {
public:
    /// `ranks`: global ranks of the members, alive for as long as this object, as is `group_text`.
    Operation(std::span<const std::int32_t> ranks, const std::string& group_text);

    /// Called once by each member. The last one does small work at once, and returns a complaint when the members do not
    /// agree on what they are doing; then nothing is done, and the world is to be aborted.
    [[nodiscard]] std::optional<std::string> arrive(int member, Contribution contribution);
    /// All have come; then work() and, once done(), the results may be used.
    [[nodiscard]] bool ready() const { return ready_.load(std::memory_order_acquire); }
    /// `member` is the caller's place in the group.
    void work(int member);
    [[nodiscard]] bool done() const {
        return ready() && !failed_.load(std::memory_order_acquire) && done_.load(std::memory_order_acquire) == parts_;
    }
    /// Lets no more parts start; returns when none runs (they never block). For members that leave before it is done.
    void close();

    [[nodiscard]] std::vector<std::int32_t> missing() const override;

private:
    [[nodiscard]] std::optional<std::string> disagreement() const;
    [[nodiscard]] int count_parts() const;
    void do_part(int part, model::MemoryOperations* operations);

    std::span<const std::int32_t> ranks_;
    std::vector<Contribution> contributions_;
    std::vector<std::atomic<bool>> came_;
    std::atomic<int> arrivals_ = 0;

    std::atomic<bool> ready_ = false;
    int parts_ = 0;  // written before ready_
    std::atomic<int> next_ = 0;
    std::atomic<int> done_ = 0;
    std::atomic<bool> failed_ = false;  // set before the part counts as done

    std::mutex close_mutex_;
    std::optional<int> taken_before_close_;
};

}  // namespace mgplan::runtime
