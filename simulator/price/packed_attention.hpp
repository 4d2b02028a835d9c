#pragma once
// Attention of packed sequences: each document attends only to itself, and ranks receive documents of different lengths.
//
// Documents follow each other with the frequencies of the histogram; one that is longer than a sequence counts as whole sequences and a
// rest. A document of l out of s tokens has (l/s)^2 of a whole sequence's causal pairs. Over the sequences of a rank's step their sum has
// the mean and the variance of a renewal reward process (W. Feller, An Introduction to Probability Theory, vol. 2, XI.5): mean E[l^2] /
// (E[l] s), variance of one sequence Var(l^2 - E[l^2]/E[l] l) / (E[l] s^3). The busiest of n ranks is Phi^-1((n - 3/8) / (n + 1/4))
// deviations above the mean (G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958). Not modelled: further losses of
// pipelines to their longest microbatches, and documents split at the ends of sequences.

#include <cstdint>

#include "plan/training/batch_spec.hpp"

namespace mgplan::simulator {

struct PackedAttention {
    double share = 1;         ///< mean share of a whole sequence's causal pairs
    double deviation = 0;     ///< standard deviation of one sequence's share
    std::int64_t length = 0;  ///< mean length in tokens of the document that a token belongs to; 0: not packed
};
[[nodiscard]] PackedAttention packed_attention(const BatchSpec& batch);

/// Share of causal pairs on the busiest of `ranks` data-parallel ranks, each with its part of the batch. At most 1.
[[nodiscard]] double busiest_share(const PackedAttention& attention, const BatchSpec& batch, std::int64_t ranks);

}  // namespace mgplan::simulator
