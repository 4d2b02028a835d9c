#pragma once
#include <cstdint>

#include "plan/training/packed_lengths.hpp"

namespace mgplan {

/// One training step's input.
struct BatchSpec {
    std::int64_t global_batch = 0;  ///< sequences per step, over all ranks
    std::int64_t sequence = 0;      ///< tokens per sequence
    PackedLengths lengths{};        ///< of the documents that fill the sequences
    bool operator==(const BatchSpec&) const = default;
};

}  // namespace mgplan
