#pragma once
// Keys of the simulator's memos, and the hash of their fields.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace mgplan::simulator {

/// Bits of a key's field: a number, an enumerator, or a type with a hash() of its own.
template <class Field>
constexpr std::uint64_t field_bits(const Field& field) {
    if constexpr (requires { field.hash(); })
        return field.hash();
    else
        return static_cast<std::uint64_t>(field);
}

/// Hash of a key's fields in order: FNV-1a over whole fields, with the upper half folded in.
class FieldHash {
public:
    template <class Field>
    constexpr FieldHash& add(const Field& field) {
        hash_ ^= field_bits(field);
        hash_ *= 1099511628211ULL;
        hash_ ^= hash_ >> 29U;
        return *this;
    }
    [[nodiscard]] constexpr std::size_t value() const { return static_cast<std::size_t>(hash_); }

private:
    std::uint64_t hash_ = 1469598103934665603ULL;
};

/// A key's hash() passes all its fields to this function by a structured binding: with an additional field it does not compile until that
/// one is hashed too.
template <class... Fields>
constexpr std::size_t hash_of(const Fields&... fields) {
    FieldHash hash;
    (hash.add(fields), ...);
    return hash.value();
}

/// A key of a few integers.
template <std::size_t kFields>
struct MemoKey {
    std::array<std::int64_t, kFields> fields{};
    bool operator==(const MemoKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        FieldHash hash;
        for (const std::int64_t field : fields) hash.add(field);
        return hash.value();
    }
};

/// For unordered containers: calls the key's own hash().
struct MemoKeyHash {
    template <class Key>
    std::size_t operator()(const Key& key) const {
        return key.hash();
    }
};

}  // namespace mgplan::simulator
