#include "simulator/piece/weight_gradient_policies.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace mgplan::simulator::weights {
namespace {

using EditedTensor = LayerEditor::Tensor;

/// Inputs of linear layers and gradients of their outputs, as the trace names them.
constexpr std::array<std::string_view, 8> kOperands{"norm output",       "attention output",          "packed queries, keys, values",
                                                    "activation output", "activation input gradient", "reordered blocks",
                                                    "input in fp8",      "output gradient in fp8"};

}  // namespace

bool puts_off_gradients(const PolicyContext& context) {
    return context.megatron().delay_wgrad;
}

void keep_operands(LayerEditor& layer, const PolicyContext& /*context*/) {
    std::int64_t asked = layer.backward().end - 1;
    if (layer.piece() == Piece::mixture) {
        const EditedTensor* const last = layer.find(layer.backward(), "expert input gradient");
        if (last == nullptr) return;                   // no rows
        asked = last->taken + 2 * LayerEditor::kRoom;  // the product of the last gradient among them
    }
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        for (const std::string_view name : kOperands) {
            for (int which = 0; EditedTensor* operand = layer.find(where, name, which); ++which) {
                if (operand->returned >= layer.backward().begin) operand->returned = std::max(operand->returned, asked);
            }
        }
    }
}

}  // namespace mgplan::simulator::weights
