#pragma once
// The members of a plain struct by name. JSON, hashes and messages about differences all walk this one list.

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

/// Defines visit_members() of the struct that it is written in: `visit(name, member)` for each member, in the order given. The structured
/// binding does not compile unless the list has one name for every member.
#define MGPLAN_MEMBERS(...)                                                                                \
    template <class Self, class Visit>                                                                     \
    static constexpr void visit_members(Self& self, Visit&& visit) {                                       \
        const auto complete = [](auto& all) { [[maybe_unused]] auto& [MGPLAN_BOUND(__VA_ARGS__)] = all; }; \
        complete(self);                                                                                    \
        MGPLAN_VISITED(__VA_ARGS__)                                                                        \
    }
// Recursive macros (C++20, __VA_OPT__), for up to 64 members: "heads_member, kv_heads_member", and a call of visit() for each.
#define MGPLAN_BOUND(...) __VA_OPT__(MGPLAN_EXPAND(MGPLAN_BIND(__VA_ARGS__)))
#define MGPLAN_BIND(first, ...) first##_member __VA_OPT__(, MGPLAN_BIND_NEXT MGPLAN_PARENS(__VA_ARGS__))
#define MGPLAN_BIND_NEXT() MGPLAN_BIND
#define MGPLAN_VISITED(...) __VA_OPT__(MGPLAN_EXPAND(MGPLAN_VISIT(__VA_ARGS__)))
#define MGPLAN_VISIT(first, ...)                 \
    visit(std::string_view(#first), self.first); \
    __VA_OPT__(MGPLAN_VISIT_NEXT MGPLAN_PARENS(__VA_ARGS__))
#define MGPLAN_VISIT_NEXT() MGPLAN_VISIT
#define MGPLAN_PARENS ()
#define MGPLAN_EXPAND(...) MGPLAN_EXPAND3(MGPLAN_EXPAND3(MGPLAN_EXPAND3(MGPLAN_EXPAND3(__VA_ARGS__))))
#define MGPLAN_EXPAND3(...) MGPLAN_EXPAND2(MGPLAN_EXPAND2(MGPLAN_EXPAND2(MGPLAN_EXPAND2(__VA_ARGS__))))
#define MGPLAN_EXPAND2(...) MGPLAN_EXPAND1(MGPLAN_EXPAND1(MGPLAN_EXPAND1(MGPLAN_EXPAND1(__VA_ARGS__))))
#define MGPLAN_EXPAND1(...) __VA_ARGS__

namespace mgplan {

/// A struct with MGPLAN_MEMBERS.
template <class T>
concept HasMembers = requires(T& value) {
    T::visit_members(value, [](std::string_view, auto&) {});
};

/// Hash of a value made of such structs, for unordered containers.
struct MemberHash {
    template <class T>
    std::size_t operator()(const T& value) const {
        if constexpr (HasMembers<const T>) {
            std::size_t all = 0;
            T::visit_members(value, [&](std::string_view, const auto& member) { all = joined(all, (*this)(member)); });
            return all;
        } else if constexpr (requires { value.has_value(); }) {
            return value ? joined(1, (*this)(*value)) : 0;
        } else if constexpr (requires { value.valueless_by_exception(); }) {
            return joined(value.index(), std::visit(*this, value));
        } else if constexpr (requires(T other) { other.push_back(value.front()); } && !std::is_convertible_v<T, std::string_view>) {
            std::size_t all = value.size();
            for (const auto& element : value) all = joined(all, (*this)(element));
            return all;
        } else {
            return std::hash<T>()(value);
        }
    }

private:
    static constexpr std::size_t joined(std::size_t all, std::size_t next) {
        return all ^ (next + 0x9e3779b97f4a7c15ULL + (all << 6U) + (all >> 2U));
    }
};

}  // namespace mgplan
