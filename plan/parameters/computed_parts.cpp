// The table of computed parts, feed-forwards, and what rows share.

#include "plan/parameters/computed_parts.hpp"

#include <algorithm>
#include <array>

#include <fmt/core.h>

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

bool describe_mlp(const PartSizes& s, ModelSpec& fields) {
    fields.ffn = s["width"];
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    // A bias of the second product would miss the MLP's multiplier, which stands in front of it; and without a gate there is none to scale.
    const BranchMultipliers& by = fields.branch_multipliers;
    if ((by.mlp_output != 1 && fields.mlp_bias) || (by.mlp_gate != 1 && !fields.gated_mlp)) return false;
    // xIELU has no gate.
    return s["in"] == 0 && describe_activation(s, fields) && !(fields.gated_mlp && fields.activation == Activation::xielu);
}

void add_mlp_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    require_division(obstacles, "MLPs", "columns", fields.ffn, division.tp);
}

/// A mixture is described by the part and, where the part has no word for it (scores, balancing), by MoeSpec; both must agree.
bool describe_experts(const PartSizes& s, ModelSpec& fields) {
    if (!fields.moe || s["in"] != fields.moe->latent || s["router"] != 1 || !describe_activation(s, fields)) return false;
    if (fields.activation == Activation::xielu) return false;  // whose values belong to one MLP
    if (s["zero_experts"] != 0 || s["idle_first"] != 0 || s["idle"] != 0) return false;
    const MoeSpec& moe = *fields.moe;
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    return moe.experts == s["experts"] && moe.top_k == s["top_k"] && moe.expert_ffn == s["width"] &&
           moe.router_bias == (s["router_bias"] != 0);
}

constexpr std::array kFeedForwards{
    ComputedPart{"mlp", false, describe_mlp,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_dense_mlp(list, fields, division.tp);
                 },
                 add_mlp_obstacles},
    ComputedPart{"experts", false, describe_experts,
                 [](ParameterList& list, const ModelSpec& fields, const PartSizes&, const ParallelSizes& division) {
                     add_mixture(list, fields, division.tp, division.ep, division.etp);
                 },
                 [](Words&, const ModelSpec&, const PartSizes&, const ParallelSizes&) {}}};

}  // namespace

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

void refuse_context_parallelism(std::vector<std::string>& obstacles, std::string_view layer, const ParallelSizes& division) {
    if (division.cp > 1) obstacles.push_back(fmt::format("context parallelism over {} (cp = {})", layer, division.cp));
}

const ComputedPart* find_computed_part(const LayerPart& part) {
    for (const std::span<const ComputedPart> rows :
         {computed_attention(), computed_state_spaces(), computed_linear_attention(), std::span<const ComputedPart>(kFeedForwards)}) {
        const auto found = std::find_if(rows.begin(), rows.end(), [&](const ComputedPart& one) { return one.kind == part.kind; });
        if (found != rows.end()) return &*found;
    }
    return nullptr;
}

PartSizes stated_sizes(const LayerPart& part, std::int64_t hidden) {
    return {part, find_part_kind(part.kind)->sizes, hidden};
}

}  // namespace mgplan
