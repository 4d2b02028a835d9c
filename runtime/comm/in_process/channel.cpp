#include "runtime/comm/in_process/channel.hpp"

#include <utility>

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

}  // namespace mgplan::runtime
