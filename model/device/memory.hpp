#pragma once
// The source of tensors' memory.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/device/memory_use.hpp"

namespace mgplan::model {

/// One source of memory: a pool, or later a table of planned offsets. Owned by a device, used by one thread.
class Allocator {
public:
    virtual ~Allocator() = default;

    /// Returns memory for `bytes` (> 0), aligned to 64 bytes, contents undefined. `name`, a literal, describes its use.
    /// Throws std::bad_alloc. The meta device's allocator returns an address that only distinguishes its allocations.
    [[nodiscard]] virtual std::byte* take(std::int64_t bytes, MemoryCategory category, std::string_view name) = 0;
    /// Gives back what take() returned, with the same bytes and category.
    virtual void give_back(std::byte* memory, std::int64_t bytes, MemoryCategory category) noexcept = 0;
    /// While true, memory is handed out as it is, without the fill of a debug build: a CUDA graph's work, which is
    /// issued after all takes and returns of its tensors, reads and writes it.
    virtual void keep_contents(bool /*keep*/) noexcept {}
};

}  // namespace mgplan::model
