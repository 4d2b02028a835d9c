#include "runtime/comm/in_process/group.hpp"

#include "model/communicator/world.hpp"

namespace mgplan::runtime {

Group::Group(std::string name, std::vector<std::int32_t> ranks, std::shared_ptr<WaitBoard> board)
    : name_(std::move(name)), ranks_(std::move(ranks)), text_(model::group_text(name_, ranks_)), board_(std::move(board)) {}

std::shared_ptr<Operation> Group::operation(std::int64_t index) {
    const std::scoped_lock lock(mutex_);
    Open& open = open_[index];
    if (open.operation == nullptr) open.operation = std::make_shared<Operation>(ranks_, text_);
    auto operation = open.operation;
    if (++open.asked == ranks_.size()) open_.erase(index);
    return operation;
}

std::shared_ptr<Channel> Group::channel(int sender, int receiver) {
    const std::scoped_lock lock(mutex_);
    auto& channel = channels_[{sender, receiver}];
    if (channel == nullptr) channel = std::make_shared<Channel>(ranks_[static_cast<std::size_t>(sender)], text_);
    return channel;
}

}  // namespace mgplan::runtime
