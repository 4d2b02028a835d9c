#pragma once
// One walk through every op, for comparing number types and devices.

#include <string>
#include <utility>
#include <vector>

#include "tests/model/ops/support.hpp"

namespace mgplan::model {

/// Runs every op at odd sizes on the maker's device and type. Returns the results by name; temporaries are gone.
std::vector<std::pair<std::string, Tensor>> run_every_op(Maker& maker);

/// The same of casts to fp8, at odd sizes, and their products, at multiples of 16; codes as the int32 of their bits. For GPUs that have
/// fp8.
std::vector<std::pair<std::string, Tensor>> run_fp8_ops(Maker& maker);

/// The same with a scale for each block: vectors and squares of 128, or vectors of 32.
std::vector<std::pair<std::string, Tensor>> run_fp8_block_ops(Maker& maker, bool of_32);
/// Products of these whose sums are of fewer than 64 terms, which a library may have no algorithm for: all of those above have more.
std::vector<std::pair<std::string, Tensor>> run_short_fp8_block_ops(Maker& maker, bool of_32);

}  // namespace mgplan::model
