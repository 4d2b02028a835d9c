#pragma once
// Rules for the algorithm of a product: whether it is chosen by timing or taken from a product of nearly the size, and by which times.

#include <cstddef>
#include <optional>
#include <span>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Most of the library's candidates that are timed.
inline constexpr int kMostCandidates = 8;

/// Fewest FLOPs of a call that is timed, some 20 µs of a Hopper card: below, clock and launches are too large a share of a reading.
inline constexpr double kLeastTimedFlops = 1e10;

/// Another candidate must be faster than the library's first by more than this share: the spread of readings of one kernel is no reason
/// to change the order of a run's sums.
inline constexpr double kLeastGain = 0.01;

/// Returns true if a product may be timed and is worth it: its algorithm is `timed`, its numbers are narrow (fp32 and fp64 runs are the
/// same to the bit), and it is large.
[[nodiscard]] bool worth_timing(const Gemm& gemm);

/// The product whose algorithm serves all of nearly its size (ProductAlgorithm::near): the number of rows rounded up to 4, 5, 6, 7 or 8
/// times a power of two. Its addresses are those of `gemm`, which may hold less.
[[nodiscard]] Gemm of_near_size(const Gemm& gemm);

/// Returns the candidate to take. `seconds`: in the library's order, none for those that failed. 0, the library's first, if all failed.
[[nodiscard]] std::size_t fastest(std::span<const std::optional<double>> seconds);

}  // namespace mgplan::runtime::cuda
