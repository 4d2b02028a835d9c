#pragma once
// The steps of a vocab-parallel cross-entropy; all-reduces of one value per row come between them
// (Megatron-core tensor_parallel/cross_entropy.py).

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// The vocabulary rows [first, first + valid) that this rank's logit columns stand for; further columns are padding and
/// count as minus infinity.
struct VocabularyShard {
    std::int64_t first = 0;
    std::int64_t valid = 0;
};

/// Largest valid logit of each row, fp32 (fp64 for fp64): (rows). -inf where the shard has no valid column.
[[nodiscard]] Tensor row_maximum(const Tensor& logits, const VocabularyShard& shard);

struct SoftmaxSums {
    Tensor exponentials;  ///< (rows): sum of exp(logit - maximum) over the valid columns
    Tensor target;        ///< (rows): logit - maximum of the target, 0 where it lies in another shard
};
/// logits (rows, columns), targets (rows) int32, maximum over all shards.
[[nodiscard]] SoftmaxSums softmax_sums(const Tensor& logits, const Tensor& targets, const Tensor& maximum, const VocabularyShard& shard);

/// loss (rows) = log(sum of exponentials) - target, after both were summed over the shards; 0 where the id in `targets` is
/// negative: such a row has nothing to predict.
[[nodiscard]] Tensor token_losses(const SoftmaxSums& sums, const Tensor& targets);
/// sums[place] += the sum of a (rows) tensor of losses; sums (n) fp64. On the device, so that the host need not wait for the pass.
void add_sum_of_losses(const Tensor& losses, const Tensor& sums, std::int64_t place);

/// Overwrites the logits with d_loss · (softmax - one_hot(target)); padding columns, and rows with a negative target, become 0.
/// d_loss is one factor for all rows. With a soft cap (> 0), which the logits went through, the gradient is that in front of it.
void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& maximum, const Tensor& exponentials,
                            const VocabularyShard& shard, double d_loss, double soft_cap = 0);

}  // namespace mgplan::model
