#pragma once
// Layers as lists of parts, as version 1 of a model's JSON has them. Models hold typed layers (plan/parts/model_parts.hpp).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layers/layer_tensor.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {

/// A part of a layer by its kind ("mamba2") and its sizes by name.
struct LayerPart {
    std::string kind;
    std::map<std::string, std::int64_t> sizes;
    bool operator==(const LayerPart&) const = default;
};

/// One kind of layer as the list of its parts: norms, a mixer of tokens, a feed-forward.
struct LayerComposition {
    std::string name;  ///< "mamba2+moe"
    std::vector<LayerPart> parts;
    std::vector<CountedTensor> counted = {};  ///< in place of parts
    bool operator==(const LayerComposition&) const = default;
};

/// A size that a kind of part has.
struct PartSize {
    std::string_view name;
    std::int64_t low = 0;        ///< the smallest that is meant; the largest is ModelLimits::part_size
    std::int64_t fallback = -1;  ///< taken where a part does not state it; -1: it must
};

/// Role of a part in the layer that holds it.
enum class PartRole : std::uint8_t {
    addition,      ///< to a half of a layer, or outside the layers
    norm,          ///< in front of the halves or after them
    mixer,         ///< of tokens: the first half
    feed_forward,  ///< the second half
    mixture,       ///< a feed-forward of experts
    stream_maps,   ///< mixes residual streams into the halves and back
    word_choice,   ///< chooses experts by words
};

/// One kind of part.
struct PartKind {
    std::string_view name;
    std::vector<PartSize> sizes;
    PartRole role = PartRole::addition;
};

/// All kinds, and one by name (nullptr: not known).
[[nodiscard]] const std::vector<PartKind>& part_kinds();
[[nodiscard]] const PartKind* find_part_kind(std::string_view name);

/// The role of a part's kind; an addition where the kind is not known.
[[nodiscard]] PartRole role_of(const LayerPart& part);

/// Adds a problem for an unknown kind, a missing or unknown size, one out of range.
void check_part(const LayerPart& part, const std::string& where, Problems& problems);

/// True if parts of this known kind have such a size.
[[nodiscard]] bool has_size(const LayerPart& part, std::string_view name);

/// A size of a part that check_part() found right: the stated one, else its fallback.
[[nodiscard]] std::int64_t part_size(const LayerPart& part, std::string_view name);

/// Sets a size of a part of a known kind unless its fallback says the same.
void state_size(LayerPart& part, std::string_view name, std::int64_t value);

}  // namespace mgplan
