#include "simulator/piece/offload_policies.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace mgplan::simulator::host {
namespace {

using EditedTensor = LayerEditor::Tensor;

std::int64_t stream_bytes(const PolicyContext& context) {
    return context.sizes.rows_outside() * context.model.hidden * bytes_of(context.sizes.dtype);
}

/// Offloads tensors of one half-layer.
class Leaving {
public:
    Leaving(LayerEditor& layer, const PolicyContext& context) : layer_(layer), context_(context) {
        for (const EditedTensor& tensor : layer.tensors()) {
            if (tensor.bytes > 0 && layer.forward().contains(tensor.taken) && tensor.returned >= layer.backward().begin)
                kept_.push_back(tensor);
        }
    }

    /// Tensors that its forward keeps until its backward. Not changed by leave().
    [[nodiscard]] const std::vector<EditedTensor>& kept() const { return kept_; }

    [[nodiscard]] bool large(const EditedTensor& tensor) const {
        const Dtype dtype = tensor.name == std::string_view("attention log-sum-exp") ? Dtype::fp32 : context_.sizes.dtype;
        return tensor.bytes / bytes_of(dtype) >= context_.megatron().least_offloaded;
    }

    void copy(const EditedTensor& tensor) {
        if (large(tensor)) layer_.to_host() += tensor.bytes;
    }

    /// `tensor`: as recorded, before any change.
    void leave(const EditedTensor& tensor) {
        if (!large(tensor)) return;
        copy(tensor);
        cut(tensor);
    }

    /// Removes the tensor from the device between forward and backward, without counting a copy.
    void cut(const EditedTensor& tensor) {
        if (!large(tensor)) return;
        // Several tensors may be equal: equal times identify one of them.
        EditedTensor* const found = layer_.find({tensor.taken, tensor.taken + 1}, tensor.name);
        if (found == nullptr || found->returned != tensor.returned) return;
        found->returned = layer_.forward().end - 1;
        layer_.add(tensor.name, tensor.category, tensor.bytes, layer_.backward().begin + 1, tensor.returned);
    }

    /// The stream that the half-layer's norm reads, made by the half-layer before it.
    void leave_stream() {
        const EditedTensor* const stream = layer_.alive(layer_.forward().begin, stream_bytes(context_));
        if (stream == nullptr || stream->returned < layer_.backward().begin) return;
        leave(EditedTensor(*stream));
    }

private:
    LayerEditor& layer_;
    const PolicyContext& context_;
    std::vector<EditedTensor> kept_;
};

const EditedTensor* named(const std::vector<EditedTensor>& tensors, std::string_view name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const EditedTensor& tensor) { return tensor.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

void leave_attention(LayerEditor& layer, const PolicyContext& context) {
    using enum OffloadModule;
    const auto chosen = context.sizes.offloaded;
    Leaving leaving(layer, context);
    const EditedTensor* const output = named(leaving.kept(), "attention output");
    // The core's backward frees everything that the core kept; then the next tensor is taken.
    std::int64_t core_end = std::numeric_limits<std::int64_t>::max();
    for (const EditedTensor& tensor : layer.tensors()) {
        if (output != nullptr && tensor.bytes > 0 && layer.backward().contains(tensor.taken) && tensor.taken > output->returned)
            core_end = std::min(core_end, tensor.taken);
    }
    for (const EditedTensor& tensor : leaving.kept()) {
        if (output == nullptr) break;
        const bool is_output = &tensor == output;
        const bool of_core = !is_output && tensor.returned >= output->returned && tensor.returned < core_end;
        // The output belongs to the core and to the projection; each of them copies it.
        if (is_output && chosen.contains(core_attn)) leaving.copy(tensor);
        if (is_output && chosen.contains(attn_proj)) leaving.leave(tensor);
        if (of_core && chosen.contains(core_attn)) leaving.leave(tensor);
        if (!is_output && !of_core && tensor.taken < output->taken && chosen.contains(qkv_linear)) leaving.leave(tensor);
    }
    // Latent attention has a separate norm before its projections; otherwise the two are one module.
    if (chosen.contains(context.latent() != nullptr ? attn_norm : qkv_linear)) leaving.leave_stream();
}

void leave_mixture(LayerEditor& layer, const PolicyContext& context) {
    using enum OffloadModule;
    const auto chosen = context.sizes.offloaded;
    Leaving leaving(layer, context);
    if (chosen.contains(mlp_norm)) leaving.leave_stream();
    const EditedTensor* const product = named(leaving.kept(), "expert first product");
    if (product == nullptr) return;  // no rows, or all of it is recomputed
    if (chosen.contains(expert_fc1)) {
        const std::int64_t width = context.mixture()->expert_ffn / context.sizes.etp * (context.mixture()->gated ? 2 : 1);
        const std::int64_t rows = product->bytes / bytes_of(context.sizes.dtype) / width * context.model.routed_width();
        const EditedTensor* input = nullptr;  // the latest before the activation
        for (const EditedTensor& tensor : leaving.kept()) {
            const bool copied = !keeps_expert_rows(context) && tensor.name == std::string_view("input in fp8");
            if (&tensor == product || !(copied || tensor.bytes == rows * bytes_of(context.sizes.dtype))) continue;
            if (tensor.taken > product->taken + LayerEditor::kRoom) continue;
            if (input == nullptr || tensor.taken > input->taken) input = &tensor;
        }
        if (input != nullptr) leaving.leave(EditedTensor(*input));
    }
    if (!chosen.contains(moe_act)) return;
    for (const std::string_view name : {"expert first product", "unweighted activation", "clamped product"}) {
        if (const EditedTensor* const tensor = named(leaving.kept(), name)) leaving.leave(EditedTensor(*tensor));
    }
}

}  // namespace

bool offloads(const PolicyContext& context) {
    return !context.sizes.offloaded.empty();
}

bool keeps_expert_rows(const PolicyContext& context) {
    const QuantisedFormat format = context.training.format();
    return context.sizes.offloaded.contains(OffloadModule::expert_fc1) && format != QuantisedFormat::mxfp8 &&
           format != QuantisedFormat::nvfp4;
}

void leave_inputs(LayerEditor& layer, const PolicyContext& context) {
    if (layer.piece() == Piece::attention)
        leave_attention(layer, context);
    else
        leave_mixture(layer, context);
}

}  // namespace mgplan::simulator::host
