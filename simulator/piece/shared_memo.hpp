#pragma once
// A memo shared by several threads.

#include <mutex>
#include <optional>
#include <unordered_map>

#include "simulator/piece/made_once.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {

/// Values by key, each computed by the first thread that requests it, while others wait. `make` must not request the same key. References
/// are valid as long as the memo.
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
