#pragma once
// Computation and communication of Megatron-LM with Transformer Engine that differ from mgplan's own layers: policies of the table in
// engine_policies.cpp that change a piece's steps. Some are part of a policy that also changes tensors, which calls them.

#include <cstdint>

#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/layer_editor.hpp"

namespace mgplan::simulator::timed {

// Conditions.
[[nodiscard]] bool splits_by_views(const PolicyContext& context);
[[nodiscard]] bool reduces_behind_products(const PolicyContext& context);
[[nodiscard]] bool overlaps_tp(const PolicyContext& context);
[[nodiscard]] bool keeps_exchanged_heads(const PolicyContext& context);
[[nodiscard]] bool passes_keys_around(const PolicyContext& context);
[[nodiscard]] bool gathers_keys(const PolicyContext& context);
[[nodiscard]] bool sorts_in_place(const PolicyContext& context);
[[nodiscard]] bool fuses_attention(const PolicyContext& context);
[[nodiscard]] bool softmax_by_pytorch(const PolicyContext& context);
[[nodiscard]] bool drops_scores(const PolicyContext& context);
[[nodiscard]] bool recomputes_mlp(const PolicyContext& context);
[[nodiscard]] bool sends_tokens_once(const PolicyContext& context);
[[nodiscard]] bool exchanges_copies(const PolicyContext& context);
[[nodiscard]] bool sums_copies_by_pytorch(const PolicyContext& context);
[[nodiscard]] bool gathers_tokens(const PolicyContext& context);
[[nodiscard]] bool multiplies_experts_one_by_one(const PolicyContext& context);
[[nodiscard]] bool adds_expert_biases(const PolicyContext& context);
[[nodiscard]] bool clamps_products(const PolicyContext& context);
[[nodiscard]] bool fuses_expert_activations(const PolicyContext& context);
[[nodiscard]] bool pads_expert_rows(const PolicyContext& context);
[[nodiscard]] bool quantises_by_expert(const PolicyContext& context);
[[nodiscard]] bool attends_in_fp8(const PolicyContext& context);
[[nodiscard]] bool multiplies_output_in_fp8(const PolicyContext& context);

/// Multiprocessors that a dispatcher's kernels occupy: as configured, else DeepEP's 20 (deep_ep/buffers/legacy.py, num_sms) and HybridEP's
/// 24 (csrc/hybrid_ep/config.cuh).
[[nodiscard]] std::int64_t dispatcher_multiprocessors(TokenDispatcher dispatcher, const MegatronSwitches& switches);

/// Queries, keys and values are views of the packed projection, and their gradients are joined by one kernel.
void split_by_views(LayerEditor& layer, const PolicyContext& context);
/// Biases are added, and their gradients summed, in the GEMMs' own kernels or those after them, except where these are not fused.
void fuse_biases(LayerEditor& layer, const PolicyContext& context);
/// A column-parallel layer's input gradient is reduced after the weight gradient is computed, not concurrently.
void reduce_behind_products(LayerEditor& layer, const PolicyContext& context);
/// Chunks of a gather or a reduction overlap with chunks of the GEMM next to it.
void overlap_in_chunks(LayerEditor& layer, const PolicyContext& context);
/// Tensors that all-to-all context parallelism exchanged in the forward are kept for the backward.
void keep_exchanged_heads(LayerEditor& layer, const PolicyContext& context);
/// The ring's backward sends keys, values and the gradients of the previous part during a part's attention.
void pass_gradients_beside(LayerEditor& layer, const PolicyContext& context);
/// A rank's queries attend to all gathered keys in one call.
void attend_to_gathered(LayerEditor& layer, const PolicyContext& context);
/// FlashAttention and cuDNN support windows, and together more sizes than mgplan's own device uses of cuDNN.
void fuse_attention(LayerEditor& layer, const PolicyContext& context);
/// Scores that the fused softmax does not support pass through PyTorch's kernels one by one.
void pass_scores_through_pytorch(LayerEditor& layer, const PolicyContext& context);
/// Dropout of scores: a mask is drawn, kept and read; fused attention draws it in the forward and again in the backward.
void drop_scores(LayerEditor& layer, const PolicyContext& context);
/// A checkpoint around the MLP also recomputes its second GEMM.
void recompute_second_product(LayerEditor& layer, const PolicyContext& context);
/// DeepEP and HybridEP take tokens without copies, and one kernel sends everything that belongs to a token.
void send_tokens_once(LayerEditor& layer, const PolicyContext& context);
/// The probabilities of copies are permuted and sorted by the same kernels as their rows.
void move_probabilities_with_rows(LayerEditor& layer, const PolicyContext& context);
/// Without --moe-permute-fusion PyTorch adds the copies of a token value by value, atomically.
void sum_copies_by_pytorch(LayerEditor& layer, const PolicyContext& context);
/// Every rank of an ep group receives all of its tokens.
void gather_tokens(LayerEditor& layer, const PolicyContext& context);
void multiply_experts_one_by_one(LayerEditor& layer, const PolicyContext& context);
/// The second GEMM's biases, times the tokens' probabilities, are added expert by expert in fp32.
void add_expert_biases(LayerEditor& layer, const PolicyContext& context);
/// Experts' activations and their quantisation are fused with the GEMMs, forward and backward.
void fuse_expert_activations(LayerEditor& layer, const PolicyContext& context);
/// Tokens of experts are copied to aligned rows for quantised GEMMs, and results back.
void pad_expert_rows(LayerEditor& layer, const PolicyContext& context);
/// Each expert's tokens are quantised separately, their scales reordered for the GEMM, and a GEMM launched for each.
void quantise_by_expert(LayerEditor& layer, const PolicyContext& context);
/// Received tokens are sorted by expert even if the rank received them only from itself.
void sort_in_place(LayerEditor& layer, const PolicyContext& context);

// Parts of policies that also change tensors.

/// Router: scores, choices and tables of all experts in fp32, kernel by kernel.
void route_by_pytorch(LayerEditor& layer, const PolicyContext& context);
/// The halves of the experts' first GEMM result are clamped and joined by separate kernels before a gated GELU.
void clamp_products(LayerEditor& layer, const PolicyContext& context);
/// Without gradient accumulation fusion a hook adds each weight's gradient to the main gradient, which a GEMM adds to otherwise.
[[nodiscard]] bool adds_gradients_apart(const PolicyContext& context);
void add_gradients_apart(LayerEditor& layer, const PolicyContext& context);

/// True if PyTorch's element-wise kernels compute the activation of gated experts.
[[nodiscard]] bool activates_experts_by_pytorch(const PolicyContext& context);
/// A gated activation by PyTorch: one half, and the product of both; of experts times their probabilities.
void activate_by_pytorch(LayerEditor& layer, const PolicyContext& context);

/// Without rope fusion PyTorch's element-wise kernels turn queries and keys.
[[nodiscard]] bool turns_by_pytorch(const PolicyContext& context);
void turn_by_pytorch(LayerEditor& layer, const PolicyContext& context);

/// Embedding: creates a table of zeros, adds the tokens' rows, and adds the whole table to the gradient buffer.
void make_table_gradient(LayerEditor& layer, const PolicyContext& context);
/// Loss: over an fp32 copy of the logits, or compiled to two passes over them.
void lose_in_fp32(LayerEditor& head, const PolicyContext& context);
/// Core attention over fp8 copies of queries, keys and values.
void attend_in_fp8(LayerEditor& layer, const PolicyContext& context);
/// fp8 GEMMs of linear layers, the kernels that quantise their operands, and gathers of quantised tensors.
void multiply_in_fp8(LayerEditor& layer, const PolicyContext& context);

}  // namespace mgplan::simulator::timed
