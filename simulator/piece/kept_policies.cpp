#include "simulator/piece/kept_policies.hpp"

#include <algorithm>

#include "plan/cluster/architectures.hpp"
#include "plan/text/errors.hpp"
#include "simulator/piece/time_policies.hpp"

namespace mgplan::simulator::kept {
namespace {

using model::MemoryCategory;
using EditedTensor = LayerEditor::Tensor;

/// A tensor that mgplan's layers always take: asserts that it exists.
EditedTensor& must(EditedTensor* tensor, std::string_view name) {
    MGPLAN_ASSERT(tensor != nullptr, name);
    return *tensor;
}

/// The experts' first GEMM result, if it is kept for the backward; null if the MoE layer is recomputed, or if no token chose an expert of
/// this rank, which is possible with fewer copies than experts.
const EditedTensor* kept_first_product(LayerEditor& layer) {
    const EditedTensor* const product = layer.find(layer.forward(), "expert first product");
    return product == nullptr || product->returned < layer.backward().begin ? nullptr : product;
}

std::int64_t output_bytes(const PolicyContext& context) {
    return context.sizes.rows() * context.heads() / context.sizes.tp * context.value_width() * bytes_of(context.sizes.dtype);
}

/// Begin and end of the lives of the core's own tensors.
struct CoreLife {
    std::int64_t begin, end;
};

CoreLife core_life(LayerEditor& layer) {
    const TraceRange attention = layer.forward();
    const EditedTensor& output = must(layer.find(attention, "attention output"), "the core's output");
    return {output.taken + 1, output.returned};
}

std::int64_t vocabulary_weight_bytes(const PolicyContext& context) {
    const std::int64_t tp = context.sizes.tp;
    return context.model.padded_vocab(tp) / tp * context.model.hidden * bytes_of(context.sizes.dtype);
}

bool in_place_loss(const PolicyContext& context) {
    return context.training.fused_cross_entropy && context.megatron().te_cross_entropy;
}

}  // namespace

/// The libraries' scratch for GEMMs is permanent and counted outside the trace.
void drop_product_workspaces(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        layer.drop_all(where, "matmul workspace");
    }
}

bool without_engine(const PolicyContext& context) {
    return !context.megatron().transformer_engine && context.attention() != nullptr && context.attention()->rotary &&
           context.sizes.tp <= context.attention()->kv_heads;
}

void keep_packed_projection(LayerEditor& layer, const PolicyContext& /*context*/) {
    const TraceRange attention = layer.forward();
    EditedTensor& packed = must(layer.find(attention, "column-parallel output"), "the packed projection");
    EditedTensor& values = must(layer.find(attention, "columns", 2), "the values beside rotated queries and keys");
    packed.returned = values.returned;
    LayerEditor::drop(values);
}

bool latent(const PolicyContext& context) {
    return context.latent() != nullptr;
}

void keep_key_value_projection(LayerEditor& layer, const PolicyContext& context) {
    if (context.sizes.modules.contains(RecomputeModule::mla_up_proj)) return;
    const TraceRange attention = layer.forward();
    // The projection to keys and values comes after that of the queries.
    EditedTensor& projected = must(layer.find(attention, "column-parallel output", 1), "the projection to keys and values");
    EditedTensor& values = must(layer.find(attention, "values"), "the values");
    projected.returned = values.returned;
    LayerEditor::drop(values);
}

bool exchanges_heads(const PolicyContext& context) {
    return context.sizes.cp > 1 && (context.sizes.cp_comm_type == CpCommType::a2a || context.sizes.cp_comm_type == CpCommType::a2a_p2p);
}

void keep_output_by_heads(LayerEditor& layer, const PolicyContext& context) {
    const TraceRange attention = layer.forward(), backward = layer.backward();
    // Tensors saved by the core itself live until its backward; recomputed cores save nothing (as the trace shows for the sums).
    const EditedTensor& sums = must(layer.find(attention, "attention log-sum-exp"), "the core's sums of exponentials");
    if (sums.returned < backward.begin) return;
    layer.add("attention output by heads", MemoryCategory::activations, output_bytes(context), sums.taken + 1, sums.returned);
}

/// True if the flash-attn package runs: if requested, or if Transformer Engine chooses it because cuDNN does not take precedence
/// (dot_product_attention/utils.py, get_attention_backend): cuDNN is preferred from Hopper on, but outside Hopper it is not reproducible.
bool flash_package(const PolicyContext& context) {
    if (context.training.attention != AttentionBackend::flash || context.sizes.cp > 1 || context.sizes.micro_batch == 1) return false;
    if (!context.megatron().transformer_engine) return true;
    const int architecture = context.sizes.traits.architecture;
    switch (context.megatron().fused_attention) {
        case FusedAttention::flash_attention:
            return true;
        case FusedAttention::cudnn:
            return false;
        case FusedAttention::automatic:
            break;
    }
    return architecture < architectures::kHopper || (context.megatron().deterministic && architecture >= architectures::kBlackwell);
}

void keep_output_by_batch(LayerEditor& layer, const PolicyContext& context) {
    const TraceRange attention = layer.forward(), backward = layer.backward();
    const EditedTensor& sums = must(layer.find(attention, "attention log-sum-exp"), "the core's sums of exponentials");
    if (sums.returned < backward.begin) return;  // recomputed
    layer.add("attention output by batch", MemoryCategory::activations, output_bytes(context), sums.taken + 1, sums.returned);
}

bool unfused(const PolicyContext& context) {
    return context.training.attention == AttentionBackend::unfused;
}

void keep_scores(LayerEditor& layer, const PolicyContext& context) {
    const TraceRange attention = layer.forward(), backward = layer.backward();
    const PieceSizes& sizes = context.sizes;
    const std::int64_t scores = sizes.rows() * sizes.sequence * (context.heads() / sizes.tp);
    const std::int64_t element = bytes_of(sizes.dtype);
    // No fused kernel: neither its sums nor its scratch.
    const CoreLife life = core_life(layer);
    EditedTensor& sums = must(layer.find(attention, "attention log-sum-exp"), "the core's sums of exponentials");
    const bool recomputed = sums.returned < backward.begin;
    const std::int64_t kept_until = recomputed ? sums.returned : life.end;
    LayerEditor::drop(sums);
    for (const TraceRange where : {attention, backward}) {
        layer.drop_all(where, "attention workspace");
        layer.drop_all(where, "attention log-sum-exp");
    }
    const auto keep = [&](std::int64_t taken, std::int64_t returned) {
        layer.add("attention scores", MemoryCategory::activations, scores * element, taken, returned);
        if (context.scores().dropout > 0) {
            layer.add("attention dropout mask", MemoryCategory::activations, scores, taken, returned);
            layer.add("dropped attention scores", MemoryCategory::activations, scores * element, taken, returned);
        }
    };
    keep(life.begin, kept_until);
    const std::int64_t at = must(layer.find(backward, "attention query gradient"), "the queries' gradient").taken;
    if (recomputed) keep(at - 1, at + 2);
    // Gradients of the scores after and before the softmax.
    layer.add("gradient of the scores", MemoryCategory::activations, 2 * scores * element, at - 1, at + 2);
}

bool drops(const PolicyContext& context) {
    return context.layer.residual.dropout > 0;
}

void keep_dropout_masks(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t mask = context.sizes.rows_outside() * context.model.stream_width();
    const EditedTensor& stream = must(layer.find(layer.forward(), "residual stream"), "the residual stream");
    layer.add("dropout mask", MemoryCategory::activations, mask, stream.taken, layer.backward().begin + LayerEditor::kRoom);
}

void keep_embedding_mask(LayerEditor& layer, const PolicyContext& context) {
    layer.add("dropout mask", MemoryCategory::activations, context.sizes.rows_outside() * context.model.hidden, layer.forward().end - 1,
              layer.backward().begin + 1);
}

void keep_dense_routing(LayerEditor& layer, const PolicyContext& context) {
    timed::route_by_pytorch(layer, context);
    const EditedTensor& scores = must(layer.find(layer.forward(), "router scores"), "the router's scores");
    const std::int64_t taken = scores.taken + 1, returned = scores.returned;
    const std::int64_t entries = context.sizes.rows_outside() * context.mixture()->experts;
    layer.add("routing probabilities", MemoryCategory::activations, entries * 4, taken, returned);
    layer.add("routing map", MemoryCategory::activations, entries, taken, returned);
}

bool weights_activations(const PolicyContext& context) {
    return context.mixture() != nullptr && !(context.mixture()->gated && context.megatron().bias_activation_fusion) &&
           !context.sizes.modules.contains(RecomputeModule::moe_act);
}

void keep_unweighted_activation(LayerEditor& layer, const PolicyContext& /*context*/) {
    const EditedTensor* const product = kept_first_product(layer);
    if (product == nullptr) return;
    // As wide as the GEMM result: for gated experts the activated half and the product of both halves.
    layer.add("unweighted activation", MemoryCategory::activations, product->bytes, product->taken + 1, product->returned);
}

bool activates_halves_apart(const PolicyContext& context) {
    const Mlp* const mlp = feed_forward_as<Mlp>(context.layer);
    return mlp != nullptr && mlp->gated && !context.megatron().bias_activation_fusion;
}

void keep_activated_half(LayerEditor& layer, const PolicyContext& context) {
    timed::activate_by_pytorch(layer, context);
    if (context.sizes.modules.contains(RecomputeModule::mlp)) return;
    const EditedTensor& product = must(layer.find(layer.forward(), "column-parallel output"), "the MLP's first product");
    layer.add("activated half", MemoryCategory::activations, product.bytes / 2, product.taken + 1, product.returned);
}

void keep_clamped_product(LayerEditor& layer, const PolicyContext& context) {
    timed::clamp_products(layer, context);
    const EditedTensor* const product = kept_first_product(layer);
    if (product == nullptr || context.sizes.modules.contains(RecomputeModule::moe_act)) return;
    layer.add("clamped product", MemoryCategory::activations, product->bytes, product->taken + 1, product->returned);
}

bool trains_vocabulary(const PolicyContext& context) {
    return !context.model.adapters;
}

void take_embedding_gradient(LayerEditor& layer, const PolicyContext& context) {
    timed::make_table_gradient(layer, context);
    const TraceRange backward = layer.backward();
    layer.add("embedding weight gradient", MemoryCategory::activations, vocabulary_weight_bytes(context), backward.begin + 1,
              backward.end - 1);
}

bool copies_logits(const PolicyContext& context) {
    return !in_place_loss(context);
}

void copy_logits(LayerEditor& head, const PolicyContext& context) {
    const TraceRange forward = head.forward(), backward = head.backward();
    EditedTensor& logits = must(head.find(forward, "column-parallel output"), "the logits");
    const std::int64_t elements = logits.bytes / bytes_of(context.sizes.dtype), bytes = logits.bytes, end = logits.returned;
    const std::int64_t copied = must(head.find(forward, "logit maximum"), "the row maxima").taken;
    logits.returned = forward.end - 1;
    // The fp32 copy becomes the softmax in place, later its gradient; the compiled loss needs another buffer.
    head.add("fp32 logits", MemoryCategory::activations, elements * 4, copied, backward.begin + 3);
    if (context.training.fused_cross_entropy)
        head.add("exponentials of logits", MemoryCategory::activations, elements * 4, copied, forward.end - 1);
    head.add("logit gradient", MemoryCategory::activations, bytes, backward.begin + 2, end);
}

void take_output_weight_gradient(LayerEditor& head, const PolicyContext& context) {
    const TraceRange backward = head.backward();
    // The gradients of logits, gathered input, own input and weight end together, when autograd has taken the last one.
    EditedTensor* logits = head.find(backward, "logit gradient");
    if (logits == nullptr) logits = head.find(head.forward(), "column-parallel output");
    const std::int64_t end = must(logits, "the logits").returned;
    EditedTensor& d_input = must(head.find(backward, "input gradient"), "the gradient of the output layer's input");
    d_input.returned = std::max(d_input.returned, end);
    const std::int64_t tp = context.sizes.tp;
    const std::int64_t bytes = context.model.output_rows(tp) / tp * context.model.hidden * bytes_of(context.sizes.dtype);
    head.add("output layer weight gradient", MemoryCategory::activations, bytes, end - 2, end + 1);
}

bool gathers_rows(const PolicyContext& context) {
    return context.sizes.sequence_parallel && context.sizes.tp > 1;
}

/// The buffer for gathered rows is created once and kept; it is counted outside the trace.
void drop_gathered_rows(LayerEditor& head, const PolicyContext& /*context*/) {
    for (const TraceRange where : {head.forward(), head.backward()}) {
        head.drop_all(where, "gathered rows");
    }
}

}  // namespace mgplan::simulator::kept
