#pragma once
// Chooses experts for tokens, and sorts token copies by expert.

#include <vector>

#include "model/device/tensor.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::model {

struct Routing {
    Tensor experts;        ///< (rows, top_k) int32, by falling score; ties go to the lower expert
    Tensor probabilities;  ///< (rows, top_k) fp32 (fp64 for fp64): softmax over the chosen (softmax scores) or normalised sigmoid scores
    Tensor scores;         ///< (rows, experts), as probabilities: softmax or sigmoid of all logits; the backwards need them
};

/// Rules that choose experts, besides the scores; probabilities come from the scores alone.
struct ExpertChoice {
    /// Experts in equal groups, of which each row takes `group_top_k`: those with the largest sums of their top_k / group_top_k
    /// largest (at least 1), or of their `group_scores` largest; 0: none (DeepSeek-V2, arXiv 2405.04434 section 2.2.2; Megatron-LM
    /// moe_utils.py, group_limited_topk).
    std::int64_t groups = 0, group_top_k = 0;
    std::int64_t group_scores = 0;
    bool normalised = true;  ///< probabilities sum to 1 over the chosen; else they are the scores (--moe-router-pre-softmax)
    Tensor bias{};           ///< (experts) as probabilities, added before choosing (arXiv 2412.19437 section 2.1.2); may be undefined
    static constexpr std::int64_t most_groups = 64;
};

/// logits (rows, experts). softmax: top-k of the logits, softmax over the chosen ones (Mixtral, Megatron-LM's default);
/// sigmoid: top-k of sigmoid(logit), normalised to sum 1 unless top_k is 1 (DeepSeek-V3; Megatron-LM moe_utils.py,
/// topk_routing_with_score_function). balanced: whatever the logits, slot s of row r takes expert (r · top_k + s) mod
/// experts, so that all get equally many; the probabilities still come from the logits.
[[nodiscard]] Routing route(const Tensor& logits, std::int64_t top_k, RouterScore score, bool balanced = false,
                            const ExpertChoice& choice = {});
/// Gradient of the logits, in the type of the scores, from that of the probabilities (rows, top_k). normalised: as passed to route().
[[nodiscard]] Tensor route_backward(const Tensor& d_probabilities, const Routing& routing, RouterScore score, bool normalised = true);

/// A copy of routing.experts in which every expert keeps the `capacity` rows of highest probability (of equal ones the
/// upper); the other choices are -1 (Megatron-LM moe_utils.py, apply_router_token_dropping with policy "probs").
[[nodiscard]] Tensor keep_within_capacity(const Routing& routing, std::int64_t capacity);

/// Choices of each expert in a list of ids, (expert_count) int32; negative ids count for none.
[[nodiscard]] Tensor count_by_expert(const Tensor& experts, std::int64_t expert_count);
/// Adds them to `counts`.
void add_counts_by_expert(const Tensor& experts, const Tensor& counts);

/// Auxiliary load-balancing loss (Switch Transformer, arXiv 2101.03961, equation 4, with top_k; Megatron-LM moe_utils.py,
/// switch_load_balancing_loss_func): coefficient · experts / (rows² · top_k) · Σ_e copies_e · Σ_rows p_e, where p are the
/// scores of route(), sigmoid ones divided by their sum. `copies`, (experts) int32, and `rows` may span ranks, of which each
/// sums its own rows. Adds the loss to `total`, one fp64 value; the backward adds its gradient, times d_loss, to d_logits.
void auxiliary_loss(const Tensor& scores, RouterScore score, const Tensor& copies, std::int64_t rows, std::int64_t top_k,
                    double coefficient, const Tensor& total);
void auxiliary_loss_backward(const Tensor& scores, RouterScore score, const Tensor& copies, std::int64_t rows, std::int64_t top_k,
                             double coefficient, double d_loss, const Tensor& d_logits);

/// Token copies ordered by expert, then row, as dispatch sends them.
struct Permutation {
    Tensor source;  ///< (copies) int32: row · top_k + slot of each copy; -1: a row of zeros, to fill up
};
/// Negative ids are choices that were dropped: they get no copy. `counts`: of each expert, as count_by_expert() says; `copies`:
/// their sum, which is the number of ids where none was dropped, so that it need not be read from the device.
[[nodiscard]] Permutation sort_by_expert(const Tensor& experts, const Tensor& counts, std::int64_t copies);
/// The same with exactly `capacity` copies for each expert, the missing ones filled up; no expert has more choices.
[[nodiscard]] Permutation sort_and_pad(const Tensor& experts, std::int64_t expert_count, std::int64_t capacity);

/// (copies, width): rows of x by permutation.source / top_k.
[[nodiscard]] Tensor permute_rows(const Tensor& x, const Permutation& permutation, std::int64_t top_k);
/// The reverse: (rows, width), the sum of each row's copies in slot order.
[[nodiscard]] Tensor unpermute_rows(const Tensor& copies, const Permutation& permutation, std::int64_t rows, std::int64_t top_k);
/// (copies) the probabilities in permuted order, and their gradient back to (rows, top_k).
[[nodiscard]] Tensor permute_probabilities(const Tensor& probabilities, const Permutation& permutation);
[[nodiscard]] Tensor unpermute_probabilities(const Tensor& permuted, const Permutation& permutation, std::int64_t rows, std::int64_t top_k);

/// Rows in blocks of given sizes put into another order of the blocks: order[i] is the block that comes i-th. `blocks`: number of blocks
/// with rows, if the list stands for more blocks than it names, as it may on shapes.
[[nodiscard]] Tensor reorder_blocks(const Tensor& x, const std::vector<std::int64_t>& block_rows, const std::vector<std::int64_t>& order,
                                    std::int64_t blocks = 0);

}  // namespace mgplan::model
