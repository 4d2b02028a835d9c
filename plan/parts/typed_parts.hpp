#pragma once
// Typed mixers (plan/layers/) and the sizes of parts that say the same.

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/parts/layer_parts.hpp"
#include "plan/text/errors.hpp"

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
void read_sizes(Kind& mixer, const PartSizes& sizes) {
    Kind::visit_members(mixer, [&](std::string_view name, auto& member) {
        using Member = std::decay_t<decltype(member)>;
        if constexpr (kIsSize<Member>) {
            if (sizes.has(size_of_member(name))) member = static_cast<Member>(sizes[size_of_member(name)]);
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

/// Sets every member of a mixer, and of its own members, that the part's sizes state.
template <class Kind>
void read_part(Kind& mixer, const PartSizes& sizes) {
    read_sizes(mixer, sizes);
}
inline void read_part(Gemma3nLayer& mixer, const PartSizes& sizes) {
    read_sizes(mixer, sizes);
    read_sizes(mixer.attention, sizes);
    mixer.mlp.width = sizes["width"];
    mixer.mlp_zero_share = static_cast<double>(sizes["cut_millionths"]) / kMillion;
}
inline void read_part(AttentionBesideMamba2& mixer, const PartSizes& sizes) {
    read_sizes(mixer.attention, sizes);
    mixer.attention.heads = sizes["query_heads"];
    read_sizes(mixer.mamba2, sizes);
}
inline void read_part(SharedBlockMamba2& mixer, const PartSizes& sizes) {
    read_sizes(mixer, sizes);
    read_sizes(mixer.block, sizes);
    read_sizes(mixer.mamba2, sizes);
}

/// The tensors of a typed mixer with the sizes of a part, without the norm of its layer.
template <class Kind>
std::vector<CountedTensor> tensors_of(const PartSizes& sizes) {
    Kind mixer;
    read_part(mixer, sizes);
    std::vector<LayerTensor> listed;
    Norms norms;
    norms.before = false;
    TensorLister list(listed, norms, sizes.hidden());
    list_tensors(mixer, list);
    std::vector<CountedTensor> all;
    for (const LayerTensor& tensor : listed) all.push_back({tensor.name, tensor.shape, tensor.copies, tensor.copies_of_token});
    return all;
}

/// Adds a bias to each of these maps, for parts that are counted alone: typed mixers have none.
inline void add_biases(std::vector<CountedTensor>& tensors, std::initializer_list<std::string_view> maps) {
    for (const std::string_view map : maps) {
        const auto weight = std::find_if(tensors.begin(), tensors.end(), [&](const CountedTensor& tensor) {
            return tensor.name.starts_with(map) && tensor.name.substr(map.size()) == ".weight";
        });
        MGPLAN_ASSERT(weight != tensors.end(), map);
        tensors.push_back({std::string(map) + ".bias", {weight->shape.front()}});
    }
}

}  // namespace mgplan
