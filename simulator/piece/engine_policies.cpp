#include "simulator/piece/engine_policies.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"
#include "simulator/piece/expert_buffer_policies.hpp"
#include "simulator/piece/fp8_policies.hpp"
#include "simulator/piece/layer_editor.hpp"
#include "simulator/piece/offload_policies.hpp"
#include "simulator/piece/recurrent_policies.hpp"
#include "simulator/piece/stream_policies.hpp"
#include "simulator/piece/time_policies.hpp"
#include "simulator/piece/weight_gradient_policies.hpp"

namespace mgplan::simulator {
namespace {

using model::MemoryCategory;
using EditedTensor = LayerEditor::Tensor;

bool always(const PolicyContext& /*context*/) {
    return true;
}

/// A tensor that mgplan's layers are known to take: its absence is a bug here.
EditedTensor& must(EditedTensor* tensor, std::string_view name) {
    MGPLAN_ASSERT(tensor != nullptr, name);
    return *tensor;
}

// --- Products ------------------------------------------------------------------------------------------------------------

/// The libraries' scratch for products is held for good and counted beside the trace.
void drop_product_workspaces(LayerEditor& layer, const PolicyContext& /*context*/) {
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        layer.drop_all(where, "matmul workspace");
    }
}

// --- Attention -----------------------------------------------------------------------------------------------------------

bool without_engine(const PolicyContext& context) {
    return !context.megatron().transformer_engine && !context.model.mla && context.model.position == PositionEmbedding::rope &&
           context.sizes.tp <= context.model.kv_heads;
}

void keep_packed_projection(LayerEditor& layer, const PolicyContext& /*context*/) {
    const TraceRange attention = layer.forward();
    EditedTensor& packed = must(layer.find(attention, "column-parallel output"), "the packed projection");
    EditedTensor& values = must(layer.find(attention, "columns", 2), "the values beside rotated queries and keys");
    packed.returned = values.returned;
    LayerEditor::drop(values);
}

bool latent(const PolicyContext& context) {
    return context.model.mla.has_value();
}

void keep_key_value_projection(LayerEditor& layer, const PolicyContext& context) {
    if (context.sizes.modules.contains(RecomputeModule::mla_up_proj)) return;
    const TraceRange attention = layer.forward();
    // Behind the queries' own projection.
    EditedTensor& projected = must(layer.find(attention, "column-parallel output", 1), "the projection to keys and values");
    EditedTensor& values = must(layer.find(attention, "values"), "the values");
    projected.returned = values.returned;
    LayerEditor::drop(values);
}

bool exchanges_heads(const PolicyContext& context) {
    return context.sizes.cp > 1 && (context.sizes.cp_comm_type == CpCommType::a2a || context.sizes.cp_comm_type == CpCommType::a2a_p2p);
}

std::int64_t output_bytes(const PolicyContext& context) {
    return context.sizes.rows() * context.model.heads / context.sizes.tp * context.model.v_head_dim() * bytes_of(context.sizes.dtype);
}

/// Instants at which the core's own tensors begin and end their lives.
struct CoreLife {
    std::int64_t begin, end;
};

CoreLife core_life(LayerEditor& layer) {
    const TraceRange attention = layer.forward();
    const EditedTensor& output = must(layer.find(attention, "attention output"), "the core's output");
    return {output.taken + 1, output.returned};
}

void keep_output_by_heads(LayerEditor& layer, const PolicyContext& context) {
    const TraceRange attention = layer.forward(), backward = layer.backward();
    // What the core itself saves lives until its backward; recomputed cores save nothing (the trace says so of the sums).
    const EditedTensor& sums = must(layer.find(attention, "attention log-sum-exp"), "the core's sums of exponentials");
    if (sums.returned < backward.begin) return;
    layer.add("attention output by heads", MemoryCategory::activations, output_bytes(context), sums.taken + 1, sums.returned);
}

/// The flash-attn package runs where it is asked for, and where Transformer Engine chooses and cuDNN does not stand above it
/// (dot_product_attention/utils.py, get_attention_backend): cuDNN is preferred from Hopper on, but outside Hopper it is not
/// reproducible.
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
    return architecture < 90 || (context.megatron().deterministic && architecture >= 100);
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
    const std::int64_t scores = sizes.rows() * sizes.sequence * (context.model.heads / sizes.tp);
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
        if (context.model.attention_dropout > 0) {
            layer.add("attention dropout mask", MemoryCategory::activations, scores, taken, returned);
            layer.add("dropped attention scores", MemoryCategory::activations, scores * element, taken, returned);
        }
    };
    keep(life.begin, kept_until);
    const std::int64_t at = must(layer.find(backward, "attention query gradient"), "the queries' gradient").taken;
    if (recomputed) keep(at - 1, at + 2);
    // Gradients of the scores behind and before the softmax.
    layer.add("gradient of the scores", MemoryCategory::activations, 2 * scores * element, at - 1, at + 2);
}

// --- Residual stream -----------------------------------------------------------------------------------------------------

bool drops(const PolicyContext& context) {
    return context.model.hidden_dropout > 0;
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

// --- Mixtures ------------------------------------------------------------------------------------------------------------

void keep_dense_routing(LayerEditor& layer, const PolicyContext& context) {
    timed::route_by_pytorch(layer, context);
    const EditedTensor& scores = must(layer.find(layer.forward(), "router scores"), "the router's scores");
    const std::int64_t taken = scores.taken + 1, returned = scores.returned;
    const std::int64_t entries = context.sizes.rows_outside() * context.model.moe->experts;
    layer.add("routing probabilities", MemoryCategory::activations, entries * 4, taken, returned);
    layer.add("routing map", MemoryCategory::activations, entries, taken, returned);
}

bool weights_activations(const PolicyContext& context) {
    return context.model.moe && !(context.model.gated_mlp && context.megatron().bias_activation_fusion) &&
           !context.sizes.modules.contains(RecomputeModule::moe_act);
}

void keep_unweighted_activation(LayerEditor& layer, const PolicyContext& /*context*/) {
    const EditedTensor& product = must(layer.find(layer.forward(), "expert first product"), "the experts' first product");
    if (product.returned < layer.backward().begin) return;  // the mixture is recomputed
    // As wide as the product: of a gated one the activated half and the product of both.
    layer.add("unweighted activation", MemoryCategory::activations, product.bytes, product.taken + 1, product.returned);
}

void keep_clamped_product(LayerEditor& layer, const PolicyContext& context) {
    timed::clamp_products(layer, context);
    const EditedTensor& product = must(layer.find(layer.forward(), "expert first product"), "the experts' first product");
    if (product.returned < layer.backward().begin || context.sizes.modules.contains(RecomputeModule::moe_act)) return;
    layer.add("clamped product", MemoryCategory::activations, product.bytes, product.taken + 1, product.returned);
}

// --- Embedding -----------------------------------------------------------------------------------------------------------

std::int64_t vocabulary_weight_bytes(const PolicyContext& context) {
    const std::int64_t tp = context.sizes.tp;
    return context.model.padded_vocab(tp) / tp * context.model.hidden * bytes_of(context.sizes.dtype);
}

void take_embedding_gradient(LayerEditor& layer, const PolicyContext& context) {
    timed::make_table_gradient(layer, context);
    const TraceRange backward = layer.backward();
    layer.add("embedding weight gradient", MemoryCategory::activations, vocabulary_weight_bytes(context), backward.begin + 1,
              backward.end - 1);
}

// --- Loss ----------------------------------------------------------------------------------------------------------------

bool in_place_loss(const PolicyContext& context) {
    return context.training.fused_cross_entropy && context.megatron().te_cross_entropy;
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
    // The fp32 copy becomes the softmax in place, later its gradient; the compiled one works beside it.
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

bool gathers_or_reduces(const PolicyContext& context) {
    return context.sizes.tp > 1;
}

/// The buffer for gathered rows is made once and kept; it is counted beside the trace.
void drop_gathered_rows(LayerEditor& head, const PolicyContext& /*context*/) {
    for (const TraceRange where : {head.forward(), head.backward()}) {
        head.drop_all(where, "gathered rows");
    }
}

constexpr unsigned in(Piece piece) {
    return 1U << static_cast<unsigned>(piece);
}

constexpr unsigned kEmbeddings = in(Piece::embedding) | in(Piece::mtp_embedding);
constexpr unsigned kHalves = in(Piece::attention) | in(Piece::recurrent) | in(Piece::dense) | in(Piece::mixture);

constexpr std::string_view kNoBytes = "time alone";

constexpr EnginePolicy kPolicies[] = {
    // Under fp8; in front of all that drops the products' workspaces.
    {"gathered rows travel in fp8", kHalves, "linear layers with sequence parallelism", "gathered inputs and output gradients",
     "fp8 and scales", "transformer_engine/pytorch/distributed.py, gather_along_first_dim", fp8::products, fp8::gather_quantised},
    {"gradients are quantised for both products", kHalves, "linear layers", "output gradient, along rows and along columns",
     "fp8 and scales", "transformer_engine/pytorch/module/base.py, grad_output_preprocess", fp8::products, fp8::quantise_gradients},
    {"fused norms keep their output in fp8", in(Piece::attention) | in(Piece::dense), "norm with the linear layer behind it", "norm output",
     "fp8 and scales", "transformer_engine/pytorch/module/layernorm_linear.py, _LayerNormLinear.forward", fp8::products,
     fp8::keep_normed_inputs},
    {"linear layers keep their input in fp8", in(Piece::attention) | in(Piece::dense) | in(Piece::mixture),
     "second linear layer of MLPs and shared experts; down projections of latent attention; first linear layer of shared experts under "
     "delayed scaling",
     "input", "fp8 and scales",
     "transformer_engine/pytorch/module/linear.py, _Linear.forward; megatron/core/transformer/moe/shared_experts.py", fp8::products,
     fp8::keep_linear_inputs},
    {"linear layers keep their input in fp8", in(Piece::mtp_front), "projection of multi-token prediction", "joined embeddings and states",
     "fp8 and scales", "transformer_engine/pytorch/module/linear.py, _Linear.forward", fp8::products, fp8::keep_joined_inputs},
    {"experts keep their rows in fp8", in(Piece::mixture), "grouped linear layers", "dispatched rows and weighted activation",
     "fp8 and scales", "transformer_engine/pytorch/module/grouped_linear.py, _GroupedLinear.forward", fp8::products,
     fp8::keep_expert_inputs},
    {"the output projection keeps a copy in fp8", in(Piece::attention), "output projection under delayed scaling", "core attention output",
     "fp8 and scale", "megatron/core/transformer/attention.py, set_save_original_input", fp8::copies_core_output, fp8::keep_core_output},
    {"products keep their workspaces", kHalves | in(Piece::norm) | in(Piece::mtp_front) | in(Piece::mtp_end), "linear layers", "workspace",
     "bytes", "ATen/cuda/CublasHandlePool.cpp; transformer_engine/pytorch/module/base.py, get_workspace", always, drop_product_workspaces},
    {"products keep their workspaces", in(Piece::loss), "output layer", "workspace", "bytes", "ATen/cuda/CublasHandlePool.cpp", always,
     drop_product_workspaces},
    {"values are a view of the packed projection", in(Piece::attention), "attention without Transformer Engine", "packed q, k, v",
     "storage type", "megatron/core/transformer/attention.py, get_query_key_value_tensors", without_engine, keep_packed_projection},
    {"values are a view of the key and value projection", in(Piece::attention), "latent attention", "projected k and v", "storage type",
     "megatron/core/transformer/multi_latent_attention.py, get_query_key_value_tensors", latent, keep_key_value_projection},
    {"the output by heads stays beside the output by tokens", in(Piece::attention), "attention with all-to-all context parallelism",
     "core attention output", "storage type",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A", exchanges_heads,
     keep_output_by_heads},
    {"the output by batch stays beside the output by sequence", in(Piece::attention), "attention by the flash-attn package",
     "core attention output", "storage type",
     "transformer_engine/pytorch/attention/dot_product_attention/backends.py, FlashAttention.forward", flash_package, keep_output_by_batch},
    {"the score matrix is kept", in(Piece::attention), "unfused core attention", "scores; with dropout mask and dropped scores",
     "storage type, mask 1 byte", "arXiv 2205.05198, section 4.1; megatron/core/transformer/dot_product_attention.py", unfused,
     keep_scores},
    {"the gated output of the scan is kept", in(Piece::recurrent), "Mamba-2", "scan output times silu(z)", "storage type",
     "megatron/core/ssm/mamba_mixer.py, _ssm_training; mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn",
     recurrent::scans, recurrent::keep_gated_output},
    {"unit keys and the chunks' matrices are kept", in(Piece::recurrent), "gated delta net",
     "queries and keys over their lengths for each value head, summed decays, strengths, inverted matrices", "storage type and fp32",
     "megatron/core/ssm/gated_delta_net/gdn.py; fla/ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction",
     recurrent::applies_delta_rule, recurrent::keep_unit_keys},
    {"dropout keeps its mask", kHalves, "residual additions", "mask", "1 byte",
     "megatron/core/fusions/fused_bias_dropout.py; ATen/native/cuda/Dropout.cu", drops, keep_dropout_masks},
    {"dropout keeps its mask", kEmbeddings, "embedding", "mask", "1 byte", "ATen/native/cuda/Dropout.cu", drops, keep_embedding_mask},
    {"residual streams are mixed kernel by kernel", kHalves, "hyper-connections without --use-fused-mhc",
     "mixed streams, the half's output for each stream, gradients", "storage type", "megatron/core/transformer/hyper_connection.py",
     streams::mixed_by_kernels, streams::mix_by_kernels},
    {"maps of streams are computed in fp32", kHalves, "hyper-connections of branch dev without --use-fused-mhc", "streams", "fp32",
     "megatron/core/transformer/hyper_connection.py at d48bd6be, _projection_and_get_norm", streams::in_fp32, streams::keep_fp32_streams},
    {"the routing is a table of all experts", in(Piece::mixture), "router", "probability and choice of every token and expert",
     "fp32, 1 byte", "megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function", always, keep_dense_routing},
    {"the unweighted activation is kept", in(Piece::mixture), "experts", "activation before its probability; of gated ones the gate's too",
     "storage type", "megatron/core/transformer/moe/experts.py, forward", weights_activations, keep_unweighted_activation},
    {"a clamped product is copied", in(Piece::mixture), "experts of a gated GELU with --activation-func-clamp-value",
     "the first product, clamped", "storage type", "megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl",
     timed::clamps_products, keep_clamped_product},
    {"the table's gradient is made whole", kEmbeddings, "embedding", "weight gradient", "storage type",
     "ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda", always, take_embedding_gradient},
    {"the loss works on an fp32 copy of the logits", in(Piece::loss), "cross-entropy", "logits", "fp32",
     "megatron/core/tensor_parallel/cross_entropy.py; megatron/core/fusions/fused_cross_entropy.py", copies_logits, copy_logits},
    {"autograd gets a weight gradient", in(Piece::loss), "output layer", "weight gradient, empty with gradient accumulation fusion",
     "storage type", "megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward", always,
     take_output_weight_gradient},
    {"the gather buffer is made once", in(Piece::loss), "output layer", "gathered rows", "storage type",
     "megatron/core/utils.py, GlobalMemoryBuffer", gathers_rows, drop_gathered_rows},
    {"inputs of modules wait on the host", in(Piece::attention) | in(Piece::mixture), "modules of --offload-modules",
     "what they keep for their backwards", "as kept", "megatron/core/pipeline_parallel/fine_grained_activation_offload.py", host::offloads,
     host::leave_inputs},
    {"experts' rows wait in pages", in(Piece::mixture), "fused experts under --moe-paged-stash", "what they keep for their backwards",
     "as kept", "megatron/core/transformer/moe/paged_stash.py", buffers::stashes_rows, buffers::stash_rows},
    {"weight gradients are put off", kHalves, "linear layers under --delay-wgrad-compute", "inputs, and gradients of outputs", "as kept",
     "megatron/core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run", weights::puts_off_gradients,
     weights::keep_operands},
    // What changes steps alone; those of tp behind all that removes steps between a product and its collective, fp8 last.
    {"the loss passes over the logits in fp32", in(Piece::loss), "cross-entropy", "kernels", kNoBytes,
     "megatron/core/tensor_parallel/cross_entropy.py; megatron/core/fusions/fused_cross_entropy.py", always, timed::lose_in_fp32},
    {"lengths of streams are taken by the product", kHalves, "hyper-connections with --use-fused-mhc", "kernels", kNoBytes,
     "megatron/core/fusions/fused_mhc_kernels.py at d48bd6be, fused_proj_rms_compute_h", streams::mixed_at_once,
     streams::measure_with_product},
    {"queries, keys and values are views", in(Piece::attention), "packed projection", "copies", kNoBytes,
     "megatron/core/transformer/attention.py, get_query_key_value_tensors", timed::splits_by_views, timed::split_by_views},
    {"experts' biases are added one by one", in(Piece::mixture), "second linear layer of experts with biases", "kernels", kNoBytes,
     "megatron/core/transformer/moe/experts.py, TEGroupedMLP._apply_bias", timed::adds_expert_biases, timed::add_expert_biases},
    {"biases are added by other kernels", kHalves, "linear layers", "kernels", kNoBytes,
     "transformer_engine/pytorch/cpp_extensions/gemm.py; megatron/core/fusions/fused_bias_dropout.py", always, timed::fuse_biases},
    {"exchanged heads are kept", in(Piece::attention), "attention with all-to-all context parallelism", "exchanges of the backward",
     kNoBytes, "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A",
     timed::keeps_exchanged_heads, timed::keep_exchanged_heads},
    {"the ring's backward sends beside attention", in(Piece::attention), "attention with ring context parallelism", "messages", kNoBytes,
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVP2P", timed::passes_keys_around,
     timed::pass_gradients_beside},
    {"gathered keys are attended to at once", in(Piece::attention), "attention with gathered keys", "kernels", kNoBytes,
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVAllGather", timed::gathers_keys,
     timed::attend_to_gathered},
    {"all attention is fused", in(Piece::attention), "core attention", "kernel", kNoBytes,
     "transformer_engine/pytorch/attention/dot_product_attention/utils.py, get_attention_backend", timed::fuses_attention,
     timed::fuse_attention},
    {"the delta rule runs in chunks", in(Piece::recurrent), "gated delta net", "kernels", kNoBytes,
     "fla/ops/gated_delta_rule/chunk.py, chunk_gated_delta_rule_fwd and _bwd", recurrent::applies_delta_rule,
     recurrent::multiply_by_chunks},
    {"PyTorch's softmax", in(Piece::attention), "unfused core attention", "passes over the scores", kNoBytes,
     "megatron/core/fusions/fused_softmax.py, is_kernel_available", timed::softmax_by_pytorch, timed::pass_scores_through_pytorch},
    {"scores are dropped", in(Piece::attention), "unfused core attention", "passes over the scores", kNoBytes,
     "megatron/core/transformer/dot_product_attention.py", timed::drops_scores, timed::drop_scores},
    {"a recomputed MLP runs whole", in(Piece::dense), "MLP under recompute", "second product", kNoBytes,
     "megatron/core/transformer/transformer_layer.py, recompute_mlp", timed::recomputes_mlp, timed::recompute_second_product},
    {"a token goes once to a node", in(Piece::mixture), "DeepEP and HybridEP", "exchanged rows, and their permutation", kNoBytes,
     "deepseek-ai/DeepEP, README.md; megatron/core/transformer/moe/token_dispatcher.py, _DeepepManager and _HybridEPManager",
     timed::sends_tokens_once, timed::send_tokens_once},
    {"probabilities move with their rows", in(Piece::mixture), "all-to-all and all-gather dispatchers", "permuted probabilities", kNoBytes,
     "megatron/core/transformer/moe/moe_utils.py, permute and sort_chunks_by_idxs", timed::exchanges_copies,
     timed::move_probabilities_with_rows},
    {"every rank gets all tokens", in(Piece::mixture), "all-gather dispatcher", "exchanged rows", kNoBytes,
     "megatron/core/transformer/moe/token_dispatcher.py, MoEAllGatherTokenDispatcher", timed::gathers_tokens, timed::gather_tokens},
    {"rows are sorted by expert in place", in(Piece::mixture), "all-to-all dispatcher without ep", "rows of experts", kNoBytes,
     "megatron/core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher", timed::sorts_in_place, timed::sort_in_place},
    {"experts run one after the other", in(Piece::mixture), "experts without grouped products", "products", kNoBytes,
     "megatron/core/transformer/moe/experts.py, SequentialMLP", timed::multiplies_experts_one_by_one, timed::multiply_experts_one_by_one},
    {"tp runs beside products", kHalves | in(Piece::loss), "column-parallel layers", "second gather and reduction", kNoBytes,
     "megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication", gathers_or_reduces,
     timed::start_beside_products},
    {"tp runs in chunks", kHalves, "linear layers under --tp-comm-overlap", "gathers and reductions", kNoBytes,
     "transformer_engine/pytorch/module/base.py, initialize_ub", timed::overlaps_tp, timed::overlap_in_chunks},
    {"linear layers multiply in fp8", kHalves | in(Piece::mtp_front), "linear layers", "products, and kernels that quantise", kNoBytes,
     "transformer_engine/pytorch/module/linear.py, _Linear.forward", fp8::products, timed::multiply_in_fp8},
    {"the output layer multiplies in fp8", in(Piece::loss), "output layer under --fp8-output-proj", "products, and kernels that quantise",
     kNoBytes, "megatron/core/fp8_utils.py, is_mxfp8_output_proj_active", timed::multiplies_output_in_fp8, timed::multiply_in_fp8},
    {"attention runs over fp8 copies", in(Piece::attention), "core attention under --fp8-dot-product-attention",
     "attention, and kernels that quantise", kNoBytes,
     "transformer_engine/pytorch/attention/dot_product_attention/backends.py, FusedAttnFunc", timed::attends_in_fp8, timed::attend_in_fp8},
    {"experts' activations are fused with their products", in(Piece::mixture), "experts under --use-transformer-engine-op-fuser",
     "activation, and its quantisation", kNoBytes, "transformer_engine/pytorch/ops/fused/grouped_mlp.py", timed::fuses_expert_activations,
     timed::fuse_expert_activations},
    {"rows of quantised experts are padded", in(Piece::mixture), "grouped linear layers behind the all-to-all dispatcher", "copies of rows",
     kNoBytes, "megatron/core/transformer/moe/experts.py, quantization_padding; transformer_engine/pytorch/module/fp8_padding.py",
     timed::pads_expert_rows, timed::pad_expert_rows},
    {"experts are quantised one by one", in(Piece::mixture), "grouped linear layers", "launches", kNoBytes,
     "transformer_engine/pytorch/module/grouped_linear.py; transformer_engine/common/gemm/cublaslt_gemm.cu", timed::quantises_by_expert,
     timed::quantise_by_expert},
};

}  // namespace

std::span<const EnginePolicy> megatron_policies() {
    return kPolicies;
}

void apply_fp8_rates(PieceTrace& trace, const PolicyContext& context) {
    if (!fp8::products(context)) return;
    for (PieceRange& forward : trace.pieces) {
        const unsigned linear = kHalves | in(Piece::mtp_front);
        if (forward.backward || (linear & in(forward.piece)) == 0) continue;
        LayerEditor editor(trace, forward, trace.range(forward.piece, true, forward.piece == Piece::mtp_front ? forward.layer : -1));
        timed::multiply_in_fp8(editor, context);
    }
}

void apply_megatron_policies(PieceTrace& trace, const PolicyContext& context) {
    LayerEditor::spread(trace);
    for (PieceRange& forward : trace.pieces) {
        // The last of several layers counts, and each depth of predictions.
        const bool predicts = forward.piece >= Piece::mtp_embedding;
        if (forward.backward || (!predicts && &trace.range(forward.piece, false) != &forward)) continue;
        LayerEditor editor(trace, forward, trace.range(forward.piece, true, predicts ? forward.layer : -1));
        for (const EnginePolicy& policy : kPolicies) {
            if (policy.dtype == kNoBytes && !context.sizes.keep_steps) continue;
            if ((policy.pieces & in(forward.piece)) != 0 && policy.holds(context)) policy.apply(editor, context);
        }
    }
}

}  // namespace mgplan::simulator
