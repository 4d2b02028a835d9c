#include "plan/parts/layer_parts.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "plan/model/model_spec.hpp"
#include "plan/parts/layer_part_kinds.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

const PartSize* find_part_size(std::span<const PartSize> sizes, std::string_view name) {
    const auto found = std::find_if(sizes.begin(), sizes.end(), [&](const PartSize& size) { return size.name == name; });
    return found == sizes.end() ? nullptr : &*found;
}

}  // namespace

std::int64_t PartSizes::operator[](std::string_view name) const {
    const auto stated = part_.sizes.find(std::string(name));
    if (stated != part_.sizes.end()) return stated->second;
    const PartSize* size = find_part_size(sizes_, name);
    MGPLAN_ASSERT(size != nullptr && size->fallback >= 0, name);
    return size->fallback;
}

bool PartSizes::has(std::string_view name) const {
    return find_part_size(sizes_, name) != nullptr;
}

std::vector<const PartKind*> part_kinds() {
    std::vector<const PartKind*> all;
    for (const auto kinds : {plain_part_kinds(), attention_part_kinds(), feed_forward_part_kinds(), recurrent_part_kinds()}) {
        for (const PartKind& kind : kinds) all.push_back(&kind);
    }
    return all;
}

const PartKind* find_part_kind(std::string_view name) {
    static const std::vector<const PartKind*> kAll = part_kinds();
    const auto found = std::find_if(kAll.begin(), kAll.end(), [&](const PartKind* kind) { return kind->name == name; });
    return found == kAll.end() ? nullptr : *found;
}

PartRole role_of(const LayerPart& part) {
    const PartKind* kind = find_part_kind(part.kind);
    return kind == nullptr ? PartRole::addition : kind->role;
}

bool has_part_with(const LayerComposition& layer, PartRole role) {
    return std::any_of(layer.parts.begin(), layer.parts.end(), [&](const LayerPart& part) { return role_of(part) == role; });
}

void check_part(const LayerPart& part, const std::string& where, Problems& problems) {
    const PartKind* kind = find_part_kind(part.kind);
    if (kind == nullptr) {
        std::vector<std::string> names;
        for (const PartKind* known : part_kinds()) names.emplace_back(known->name);
        problems.add("{}: part '{}' is not known; use {}", where, part.kind.substr(0, 40), any_of_text(names));
        return;
    }
    for (const auto& [name, value] : part.sizes) {
        const PartSize* size = find_part_size(kind->sizes, name);
        if (size == nullptr)
            problems.add("{}: part '{}' has no size '{}'; remove it", where, part.kind, name.substr(0, 40));
        else if (value < size->low || value > ModelLimits::part_size)
            problems.add("{}: {} of part '{}' = {} is out of range; give a whole number from {} to {}", where, name, part.kind, value,
                         size->low, ModelLimits::part_size);
    }
    for (const PartSize& size : kind->sizes) {
        if (size.fallback < 0 && !part.sizes.contains(std::string(size.name)))
            problems.add("{}: size '{}' of part '{}' is missing; give a whole number from {}", where, size.name, part.kind, size.low);
    }
}

PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden) {
    const PartKind* kind = find_part_kind(part.kind);
    MGPLAN_ASSERT(kind != nullptr, "the kind of the part is known");
    return {part, kind->sizes, hidden};
}

void state_size(LayerPart& part, std::string_view name, std::int64_t value) {
    const PartSize* const size = find_part_size(find_part_kind(part.kind)->sizes, name);
    if (size == nullptr || size->fallback != value) part.sizes[std::string(name)] = value;
}

std::int64_t part_size(const LayerPart& part, std::string_view name) {
    return stated_sizes(part, 0)[name];
}

std::vector<CountedTensor> part_tensors(const LayerPart& part, std::int64_t hidden) {
    return find_part_kind(part.kind)->tensors(stated_sizes(part, hidden));
}

std::vector<CountedTensor> parts_tensors(const std::vector<LayerPart>& parts, std::int64_t hidden) {
    std::vector<CountedTensor> all;
    for (const LayerPart& part : parts) {
        for (CountedTensor& tensor : part_tensors(part, hidden)) all.push_back(std::move(tensor));
    }
    return all;
}

}  // namespace mgplan
