#include "simulator/piece/expert_buffer_policies.hpp"

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/piece/time_policies.hpp"

namespace mgplan::simulator::buffers {

using EditedTensor = LayerEditor::Tensor;

bool stashes_rows(const PolicyContext& context) {
    return context.mixture() != nullptr && context.megatron().expert_buffers.paged_stash && timed::fuses_expert_activations(context);
}

void stash_rows(LayerEditor& layer, const PolicyContext& context) {
    const EditedTensor* const product = layer.find(layer.forward(), "expert first product");
    const EditedTensor* const output = layer.find(layer.forward(), "expert output");
    if (product == nullptr || output == nullptr || product->bytes == 0) return;  // no rows
    const Mixture& moe = *context.mixture();
    const std::int64_t width = moe.expert_ffn / context.sizes.etp * 2;  // gated experts
    const std::int64_t rows = product->bytes / bytes_of(context.sizes.dtype) / width;
    const std::int64_t even = context.sizes.rows_outside() * moe.top_k * context.sizes.etp;
    const double pages = std::abs(context.megatron().expert_buffers.pages) * static_cast<double>(even) / static_cast<double>(rows);
    std::vector<EditedTensor> kept;
    for (const EditedTensor& tensor : layer.tensors()) {
        const bool waits = tensor.bytes > 0 && tensor.taken < layer.forward().end && tensor.returned >= layer.backward().begin;
        const bool input = tensor.name == std::string_view("input in fp8") && tensor.taken > product->taken &&
                           tensor.taken <= output->taken + LayerEditor::kRoom;
        const bool probabilities = tensor.name == std::string_view("reordered blocks") && tensor.bytes == rows * bytes_of(Dtype::fp32) &&
                                   layer.forward().contains(tensor.taken);
        if (waits && (&tensor == product || input || probabilities)) kept.push_back(tensor);
    }
    for (const EditedTensor& tensor : kept) {
        EditedTensor* const found = layer.find({tensor.taken, tensor.taken + 1}, tensor.name);
        const std::int64_t leaves = layer.forward().end - 1, comes = layer.backward().begin + 1;
        found->returned = leaves;
        layer.add("pages of the stash", tensor.category, std::llround(pages * static_cast<double>(tensor.bytes)), leaves, comes);
        layer.add(tensor.name, tensor.category, tensor.bytes, comes, tensor.returned);
    }
}

}  // namespace mgplan::simulator::buffers
