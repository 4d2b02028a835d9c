#include "plan/parts/layer_parts.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/core.h>

#include "plan/model/model_spec.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

using Sizes = std::vector<PartSize>;
using Names = std::initializer_list<std::string_view>;

Sizes all_of(Names names, std::int64_t low, std::int64_t fallback) {
    Sizes sizes;
    for (const std::string_view name : names) sizes.push_back({name, low, fallback});
    return sizes;
}
Sizes stated(Names names) {
    return all_of(names, 1, -1);
}
/// Without them 0.
Sizes stated_or_none(Names names) {
    return all_of(names, 0, 0);
}

Sizes operator+(Sizes sizes, const Sizes& more) {
    sizes.insert(sizes.end(), more.begin(), more.end());
    return sizes;
}

/// activation: 0 not stated, as of shared experts, else 1 + its number in enum Activation. positions: 1 none, 2 rotary as the model's
/// fields say. The last size of a norm: 1 if norms follow the halves of their layer, 2 if there are norms in front of them too. Biases that
/// have a size here, but no member of a typed layer, are 0. Other sizes are members of the structs of plan/layers (typed_parts.hpp).
std::vector<PartKind> all_part_kinds() {
    using enum PartRole;
    const Sizes copies{{"copies", 1, 1}};
    const Sizes mamba2 =
        stated({"inner", "heads", "groups", "state", "conv"}) + stated_or_none({"proj_bias"}) + all_of({"conv_bias", "norm"}, 0, 1);
    const Sizes block = stated({"query_heads", "kv_heads", "head_dim", "width"});
    const Sizes heads = stated({"heads", "kv_heads", "head_dim"}), biases = stated_or_none({"qkv_bias", "output_bias"});
    const Sizes gemma = heads + stated_or_none({"shares_kv", "key_is_value", "window", "bias"});
    return {
        PartKind{"norm", stated({"width"}) + copies + all_of({"weight"}, 0, 1) + stated_or_none({"bias", "behind"}), norm},
        PartKind{"linear", stated({"in", "out"}) + copies + stated_or_none({"bias"})},
        PartKind{"values", stated({"count"})},
        PartKind{"choice_biases", stated({"experts", "mixtures"})},
        PartKind{"hyper_connection", stated({"streams", "maps", "scales"}) + copies, stream_maps},
        PartKind{"word_choice", stated({"words", "top_k"}), word_choice},
        PartKind{"stream_ends", {{"streams", 2}}},
        PartKind{"layer_input_norm", stated({"width"})},
        PartKind{"attention", heads + stated({"positions"}) + biases + stated_or_none({"output_gate", "qk_norm"}), mixer},
        PartKind{"gemma_attention", gemma + stated_or_none({"input", "input_rows", "bypass"}), mixer},
        PartKind{"gemma3n_layer",
                 gemma + stated({"input", "input_rows", "bypass", "streams", "width", "activation"}) + stated_or_none({"cut_millionths"}),
                 mixer},
        PartKind{"latent_attention",
                 stated({"heads", "kv_lora_rank", "v_head_dim"}) + all_of({"qk_nope", "qk_rope"}, 0, -1) +
                     stated_or_none({"q_lora_rank", "down_bias", "output_bias"}) + all_of({"latent_norms"}, 0, 1),
                 mixer},
        PartKind{"compressed_attention",
                 stated({"heads", "head_dim", "q_lora_rank", "groups", "group_rank"}) +
                     stated_or_none({"rate", "overlaps", "index_heads", "index_dim", "index_top_k", "window", "rotated"}),
                 mixer},
        PartKind{"mlp", stated({"width"}) + stated_or_none({"bias", "activation"}) + all_of({"gated"}, 0, 1), feed_forward},
        PartKind{
            "experts",
            stated({"experts", "top_k", "width", "activation"}) + stated_or_none({"bias", "in", "router_bias"}) + all_of({"gated"}, 0, 1),
            mixture},
        PartKind{"mamba",
                 stated({"inner", "state", "conv", "dt_rank"}) + stated_or_none({"proj_bias", "inner_norms"}) + all_of({"conv_bias"}, 0, 1),
                 mixer},
        PartKind{"mamba2", mamba2, mixer},
        PartKind{"attention_beside_mamba2", mamba2 + stated({"query_heads", "kv_heads", "head_dim"}) + biases, mixer},
        PartKind{
            "shared_block_mamba2",
            mamba2 + block + stated({"activation"}) + stated_or_none({"block", "rank", "adapts_attention"}) + all_of({"positions"}, 1, 1),
            mixer},
        PartKind{"shared_block", block + stated_or_none({"bias"})},
        PartKind{"gated_delta_net", stated({"key_heads", "key_dim", "value_heads", "value_dim", "conv"}) + all_of({"strength"}, 1, 1),
                 mixer},
        PartKind{"short_convolution", stated({"conv"}) + stated_or_none({"bias"}), mixer},
        PartKind{"kimi_delta_attention", stated({"heads", "head_dim", "conv"}), mixer},
        PartKind{"lightning_attention", stated({"heads", "head_dim"}), mixer},
        PartKind{"gated_linear_recurrence", stated({"width", "heads", "conv"}), mixer},
    };
}

const PartSize* find_part_size(const PartKind& kind, std::string_view name) {
    const auto found = std::find_if(kind.sizes.begin(), kind.sizes.end(), [&](const PartSize& size) { return size.name == name; });
    return found == kind.sizes.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<PartKind>& part_kinds() {
    static const std::vector<PartKind> kAll = all_part_kinds();
    return kAll;
}

const PartKind* find_part_kind(std::string_view name) {
    const auto& all = part_kinds();
    const auto found = std::find_if(all.begin(), all.end(), [&](const PartKind& kind) { return kind.name == name; });
    return found == all.end() ? nullptr : &*found;
}

PartRole role_of(const LayerPart& part) {
    const PartKind* kind = find_part_kind(part.kind);
    return kind == nullptr ? PartRole::addition : kind->role;
}

void check_part(const LayerPart& part, const std::string& where, Problems& problems) {
    const PartKind* kind = find_part_kind(part.kind);
    if (kind == nullptr) {
        std::vector<std::string> names;
        for (const PartKind& known : part_kinds()) names.emplace_back(known.name);
        problems.add("{}: part '{}' is not known; use {}", where, part.kind.substr(0, 40), any_of_text(names));
        return;
    }
    for (const auto& [name, value] : part.sizes) {
        const PartSize* size = find_part_size(*kind, name);
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

bool has_size(const LayerPart& part, std::string_view name) {
    return find_part_size(*find_part_kind(part.kind), name) != nullptr;
}

std::int64_t part_size(const LayerPart& part, std::string_view name) {
    const auto stated = part.sizes.find(std::string(name));
    if (stated != part.sizes.end()) return stated->second;
    const PartSize* size = find_part_size(*find_part_kind(part.kind), name);
    MGPLAN_ASSERT(size != nullptr && size->fallback >= 0, name);
    return size->fallback;
}

void state_size(LayerPart& part, std::string_view name, std::int64_t value) {
    const PartSize* const size = find_part_size(*find_part_kind(part.kind), name);
    if (size == nullptr || size->fallback != value) part.sizes[std::string(name)] = value;
}

}  // namespace mgplan
