#pragma once
// Interface of all sources of a rank's memory: they hand it out and count it.

#include <cstdint>
#include <memory>
#include <utility>

#include "model/device/memory.hpp"

namespace mgplan::runtime {

/// Its counters are the measurement that predictions are compared with.
class MeasuredAllocator : public model::Allocator {
public:
    /// Bytes requested, without rounding.
    [[nodiscard]] virtual const model::MemoryUse& use() const = 0;
    /// Forgets maxima of use(): from now on they are those of what is live.
    virtual void restart_high_water() = 0;
    /// Bytes of the device that tensors have needed, including rounding and kept blocks.
    [[nodiscard]] virtual std::int64_t reserved_bytes() const = 0;
    /// Keeps the source of its memory alive until its own last block has been given back.
    void keep(std::shared_ptr<void> source) { source_of_blocks_ = std::move(source); }

private:
    std::shared_ptr<void> source_of_blocks_;  // a base's member is destroyed after those of derived classes
};

/// Interface of an arena for the code that runs a rank's steps. The GPU's arena is in the CUDA module (cuda_module.hpp).
class SteppedMemory {
public:
    virtual ~SteppedMemory() = default;
    /// Around each step: its takes begin from the first again.
    virtual void begin_step() = 0;
    virtual void end_step() = 0;
    /// End of the last range that was handed out so far: the bytes of the arena that were really used.
    [[nodiscard]] virtual std::int64_t touched_bytes() const = 0;
    /// Bytes that the arena's additional pool holds.
    [[nodiscard]] virtual std::int64_t fallback_bytes() const = 0;
};

}  // namespace mgplan::runtime
