// Feed-forwards as parts of layers.

#include <array>

#include "plan/parts/layer_part_kinds.hpp"

namespace mgplan {
namespace {

/// activation: 0 not stated, so that the part is counted and nothing else, else 1 + its number in enum Activation.
constexpr std::array kMlpSizes{PartSize{"width", 1}, PartSize{"in", 0, 0}, PartSize{"gated", 0, 1}, PartSize{"bias", 0, 0},
                               PartSize{"activation", 0, 0}};

std::vector<CountedTensor> mlp_tensors(const PartSizes& s) {
    const std::int64_t hidden = s["in"] > 0 ? s["in"] : s.hidden(), width = s["width"], first = s["gated"] != 0 ? 2 * width : width;
    std::vector<CountedTensor> tensors{{"first.weight", {first, hidden}}, {"second.weight", {hidden, width}}};
    if (s["bias"] != 0) {
        tensors.push_back({"first.bias", {first}});
        tensors.push_back({"second.bias", {hidden}});
    }
    return tensors;
}

/// `in`: width of what the experts take and give, 0 the hidden size (Nemotron 3 projects to a smaller one). score_bias: as many values as
/// experts that the router adds and that are trained or moved, in the checkpoint as a parameter. zero_experts: those that give back their
/// input (LongCat-Flash), which the router scores like the others; idle_first: first matrices that a class holds and no token passes; idle:
/// 1 where no word passes any of them (ERNIE 4.5 VL's experts of pictures).
constexpr std::array kExpertSizes{PartSize{"experts", 1},         PartSize{"top_k", 1},          PartSize{"width", 1},
                                  PartSize{"gated", 0, 1},        PartSize{"bias", 0, 0},        PartSize{"in", 0, 0},
                                  PartSize{"router", 0, 1},       PartSize{"router_bias", 0, 0}, PartSize{"activation", 0, 0},
                                  PartSize{"zero_experts", 0, 0}, PartSize{"idle_first", 0, 0},  PartSize{"idle", 0, 0}};

std::vector<CountedTensor> expert_tensors(const PartSizes& s) {
    const std::int64_t outer = s["in"] > 0 ? s["in"] : s.hidden(), experts = s["experts"], width = s["width"];
    const std::int64_t first = s["gated"] != 0 ? 2 * width : width, used = s["idle"] != 0 ? 0 : s["top_k"] < experts ? s["top_k"] : experts;
    std::vector<CountedTensor> tensors;
    const std::int64_t scored = experts + s["zero_experts"];
    if (s["router"] != 0) tensors.push_back({"router.weight", {scored, s.hidden()}});
    if (s["router_bias"] != 0) tensors.push_back({"router.bias", {scored}});
    tensors.push_back({"experts.first.weight", {first, outer}, experts, used});
    if (s["bias"] != 0) tensors.push_back({"experts.first.bias", {first}, experts, used});
    if (s["idle_first"] != 0) tensors.push_back({"experts.idle.weight", {first, outer}, s["idle_first"], 0});
    tensors.push_back({"experts.second.weight", {outer, width}, experts, used});
    if (s["bias"] != 0) tensors.push_back({"experts.second.bias", {outer}, experts, used});
    return tensors;
}

constexpr std::array kFeedForwardKinds{PartKind{"mlp", kMlpSizes, mlp_tensors, PartRole::feed_forward},
                                       PartKind{"experts", kExpertSizes, expert_tensors, PartRole::mixture}};

}  // namespace

std::span<const PartKind> feed_forward_part_kinds() {
    return kFeedForwardKinds;
}

}  // namespace mgplan
