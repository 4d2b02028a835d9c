#pragma once
// What the runtime asks of any source of a rank's memory: memory, and an account of it.

#include <cstdint>

#include "model/device/memory.hpp"

namespace mgplan::runtime {

/// Its counters are the measurement that predictions are held against.
class MeasuredAllocator : public model::Allocator {
public:
    /// Bytes asked for.
    [[nodiscard]] virtual const model::MemoryUse& use() const = 0;
    /// Forgets maxima of use(): from now on they are those of what is live.
    virtual void restart_high_water() = 0;
    /// Bytes of the device that tensors have needed, with all that rounding and keeping add.
    [[nodiscard]] virtual std::int64_t reserved_bytes() const = 0;
};

}  // namespace mgplan::runtime
