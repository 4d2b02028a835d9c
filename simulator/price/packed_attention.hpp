#pragma once
// Attention of sequences that documents fill: each document attends to itself alone, and ranks get documents of other lengths.
//
// Documents come one after the other, each length as often as the histogram says; one that is longer than a sequence counts as whole
// sequences and a rest. A document of l of s places has (l/s)^2 of a whole sequence's causal pairs. Over the sequences of a rank's step
// their sum has the mean and the variance of a renewal reward process (W. Feller, An Introduction to Probability Theory, vol. 2, XI.5):
// mean E[l^2] / (E[l] s), variance of one sequence Var(l^2 - E[l^2]/E[l] l) / (E[l] s^3). The busiest of n ranks is
// Phi^-1((n - 3/8) / (n + 1/4)) deviations above the mean (G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958). What
// pipelines lose to the longest microbatches beside that, and where documents are cut at the ends of sequences, is not in it.

#include <cstdint>

#include "plan/training/batch_spec.hpp"

namespace mgplan::simulator {

struct PackedAttention {
    double share = 1;         ///< of the pairs of a whole sequence, in the mean
    double deviation = 0;     ///< of one sequence's share
    std::int64_t length = 0;  ///< places of the document that a token is in, in the mean; 0: not packed
};
[[nodiscard]] PackedAttention packed_attention(const BatchSpec& batch);

/// Share of the busiest of `ranks` data-parallel ranks, each with its part of the batch's sequences. At most 1.
[[nodiscard]] double busiest_share(const PackedAttention& attention, const BatchSpec& batch, std::int64_t ranks);

}  // namespace mgplan::simulator
