#include "simulator/piece/frozen_weight_policies.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/piece/step_edits.hpp"

namespace mgplan::simulator::frozen {
namespace {

/// Elements of the largest packed weight of the half on a rank.
std::int64_t largest_weight(Piece piece, const PolicyContext& context) {
    const std::string_view half = piece == Piece::attention ? "self_attention." : "mlp.";
    std::int64_t most = 0;
    for (const LayerTensor& tensor : tensors(context.layer, context.model.hidden)) {
        if (tensor.trained || tensor.dtype != DtypeClass::gemm_weight || !tensor.name.starts_with(half)) continue;
        std::int64_t elements = tensor.shard_axis ? 1 : context.sizes.tp;
        for (const std::int64_t extent : tensor.shape) elements *= extent;
        most = std::max(most, elements / context.sizes.tp);
    }
    return most;
}

/// True if the product whose workspace is `workspace` is an adapter's: the tensor taken last before it is one of theirs.
bool of_adapter(const LayerEditor& layer, const LayerEditor::Tensor& workspace) {
    const LayerEditor::Tensor* last = nullptr;
    for (const LayerEditor::Tensor& tensor : layer.tensors()) {
        if (tensor.bytes > 0 && tensor.taken < workspace.taken && (last == nullptr || tensor.taken > last->taken)) last = &tensor;
    }
    return last != nullptr && last->name.starts_with("adapter");
}

}  // namespace

bool packs(const PolicyContext& context) {
    return context.layer.adapters && context.layer.adapters->base == FrozenStorage::nf4;
}

void hold_unpacked(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t bytes = largest_weight(layer.piece(), context) * bytes_of(context.sizes.dtype);
    std::vector<TraceRange> products;
    for (const LayerEditor::Tensor& tensor : layer.tensors()) {
        const bool here = layer.forward().contains(tensor.taken) || layer.backward().contains(tensor.taken);
        if (here && tensor.name == "matmul workspace" && tensor.bytes > 0 && !of_adapter(layer, tensor))
            products.push_back({tensor.taken, tensor.returned});
    }
    for (const TraceRange& product : products)
        layer.add("unpacked weight", model::MemoryCategory::activations, bytes, product.begin - 1, product.end + 1);
}

void unpack(LayerEditor& layer, const PolicyContext& context) {
    // The second scales are unpacked first, and their mean is added.
    constexpr std::int64_t kFurtherLaunches = 2;
    for (PieceSteps* const steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const PieceStep& step = (*steps)[i];
            if (!timed::is_product(step) || step.unquantised || step.op.product.accumulate) continue;
            const std::int64_t elements = step.op.product.n * step.op.product.k;
            PieceStep kernel = timed::stream_op(step, "dequantise", 0);
            kernel.op.bytes_read = nf4_bytes(elements);
            kernel.op.bytes_written = elements * bytes_of(context.sizes.dtype);
            kernel.launches = kFurtherLaunches;
            timed::insert_at(*steps, i++, kernel);
        }
    }
}

}  // namespace mgplan::simulator::frozen
