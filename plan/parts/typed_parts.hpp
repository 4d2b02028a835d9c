#pragma once
// Typed mixers (plan/layers/) and the sizes of parts that say the same.

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "plan/layers/layer.hpp"
#include "plan/parts/layer_parts.hpp"

namespace mgplan {

constexpr double kMillion = 1e6;

/// Members whose sizes have other names in parts; all others have their own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kSizesOfMembers{{{"inner_width", "inner"},
                                                                                         {"state_size", "state"},
                                                                                         {"conv_taps", "conv"},
                                                                                         {"layer_input_width", "input"},
                                                                                         {"layer_input_rows", "input_rows"},
                                                                                         {"bypass_rank", "bypass"},
                                                                                         {"number", "block"},
                                                                                         {"ffn", "width"},
                                                                                         {"adapter_rank", "rank"},
                                                                                         {"rotary_dim", "rotated"},
                                                                                         {"output_groups", "groups"},
                                                                                         {"output_group_rank", "group_rank"},
                                                                                         {"compression_rate", "rate"},
                                                                                         {"index_head_dim", "index_dim"},
                                                                                         {"qk_nope_head_dim", "qk_nope"},
                                                                                         {"qk_rope_head_dim", "qk_rope"}}};

constexpr std::string_view size_of_member(std::string_view member) {
    for (const auto& [name, size] : kSizesOfMembers) {
        if (name == member) return size;
    }
    return member;
}

/// True for members that a part stores as whole numbers.
template <class Member>
constexpr bool kIsSize = std::is_integral_v<Member> || std::is_same_v<Member, InnerNorms>;

/// Sets a mixer's members that are sizes of its part, but not those of its own members.
template <class Kind>
void read_sizes(Kind& mixer, const LayerPart& part) {
    Kind::visit_members(mixer, [&](std::string_view name, auto& member) {
        using Member = std::decay_t<decltype(member)>;
        if constexpr (kIsSize<Member>) {
            if (has_size(part, size_of_member(name))) member = static_cast<Member>(part_size(part, size_of_member(name)));
        }
    });
}

/// Writes a mixer's members to the sizes of its part, but those that the part has without being stated; the inverse of the function above.
template <class Kind>
void write_sizes(const Kind& mixer, LayerPart& part) {
    Kind::visit_members(mixer, [&](std::string_view name, const auto& member) {
        if constexpr (kIsSize<std::decay_t<decltype(member)>>) state_size(part, size_of_member(name), static_cast<std::int64_t>(member));
    });
}

}  // namespace mgplan
