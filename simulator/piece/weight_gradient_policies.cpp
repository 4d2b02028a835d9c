#include "simulator/piece/weight_gradient_policies.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace mgplan::simulator::weights {
namespace {

using EditedTensor = LayerEditor::Tensor;

constexpr std::string_view kRoutedRows = "reordered blocks";
/// Inputs of linear layers and gradients of their outputs, by their names in the trace.
constexpr std::array<std::string_view, 9> kOperands{
    "norm output",   "attention output", "packed queries, keys, values", "activation output", "activation input gradient", kRoutedRows,
    "gathered rows", "input in fp8",     "output gradient in fp8"};
/// Operands of latent attention, whose queries, keys and values are not packed.
constexpr std::array<std::string_view, 3> kLatentOperands{"attention query gradient", "projected keys gradient",
                                                          "gradient of latent and shared keys"};

}  // namespace

bool puts_off_gradients(const PolicyContext& context) {
    return context.megatron().delay_wgrad;
}

void keep_operands(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t end = layer.backward().end - 1;
    std::int64_t of_experts = 0, experts_end = 0;  // when experts' weight gradients run; when the last of their own tensors is freed
    if (layer.piece() == Piece::mixture) {
        const EditedTensor* const last = layer.find(layer.backward(), "expert input gradient");
        if (last != nullptr) {
            of_experts = last->taken + 2 * LayerEditor::kRoom;  // the last GEMM among them
            experts_end = last->returned;
        }
    }
    const auto keep = [&](std::string_view name) {
        for (const TraceRange where : {layer.forward(), layer.backward()}) {
            for (int which = 0; EditedTensor* operand = layer.find(where, name, which); ++which) {
                if (operand->returned < layer.backward().begin) continue;
                // Shared experts come after the routed ones.
                const bool routed = operand->returned <= experts_end || name == kRoutedRows;
                operand->returned = std::max(operand->returned, routed ? of_experts : end);
            }
        }
    };
    std::ranges::for_each(kOperands, keep);
    if (context.latent() != nullptr) std::ranges::for_each(kLatentOperands, keep);
}

}  // namespace mgplan::simulator::weights
