#pragma once
// Choice of the keys of sparse attention (DeepSeek-V3.2-Exp, section 2.1, equations 1 and 2): a score of every key before a query, and
// the places of the largest. Implemented for shapes alone: no device here computes them (features_not_computed()).

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Scores of the keys of `batch` sequences, equally many for each: q (rows, heads, width), k (keys of all sequences, width), weights
/// (rows, heads) -> (rows, keys of a sequence) fp32, the sum over heads of weight · relu(q · k). Half of the pairs are computed, as causal
/// attention computes half of its own.
[[nodiscard]] Tensor index_scores(const Tensor& q, const Tensor& k, const Tensor& weights, std::int64_t batch);

/// Places of the `count` largest scores of each row, or of all where there are fewer: (rows, at most count) int32.
[[nodiscard]] Tensor largest_places(const Tensor& scores, std::int64_t count);

}  // namespace mgplan::model
