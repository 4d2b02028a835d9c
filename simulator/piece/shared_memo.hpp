#pragma once
// A memo that several threads fill.

#include <mutex>
#include <unordered_map>
#include <utility>

#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// Values by key, each made by whoever asks first; who asks meanwhile may make it once more, and one of the two is kept. Values follow from
/// their keys, so that it makes no difference which. References last as long as the memo.
template <class Key, class Value>
class SharedMemo {
public:
    template <class Make>
    const Value& of(const Key& key, const Make& make) {
        {
            const std::scoped_lock lock(mutex_);
            if (const auto found = values_.find(key); found != values_.end()) return found->second;
        }
        Value made = make();
        const std::scoped_lock lock(mutex_);
        return values_.try_emplace(key, std::move(made)).first->second;
    }

private:
    std::mutex mutex_;
    std::unordered_map<Key, Value, MemoKeyHash> values_;
};

}  // namespace mgplan::simulator
