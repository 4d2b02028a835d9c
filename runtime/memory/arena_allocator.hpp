#pragma once
// One block of memory in which every allocation has a planned place: no search, no fragmentation, fixed addresses.

#include <cstdint>
#include <map>

#include "model/meta/meta_device.hpp"
#include "runtime/memory/arena_script.hpp"
#include "runtime/memory/measured_allocator.hpp"
#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime {

/// Follows a script (arena_script.hpp). Tensors without a place in the script come from an additional pool and are counted
/// apart. Does not trust the plan: a range that overlaps a living tensor is refused before it is handed out. For one thread
/// on the CPU, one stream on a GPU, as PoolAllocator.
///
/// With guards in its script, memory is filled with NaN when it is handed out and when it was given back, and the next take or the end
/// of the step reports a guard that was written. Memory handed out while a GPU's graphs are issued (keep_contents) has no guard.
class ArenaAllocator final : public MeasuredAllocator, public SteppedMemory {
public:
    /// Takes the arena from the source at once. Both outlive the allocator. Throws std::bad_alloc.
    explicit ArenaAllocator(const ArenaScript& script, BlockSource& source = host_blocks());
    ArenaAllocator(const ArenaAllocator&) = delete;
    ArenaAllocator& operator=(const ArenaAllocator&) = delete;
    /// All memory must have been given back.
    ~ArenaAllocator() override;

    void begin_step() override { cursor_.begin_step(); }
    /// Throws RunError for a guard that was written.
    void end_step() override;

    /// Throws RunError for an allocation that is not the one planned (ArenaCursor), or whose place is taken.
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) override;
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept override;
    void keep_contents(bool keep) noexcept override { keeps_contents_ = keep; }

    [[nodiscard]] const model::MemoryUse& use() const override { return counter_.use(); }
    void restart_high_water() override { counter_.restart_high_water(); }
    [[nodiscard]] std::int64_t reserved_bytes() const override { return touched_ + pool_.reserved_bytes(); }
    [[nodiscard]] std::int64_t touched_bytes() const override { return touched_; }
    [[nodiscard]] std::int64_t fallback_bytes() const override { return pool_.reserved_bytes(); }

private:
    [[nodiscard]] bool checks() const { return script_.guard > 0 && !keeps_contents_; }
    void throw_if_written();
    /// Returns true if no living tensor overlaps [offset, end).
    [[nodiscard]] bool is_free(std::int64_t offset, std::int64_t end) const;

    const ArenaScript& script_;
    BlockSource& source_;
    ArenaCursor cursor_;
    PoolAllocator pool_;
    model::MetaAllocator counter_{false};
    std::byte* arena_ = nullptr;
    std::int64_t bytes_;
    std::int64_t written_at_ = -1;    ///< offset of a tensor whose guard was written …
    std::int64_t written_bytes_ = 0;  ///< … and its bytes
    std::int64_t touched_ = 0;
    bool keeps_contents_ = false;
    struct Room {
        std::int64_t end;
        bool guarded;  ///< the bytes after the tensor were filled when it was handed out
    };
    std::map<std::int64_t, Room> live_;  ///< by offset
};

}  // namespace mgplan::runtime
