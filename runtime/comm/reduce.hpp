#pragma once
// Adding up the ranks' numbers in host memory, for the transports.

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/communicator/communicator.hpp"
#include "plan/training/numeric_types.hpp"

namespace mgplan::runtime {

/// Returns true if numbers of this type can be reduced so: fp64, fp32, bf16 and int32, the last one not to an average.
[[nodiscard]] bool reducible(Dtype dtype, model::Reduction reduction);

/// Reduces elements [begin, end) of the inputs, one per rank, in the order of the list, and writes the result to the
/// same elements of each output: the same bits on every call, however the whole is cut into ranges. fp64 adds in fp64,
/// fp32 in fp32, bf16 in fp32 with one rounding at the end; int32 wraps around. An average is the sum divided by the
/// number of inputs; a maximum is NaN where any input is. An output may be one of the inputs. `reducible` holds.
void reduce_in_order(Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                     std::int64_t begin, std::int64_t end);

/// bf16 numbers to fp32 and back (to the nearest, ties to even; NaN stays NaN).
void widen_bf16(const std::uint16_t* from, float* to, std::int64_t count);
void narrow_to_bf16(const float* from, std::uint16_t* to, std::int64_t count);

}  // namespace mgplan::runtime
