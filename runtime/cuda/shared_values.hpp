#pragma once
// Values that the threads of a process make once and share.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace mgplan::runtime::cuda {

/// Any thread may call it. Values are never dropped.
template <class Key, class Value>
class SharedValues {
public:
    /// Returns the value of the key. The first caller makes it; others wait for it. If `make` throws, its caller gets the exception and the
    /// next caller makes the value. `make` must not call get() of this object.
    [[nodiscard]] const Value& get(const Key& key, const std::function<Value()>& make) {
        Entry& entry = entry_of(key);
        const std::scoped_lock lock(entry.mutex);
        if (!entry.value) entry.value.emplace(make());
        return *entry.value;
    }

private:
    struct Entry {
        std::mutex mutex;
        std::optional<Value> value;
    };

    Entry& entry_of(const Key& key) {
        const std::scoped_lock lock(mutex_);
        auto& entry = entries_[key];
        if (entry == nullptr) entry = std::make_unique<Entry>();
        return *entry;
    }

    std::mutex mutex_;
    std::map<Key, std::unique_ptr<Entry>> entries_;
};

}  // namespace mgplan::runtime::cuda
