#pragma once
// Keys of the simulator's memos: a few integers.

#include <array>
#include <cstddef>
#include <cstdint>

namespace mgplan::simulator {

/// What a memo is looked up by; each memo uses as many fields as it needs.
template <std::size_t kFields>
struct MemoKey {
    std::array<std::int64_t, kFields> fields{};
    bool operator==(const MemoKey&) const = default;
};

struct MemoKeyHash {
    template <std::size_t kFields>
    std::size_t operator()(const MemoKey<kFields>& key) const {
        std::uint64_t hash = 1469598103934665603ULL;
        for (const auto field : key.fields) {
            hash ^= static_cast<std::uint64_t>(field);
            hash *= 1099511628211ULL;
            hash ^= hash >> 29U;
        }
        return static_cast<std::size_t>(hash);
    }
};

}  // namespace mgplan::simulator
