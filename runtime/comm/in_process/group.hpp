#pragma once
// State shared by the members of one group of threads.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/in_process/channel.hpp"
#include "runtime/comm/in_process/operation.hpp"
#include "runtime/comm/in_process/wait_board.hpp"

namespace mgplan::runtime {

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
