// Parts without a mixer or a feed-forward of their own.

#include <algorithm>
#include <array>

#include "plan/layers/mixture.hpp"
#include "plan/parts/layer_part_kinds.hpp"

namespace mgplan {
namespace {

/// `behind`: 1 if the norms follow the halves of their layer, in front of the addition to the residual stream, 2 if there are norms in
/// front of the halves too, twice the number.
constexpr std::array kNormSizes{PartSize{"width", 1}, PartSize{"weight", 0, 1}, PartSize{"bias", 0, 0}, PartSize{"copies", 1, 1},
                                PartSize{"behind", 0, 0}};

std::vector<CountedTensor> norm_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors;
    if (s["weight"] != 0) tensors.push_back({"norm.weight", {s["width"]}, s["copies"], s["copies"]});
    if (s["bias"] != 0) tensors.push_back({"norm.bias", {s["width"]}, s["copies"], s["copies"]});
    return tensors;
}

constexpr std::array kLinearSizes{PartSize{"in", 1}, PartSize{"out", 1}, PartSize{"bias", 0, 0}, PartSize{"copies", 1, 1}};

std::vector<CountedTensor> linear_tensors(const PartSizes& s) {
    std::vector<CountedTensor> tensors{{"linear.weight", {s["out"], s["in"]}, s["copies"], s["copies"]}};
    if (s["bias"] != 0) tensors.push_back({"linear.bias", {s["out"]}, s["copies"], s["copies"]});
    return tensors;
}

/// read: rows that one token reads of many; 0: the table counts whole, as embeddings do.
constexpr std::array kTableSizes{PartSize{"rows", 1}, PartSize{"width", 1}, PartSize{"read", 0, 0}};

std::vector<CountedTensor> table_tensors(const PartSizes& s) {
    if (s["read"] == 0) return {{"table.weight", {s["rows"], s["width"]}}};
    return {{"table.weight", {s["width"]}, s["rows"], std::min(s["read"], s["rows"])}};
}

constexpr std::array kValueSizes{PartSize{"count", 1}};

std::vector<CountedTensor> value_tensors(const PartSizes& s) {
    return {{"values", {s["count"]}}};
}

/// Biases of the router's scores that move the choice of experts, and that their class counts among its parameters (ERNIE 4.5): one for
/// each expert of each MoE layer.
constexpr std::array kChoiceSizes{PartSize{"experts", 1}, PartSize{"mixtures", 1}};

std::vector<CountedTensor> choice_tensors(const PartSizes& s) {
    return {{std::string(kChoiceBias), {s["experts"]}, s["mixtures"], s["mixtures"]}};
}

/// Mixes `streams` residual streams into the input of one half and its output back into them (hyper-connections, arXiv 2409.19606;
/// modeling_deepseek_v4.py): a map from all streams to `maps` weights, their biases and `scales` factors.
constexpr std::array kHyperSizes{PartSize{"streams", 1}, PartSize{"maps", 1}, PartSize{"scales", 1}, PartSize{"copies", 1, 1}};

std::vector<CountedTensor> hyper_tensors(const PartSizes& s) {
    const std::int64_t copies = s["copies"];
    return {{"hyper.weight", {s["maps"], s["streams"] * s.hidden()}, copies, copies},
            {"hyper.bias", {s["maps"]}, copies, copies},
            {"hyper.scale", {s["scales"]}, copies, copies}};
}

/// A table that says which experts each of `words` takes, `top_k` of them: nothing in it is trained (DeepSeek-V4, modeling_deepseek_v4.py,
/// DeepseekV4HashRouter, tid2eid).
constexpr std::array kWordChoiceSizes{PartSize{"words", 1}, PartSize{"top_k", 1}};

std::vector<CountedTensor> word_choice_tensors(const PartSizes& /*sizes*/) {
    return {};
}

constexpr std::array kPlainKinds{PartKind{"norm", kNormSizes, norm_tensors, PartRole::norm},
                                 PartKind{"linear", kLinearSizes, linear_tensors},
                                 PartKind{"table", kTableSizes, table_tensors},
                                 PartKind{"values", kValueSizes, value_tensors},
                                 PartKind{"choice_biases", kChoiceSizes, choice_tensors},
                                 PartKind{"hyper_connection", kHyperSizes, hyper_tensors, PartRole::stream_maps},
                                 PartKind{"word_choice", kWordChoiceSizes, word_choice_tensors, PartRole::word_choice}};

}  // namespace

std::span<const PartKind> plain_part_kinds() {
    return kPlainKinds;
}

}  // namespace mgplan
