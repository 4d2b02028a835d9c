#pragma once
// One block of memory in which every allocation has a planned place: no search, no fragmentation, fixed addresses.

#include <cstdint>
#include <map>

#include "model/meta/meta_device.hpp"
#include "runtime/memory/arena_script.hpp"
#include "runtime/memory/measured_allocator.hpp"
#include "runtime/memory/pool_allocator.hpp"

namespace mgplan::runtime {

/// Follows a script (arena_script.hpp). What the script has no place for comes from a pool beside the arena and is counted
/// apart. Does not trust the plan: a range that overlaps a living tensor is refused before it is handed out. For one thread
/// on the CPU, one stream on a GPU, as PoolAllocator.
class ArenaAllocator final : public MeasuredAllocator {
public:
    /// Takes the arena from the source at once. Both outlive the allocator. Throws std::bad_alloc.
    explicit ArenaAllocator(const ArenaScript& script, BlockSource& source = host_blocks());
    ArenaAllocator(const ArenaAllocator&) = delete;
    ArenaAllocator& operator=(const ArenaAllocator&) = delete;
    /// All memory must have been given back.
    ~ArenaAllocator() override;

    /// Around each step: its takes begin from the first again.
    void begin_step() { cursor_.begin_step(); }
    void end_step() { cursor_.end_step(); }

    /// Throws RunError for an allocation that is not the one planned (ArenaCursor), or whose place is taken.
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) override;
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept override;

    [[nodiscard]] const model::MemoryUse& use() const override { return counter_.use(); }
    void restart_high_water() override { counter_.restart_high_water(); }
    [[nodiscard]] std::int64_t reserved_bytes() const override { return touched_ + pool_.reserved_bytes(); }
    /// The end of the last range that was handed out so far: what of the arena was needed, whatever its plan says.
    [[nodiscard]] std::int64_t touched_bytes() const { return touched_; }
    /// Bytes that the pool beside the arena holds.
    [[nodiscard]] std::int64_t fallback_bytes() const { return pool_.reserved_bytes(); }

private:
    [[nodiscard]] std::int64_t rounded(std::int64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }
    /// Nothing that lives reaches into [offset, end).
    [[nodiscard]] bool is_free(std::int64_t offset, std::int64_t end) const;

    BlockSource& source_;
    ArenaCursor cursor_;
    PoolAllocator pool_;
    model::MetaAllocator counter_{false};
    std::byte* arena_ = nullptr;
    std::int64_t bytes_;
    std::int64_t alignment_;
    std::int64_t touched_ = 0;
    std::map<std::int64_t, std::int64_t> live_;  ///< ends by offset
};

}  // namespace mgplan::runtime
