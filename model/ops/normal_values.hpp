#pragma once
// Random values by a counter: the values of an array depend neither on how it is divided nor on the device that makes them.

#include <cstdint>

#include "model/device/tensor.hpp"

namespace mgplan::model {

struct NormalDraw {
    std::uint64_t key = 0;
    std::uint64_t first = 0;  ///< counter of the first value
    std::int64_t pitch = 0;   ///< counters from row to row; from column to column it is one
    double deviation = 1;
};

/// x (rows, columns) of any float type: value (i, j) is deviation · z, rounded, where z is the standard normal value of key and counter
/// first + i · pitch + j (Box and Muller, 1958), drawn from two hashes of these (SplitMix64's, philox.hpp). Made in fp64, so devices differ
/// by no more than what their logarithms and cosines do.
void fill_normal(const Tensor& x, const NormalDraw& draw);

}  // namespace mgplan::model
