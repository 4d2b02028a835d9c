#pragma once
// Copies and sums of raw arrays in a device's memory, with which ranks inside one process exchange it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "plan/training/numeric_types.hpp"

namespace mgplan::model {

enum class Reduction : std::uint8_t { sum, average, maximum };

/// Used by one rank's thread for memory of any rank that shares the device. Addresses are those of tensors. Work is done
/// when finish() returns, not before.
class MemoryOperations {
public:
    virtual ~MemoryOperations() = default;
    /// `bytes` may be 0; the ranges do not overlap unless they are the same.
    virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
    /// As runtime's reduce_in_order: elements [begin, end) of all inputs, added in the order of the list, to every output.
    virtual void reduce(Dtype dtype, Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                        std::int64_t begin, std::int64_t end) = 0;
    virtual void finish() = 0;
};

}  // namespace mgplan::model
