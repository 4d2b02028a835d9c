#include "runtime/comm/in_process/group.hpp"

#include <utility>

#include "model/communicator/world.hpp"

namespace mgplan::runtime {

void Channel::put(TensorMessage message) {
    {
        const std::scoped_lock lock(mutex_);
        messages_.push_back(std::move(message));
        taken_.push_back(false);
        sent_.fetch_add(1, std::memory_order_release);
    }
    ring();
}

TensorMessage Channel::take(std::int64_t ticket) {
    const std::scoped_lock lock(mutex_);
    const auto place = static_cast<std::size_t>(ticket - first_);
    TensorMessage message = std::move(messages_[place]);
    taken_[place] = true;
    while (!taken_.empty() && taken_.front()) {
        messages_.pop_front();
        taken_.pop_front();
        ++first_;
    }
    return message;
}

std::vector<std::int32_t> Channel::missing() const {
    if (has(expected_.load(std::memory_order_acquire))) return {};
    return {sender_};
}

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
