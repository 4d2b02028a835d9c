#include "simulator/piece/engine_policies.hpp"

#include "simulator/piece/expert_buffer_policies.hpp"
#include "simulator/piece/fp8_policies.hpp"
#include "simulator/piece/frozen_weight_policies.hpp"
#include "simulator/piece/kept_policies.hpp"
#include "simulator/piece/layer_editor.hpp"
#include "simulator/piece/offload_policies.hpp"
#include "simulator/piece/recurrent_policies.hpp"
#include "simulator/piece/stream_policies.hpp"
#include "simulator/piece/time_policies.hpp"
#include "simulator/piece/weight_gradient_policies.hpp"

namespace mgplan::simulator {
namespace {

bool always(const PolicyContext& /*context*/) {
    return true;
}

constexpr unsigned in(Piece piece) {
    return 1U << static_cast<unsigned>(piece);
}

constexpr unsigned kEmbeddings = in(Piece::embedding) | in(Piece::mtp_embedding);
constexpr unsigned kHalves = in(Piece::attention) | in(Piece::recurrent) | in(Piece::dense) | in(Piece::mixture);

constexpr std::string_view kNoBytes = "time alone";

constexpr EnginePolicy kPolicies[] = {
    {"frozen weights are unpacked for each product", in(Piece::attention) | in(Piece::dense), "linear layers with --lora base=nf4",
     "weight, as long as the largest of the half", "storage type", "bitsandbytes/autograd/_functions.py, MatMul4Bit", frozen::packs,
     frozen::hold_unpacked},
    // Under fp8; before all policies that drop the GEMMs' workspaces.
    {"gathered rows travel in fp8", kHalves, "linear layers with sequence parallelism", "gathered inputs and output gradients",
     "fp8 and scales", "transformer_engine/pytorch/distributed.py, gather_along_first_dim", fp8::keeps_operands, fp8::gather_quantised},
    {"gradients are quantised for both products", kHalves, "linear layers", "output gradient, along rows and along columns",
     "fp8 and scales", "transformer_engine/pytorch/module/base.py, grad_output_preprocess", fp8::keeps_operands, fp8::quantise_gradients},
    {"fused norms keep their output in fp8", in(Piece::attention) | in(Piece::dense), "norm with the linear layer behind it", "norm output",
     "fp8 and scales", "transformer_engine/pytorch/module/layernorm_linear.py, _LayerNormLinear.forward", fp8::keeps_operands,
     fp8::keep_normed_inputs},
    {"linear layers keep their input in fp8", in(Piece::attention) | in(Piece::dense) | in(Piece::mixture),
     "second linear layer of MLPs and shared experts; down projections of latent attention; first linear layer of shared experts under "
     "delayed scaling",
     "input", "fp8 and scales",
     "transformer_engine/pytorch/module/linear.py, _Linear.forward; megatron/core/transformer/moe/shared_experts.py", fp8::keeps_operands,
     fp8::keep_linear_inputs},
    {"linear layers keep their input in fp8", in(Piece::mtp_front), "projection of multi-token prediction", "joined embeddings and states",
     "fp8 and scales", "transformer_engine/pytorch/module/linear.py, _Linear.forward", fp8::keeps_operands, fp8::keep_joined_inputs},
    {"experts keep their rows in fp8", in(Piece::mixture), "grouped linear layers", "dispatched rows and weighted activation",
     "fp8 and scales", "transformer_engine/pytorch/module/grouped_linear.py, _GroupedLinear.forward", fp8::keeps_operands,
     fp8::keep_expert_inputs},
    {"the output projection keeps a copy in fp8", in(Piece::attention), "output projection under delayed scaling", "core attention output",
     "fp8 and scale", "megatron/core/transformer/attention.py, set_save_original_input", fp8::copies_core_output, fp8::keep_core_output},
    {"products keep their workspaces", kHalves | in(Piece::norm) | in(Piece::mtp_front) | in(Piece::mtp_end), "linear layers", "workspace",
     "bytes", "ATen/cuda/CublasHandlePool.cpp; transformer_engine/pytorch/module/base.py, get_workspace", always,
     kept::drop_product_workspaces},
    {"products keep their workspaces", in(Piece::loss), "output layer", "workspace", "bytes", "ATen/cuda/CublasHandlePool.cpp", always,
     kept::drop_product_workspaces},
    {"values are a view of the packed projection", in(Piece::attention), "attention without Transformer Engine", "packed q, k, v",
     "storage type", "megatron/core/transformer/attention.py, get_query_key_value_tensors", kept::without_engine,
     kept::keep_packed_projection},
    {"values are a view of the key and value projection", in(Piece::attention), "latent attention", "projected k and v", "storage type",
     "megatron/core/transformer/multi_latent_attention.py, get_query_key_value_tensors", kept::latent, kept::keep_key_value_projection},
    {"the output by heads stays beside the output by tokens", in(Piece::attention), "attention with all-to-all context parallelism",
     "core attention output", "storage type",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, AttnFuncWithCPAndQKVOA2A", kept::exchanges_heads,
     kept::keep_output_by_heads},
    {"the output by batch stays beside the output by sequence", in(Piece::attention), "attention by the flash-attn package",
     "core attention output", "storage type",
     "transformer_engine/pytorch/attention/dot_product_attention/backends.py, FlashAttention.forward", kept::flash_package,
     kept::keep_output_by_batch},
    {"the score matrix is kept", in(Piece::attention), "unfused core attention", "scores; with dropout mask and dropped scores",
     "storage type, mask 1 byte", "arXiv 2205.05198, section 4.1; megatron/core/transformer/dot_product_attention.py", kept::unfused,
     kept::keep_scores},
    {"scans are fused", in(Piece::recurrent), "layers with a state along the sequence",
     "workspaces of scans and delta rules; states of a delta rule by chunk and by place", "bytes",
     "mamba_ssm/ops/triton/ssd_combined.py, _mamba_chunk_scan_combined_fwd; fla/ops/gated_delta_rule/chunk.py", always,
     recurrent::fuse_scans},
    {"the gated output of the scan is kept", in(Piece::recurrent), "Mamba-2", "scan output times silu(z)", "storage type",
     "megatron/core/ssm/mamba_mixer.py, _ssm_training; mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn",
     recurrent::scans, recurrent::keep_gated_output},
    {"unit keys and the chunks' matrices are kept", in(Piece::recurrent), "gated delta net",
     "queries and keys over their lengths for each value head, summed decays, strengths, inverted matrices", "storage type and fp32",
     "megatron/core/ssm/gated_delta_net/gdn.py; fla/ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction",
     recurrent::applies_delta_rule, recurrent::keep_unit_keys},
    {"dropout keeps its mask", kHalves, "residual additions", "mask", "1 byte",
     "megatron/core/fusions/fused_bias_dropout.py; ATen/native/cuda/Dropout.cu", kept::drops, kept::keep_dropout_masks},
    {"dropout keeps its mask", kEmbeddings, "embedding", "mask", "1 byte", "ATen/native/cuda/Dropout.cu", kept::drops,
     kept::keep_embedding_mask},
    {"residual streams are mixed kernel by kernel", kHalves, "hyper-connections without --use-fused-mhc",
     "mixed streams, the half's output for each stream, gradients", "storage type", "megatron/core/transformer/hyper_connection.py",
     streams::mixed_by_kernels, streams::mix_by_kernels},
    {"maps of streams are computed in fp32", kHalves, "hyper-connections of branch dev without --use-fused-mhc", "streams", "fp32",
     "megatron/core/transformer/hyper_connection.py at d48bd6be, _projection_and_get_norm", streams::in_fp32, streams::keep_fp32_streams},
    {"the routing is a table of all experts", in(Piece::mixture), "router", "probability and choice of every token and expert",
     "fp32, 1 byte", "megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function", always, kept::keep_dense_routing},
    {"the unweighted activation is kept", in(Piece::mixture), "experts", "activation before its probability; of gated ones the gate's too",
     "storage type", "megatron/core/transformer/moe/experts.py, forward", kept::weights_activations, kept::keep_unweighted_activation},
    {"the activated half is kept", in(Piece::dense), "gated MLP under --no-bias-swiglu-fusion", "half of the first product, activated",
     "storage type", "megatron/core/transformer/mlp.py, forward", kept::activates_halves_apart, kept::keep_activated_half},
    {"a clamped product is copied", in(Piece::mixture), "experts of a gated GELU with --activation-func-clamp-value",
     "the first product, clamped", "storage type", "megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl",
     timed::clamps_products, kept::keep_clamped_product},
    {"the table's gradient is made whole", kEmbeddings, "embedding", "weight gradient", "storage type",
     "ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda", kept::trains_vocabulary, kept::take_embedding_gradient},
    {"the loss works on an fp32 copy of the logits", in(Piece::loss), "cross-entropy", "logits", "fp32",
     "megatron/core/tensor_parallel/cross_entropy.py; megatron/core/fusions/fused_cross_entropy.py", kept::copies_logits,
     kept::copy_logits},
    {"autograd gets a weight gradient", in(Piece::loss), "output layer", "weight gradient, empty with gradient accumulation fusion",
     "storage type", "megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward",
     kept::trains_vocabulary, kept::take_output_weight_gradient},
    {"the gather buffer is made once", in(Piece::loss), "output layer", "gathered rows", "storage type",
     "megatron/core/utils.py, GlobalMemoryBuffer", kept::gathers_rows, kept::drop_gathered_rows},
    {"inputs of modules wait on the host", in(Piece::attention) | in(Piece::mixture), "modules of --offload-modules",
     "what they keep for their backwards", "as kept", "megatron/core/pipeline_parallel/fine_grained_activation_offload.py", host::offloads,
     host::leave_inputs},
    {"experts' rows wait in pages", in(Piece::mixture), "fused experts under --moe-paged-stash", "what they keep for their backwards",
     "as kept", "megatron/core/transformer/moe/paged_stash.py", buffers::stashes_rows, buffers::stash_rows},
    {"weight gradients are put off", kHalves, "linear layers under --delay-wgrad-compute", "inputs, and gradients of outputs", "as kept",
     "megatron/core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run", weights::puts_off_gradients,
     weights::keep_operands},
    // Policies that change only steps; overlap in chunks comes after all that remove steps between a GEMM and its collective, fp8 last.
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
     "transformer_engine/pytorch/cpp_extensions/gemm.py; megatron/core/fusions/fused_bias_dropout.py; megatron/core/transformer/mlp.py",
     always, timed::fuse_biases},
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
    {"gates are exchanged too", in(Piece::recurrent), "Mamba-2 and gated delta nets with context parallelism", "exchanges of heads",
     kNoBytes, "megatron/core/ssm/mamba_context_parallel.py, pre_conv_ssm; megatron/core/ssm/gated_delta_net/common.py, a2a_cp_to_hp",
     recurrent::exchanges_gates, recurrent::exchange_gates},
    {"PyTorch's softmax", in(Piece::attention), "unfused core attention", "passes over the scores", kNoBytes,
     "megatron/core/fusions/fused_softmax.py, is_kernel_available", timed::softmax_by_pytorch, timed::pass_scores_through_pytorch},
    {"scores are dropped", in(Piece::attention), "core attention with dropout", "passes over the scores; fused: instructions", kNoBytes,
     "megatron/core/transformer/dot_product_attention.py; flash_attn/cute", timed::drops_scores, timed::drop_scores},
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
    {"PyTorch sums the copies of tokens", in(Piece::mixture), "experts without --moe-permute-fusion", "kernels", kNoBytes,
     "megatron/core/transformer/moe/moe_utils.py, permute and unpermute", timed::sums_copies_by_pytorch, timed::sum_copies_by_pytorch},
    {"experts run one after the other", in(Piece::mixture), "experts without grouped products", "products", kNoBytes,
     "megatron/core/transformer/moe/experts.py, SequentialMLP", timed::multiplies_experts_one_by_one, timed::multiply_experts_one_by_one},
    {"tp reduces behind products", kHalves | in(Piece::loss) | in(Piece::mtp_front),
     "column-parallel layers under --no-async-tensor-model-parallel-allreduce", "reduction of the input's gradient", kNoBytes,
     "megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication", timed::reduces_behind_products,
     timed::reduce_behind_products},
    {"tp runs in chunks", kHalves, "linear layers under --tp-comm-overlap", "gathers and reductions", kNoBytes,
     "transformer_engine/pytorch/module/base.py, initialize_ub", timed::overlaps_tp, timed::overlap_in_chunks},
    {"frozen weights are unpacked for each product", in(Piece::attention) | in(Piece::dense), "linear layers with --lora base=nf4",
     "weight", kNoBytes, "bitsandbytes/autograd/_functions.py, MatMul4Bit", frozen::packs, frozen::unpack},
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
    {"PyTorch's kernels activate gated experts", in(Piece::mixture), "gated experts under --no-bias-swiglu-fusion", "kernels", kNoBytes,
     "megatron/core/transformer/moe/experts.py, forward; megatron/core/transformer/mlp.py, forward", timed::activates_experts_by_pytorch,
     timed::activate_by_pytorch},
    {"weight gradients are added by kernels of their own", kHalves | in(Piece::loss) | in(Piece::mtp_front),
     "linear layers under --no-gradient-accumulation-fusion", "kernels", kNoBytes,
     "megatron/core/distributed/distributed_data_parallel.py, _make_backward_post_hook", timed::adds_gradients_apart,
     timed::add_gradients_apart},
    {"PyTorch's kernels turn queries and keys", in(Piece::attention), "rotary embedding under --no-rope-fusion", "kernels", kNoBytes,
     "megatron/core/models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd", timed::turns_by_pytorch, timed::turn_by_pytorch},
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
