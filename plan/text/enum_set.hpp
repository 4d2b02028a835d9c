#pragma once
// A small set of enumerators.

#include <cstdint>
#include <initializer_list>

namespace mgplan {

/// A set of members of an enum whose values are below 32.
template <class Enum>
class EnumSet {
public:
    constexpr EnumSet() = default;
    constexpr EnumSet(std::initializer_list<Enum> members) {
        for (auto member : members) add(member);
    }
    constexpr void add(Enum member) { bits_ |= bit(member); }
    constexpr void remove(Enum member) { bits_ &= ~bit(member); }
    [[nodiscard]] constexpr bool contains(Enum member) const { return (bits_ & bit(member)) != 0; }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    constexpr bool operator==(const EnumSet&) const = default;
    constexpr auto operator<=>(const EnumSet&) const = default;

private:
    static constexpr std::uint32_t bit(Enum member) { return 1U << static_cast<unsigned>(member); }
    std::uint32_t bits_ = 0;
};

}  // namespace mgplan
