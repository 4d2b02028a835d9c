#pragma once
// A memo that several threads fill.

#include <mutex>
#include <optional>
#include <unordered_map>

#include "simulator/piece/made_once.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// Values by key, each made by whoever asks first; who asks meanwhile waits for it. Making one must not ask for the same. References last
/// as long as the memo.
template <class Key, class Value>
class SharedMemo {
public:
    template <class Make>
    const Value& of(const Key& key, const Make& make) {
        Entry* entry = nullptr;
        {
            const std::scoped_lock lock(mutex_);
            entry = &entries_.try_emplace(key).first->second;
        }
        entry->once.call([&] { entry->value.emplace(make()); });
        return *entry->value;
    }

private:
    struct Entry {
        MadeOnce once;
        std::optional<Value> value;
    };

    std::mutex mutex_;
    std::unordered_map<Key, Entry, MemoKeyHash> entries_;
};

}  // namespace mgplan::simulator
