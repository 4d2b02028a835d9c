// The tables of computed parts, and what rows share.

#include "plan/parameters/computed_parts.hpp"

#include <algorithm>
#include <initializer_list>

#include <fmt/core.h>

namespace mgplan {
bool is_norm_of(const LayerPart& part, const ModelSpec& model, std::int64_t halves) {
    if (traits_of(part).role != PartRole::norm) return false;
    const PartSizes sizes = stated_sizes(part, model.hidden);
    const bool biased = model.normalization == Normalization::layer_norm && model.norm_bias;
    return sizes["width"] == model.hidden && sizes["weight"] == 1 && (sizes["bias"] != 0) == biased && sizes["copies"] == halves;
}

/// False where the part does not say it.
bool describe_activation(const PartSizes& s, ModelSpec& fields) {
    const std::int64_t stated = s["activation"];
    if (stated < 1 || stated > 1 + static_cast<std::int64_t>(Activation::xielu)) return false;
    fields.activation = static_cast<Activation>(stated - 1);
    return true;
}

void add_attention_obstacles(std::vector<std::string>& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/,
                             const ParallelSizes& division) {
    if (fields.heads % division.tp != 0 || !packed_heads_divide(fields, division.tp))
        obstacles.push_back(fmt::format("tp = {} over {} heads with {} kv heads", division.tp, fields.heads, fields.kv_heads));
    else if (fields.qk_norm_full_width && division.tp > fields.kv_heads)
        obstacles.push_back(fmt::format("QK-norm over the whole width with tp = {} above {} kv heads", division.tp, fields.kv_heads));
    else if (fields.attention_output_gate && division.tp > fields.kv_heads)
        obstacles.push_back(fmt::format("a gate of attention's output with tp = {} above {} kv heads", division.tp, fields.kv_heads));
}

/// Sizes that a rank holds of a layer with a state along the sequence; each must divide.
void require_division(std::vector<std::string>& obstacles, std::string_view layer, std::string_view what, std::int64_t count,
                      std::int64_t tp) {
    if (count % tp != 0) obstacles.push_back(fmt::format("tp = {} over {} {} of {}, which it does not divide", tp, count, what, layer));
}

void require_exchange(std::vector<std::string>& obstacles, std::string_view layer, std::string_view what, std::int64_t count,
                      const ParallelSizes& division) {
    if (division.cp == 1 || count % division.tp != 0 || count / division.tp % division.cp == 0) return;
    obstacles.push_back(fmt::format("cp = {} over {} {} of {} on a tensor-parallel rank, which it does not divide", division.cp,
                                    count / division.tp, what, layer));
}

void refuse_context_parallelism(std::vector<std::string>& obstacles, std::string_view layer, const ParallelSizes& division) {
    if (division.cp > 1) obstacles.push_back(fmt::format("context parallelism over {} (cp = {})", layer, division.cp));
}

namespace {

template <class Row>
const Row* find_row(std::initializer_list<std::span<const Row>> tables, std::string_view kind) {
    for (const std::span<const Row> rows : tables) {
        const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& one) { return one.kind == kind; });
        if (found != rows.end()) return &*found;
    }
    return nullptr;
}

}  // namespace

const ComputedPart* find_computed_part(const LayerPart& part) {
    return find_row<ComputedPart>({computed_attention(), computed_state_spaces(), computed_linear_attention(), computed_feed_forwards()},
                                  part.kind);
}

const ComputedBeside* find_computed_beside(const LayerPart& part) {
    return find_row<ComputedBeside>({beside_attention(), beside_state_spaces(), beside_streams(), beside_feed_forwards()}, part.kind);
}

PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden) {
    return {part, find_part_kind(part.kind)->sizes, hidden};
}

}  // namespace mgplan
