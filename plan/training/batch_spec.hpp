#pragma once
#include <cstdint>

namespace mgplan {

/// One training step's input.
struct BatchSpec {
    std::int64_t global_batch = 0;  ///< sequences per step, over all ranks
    std::int64_t sequence = 0;      ///< tokens per sequence
    bool operator==(const BatchSpec&) const = default;
};

}  // namespace mgplan
