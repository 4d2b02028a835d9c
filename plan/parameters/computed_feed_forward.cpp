// Feed-forwards: MLPs, MoE layers with the parts that follow the experts, and biases of the experts' choice.

#include <array>

#include "plan/parameters/computed_parts.hpp"

namespace mgplan {
namespace {

using Words = std::vector<std::string>;

bool describe_mlp(const PartSizes& s, ModelSpec& fields) {
    fields.ffn = s["width"];
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    // A bias of the second product would miss the MLP's multiplier, which comes before it; and without a gate there is none to scale.
    const BranchMultipliers& by = fields.branch_multipliers;
    if ((by.mlp_output != 1 && fields.mlp_bias) || (by.mlp_gate != 1 && !fields.gated_mlp)) return false;
    // xIELU has no gate.
    return s["in"] == 0 && describe_activation(s, fields) && !(fields.gated_mlp && fields.activation == Activation::xielu);
}

void add_mlp_obstacles(Words& obstacles, const ModelSpec& fields, const PartSizes& /*sizes*/, const ParallelSizes& division) {
    require_division(obstacles, "MLPs", "columns", fields.ffn, division.tp);
}

/// The part describes an MoE layer, and MoeSpec its values that no size of the part holds (scores, balancing); both must agree.
bool describe_experts(const PartSizes& s, ModelSpec& fields) {
    if (!fields.moe || s["in"] != fields.moe->latent || s["router"] != 1 || !describe_activation(s, fields)) return false;
    if (fields.activation == Activation::xielu) return false;  // its trained values belong to one MLP
    if (s["zero_experts"] != 0 || s["idle_first"] != 0 || s["idle"] != 0) return false;
    const MoeSpec& moe = *fields.moe;
    fields.gated_mlp = s["gated"] != 0;
    fields.mlp_bias = s["bias"] != 0;
    return moe.experts == s["experts"] && moe.top_k == s["top_k"] && moe.expert_ffn == s["width"] &&
           moe.router_bias == (s["router_bias"] != 0);
}

/// Parts that may follow the experts: the shared experts as an MLP, a gate on them, maps to the experts' width and back, norms around the
/// branches.
bool shares_as_described(std::span<const LayerPart> parts, const ModelSpec& fields) {
    const MoeSpec& moe = *fields.moe;
    std::size_t next = 0;
    if (moe.shared_ffn > 0) {
        if (next == parts.size() || parts[next].kind != "mlp") return false;
        const PartSizes shared = stated_sizes(parts[next++], fields.hidden);
        if (shared["width"] != moe.shared_ffn || (shared["gated"] != 0) != fields.gated_mlp || shared["bias"] != 0 || shared["in"] != 0)
            return false;
    }
    if (moe.shared_gate) {
        if (next == parts.size() || parts[next].kind != "linear") return false;
        const PartSizes gate = stated_sizes(parts[next++], fields.hidden);
        if (gate["in"] != fields.hidden || gate["out"] != 1 || gate["bias"] != 0 || gate["copies"] != 1) return false;
    }
    // Maps to the experts' width and back.
    for (const bool there : {true, false}) {
        if (moe.latent == 0) break;
        if (next == parts.size() || parts[next].kind != "linear") return false;
        const PartSizes map = stated_sizes(parts[next++], fields.hidden);
        const std::int64_t in = there ? fields.hidden : moe.latent, out = there ? moe.latent : fields.hidden;
        if (map["in"] != in || map["out"] != out || map["bias"] != 0 || map["copies"] != 1) return false;
    }
    // Norms around the branches, and a factor for each expert.
    if (moe.branch_norms) {
        if (parts.size() - next != 2 || moe.shared_ffn == 0 || !is_norm_of(parts[next], fields, 4)) return false;
        const LayerPart& factors = parts[next + 1];
        return factors.kind == "values" && stated_sizes(factors, fields.hidden)["count"] == moe.experts;
    }
    return next == parts.size();
}

/// Biases of experts that are counted and trained, outside layers that fields describe. Only counting reads the number of MoE layers; a
/// part of the model may have none.
bool choice_biases_stand(const LayerPart& part, const ModelSpec& model) {
    if (!model.compositions.empty()) return false;
    return !model.moe || (model.moe->expert_bias && stated_sizes(part, model.hidden)["experts"] == model.moe->experts);
}

constexpr std::array kFeedForwards{ComputedPart{"mlp", describe_mlp, add_mlp_obstacles, {}},
                                   ComputedPart{"experts",
                                                describe_experts,
                                                [](Words&, const ModelSpec&, const PartSizes&, const ParallelSizes&) {},
                                                {.accepts_behind = shares_as_described}}};

constexpr std::array kBesideFeedForwards{ComputedBeside{"choice_biases", choice_biases_stand}};

}  // namespace

std::span<const ComputedPart> computed_feed_forwards() {
    return kFeedForwards;
}

std::span<const ComputedBeside> beside_feed_forwards() {
    return kBesideFeedForwards;
}

}  // namespace mgplan
