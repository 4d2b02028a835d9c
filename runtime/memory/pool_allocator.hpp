#pragma once
// Memory of a rank: blocks that were given back are kept for the next taker, and every byte is counted. These counters
// are the measurement that predictions are compared with, so this file depends on nothing but allocations.

#include <array>
#include <cstdint>
#include <vector>

#include "model/device/memory.hpp"
#include "runtime/memory/measured_allocator.hpp"

namespace mgplan::runtime {

/// Source of a pool's blocks. It outlives the pool.
class BlockSource {
public:
    virtual ~BlockSource() = default;
    /// `bytes` is a multiple of 64, and so is the address. Returns nullptr if memory is exhausted: a pool then gives back its kept blocks
    /// and tries again. Throws RunError where memory cannot be had for another reason, which giving back would not change.
    [[nodiscard]] virtual void* take(std::int64_t bytes) = 0;
    virtual void give_back(void* block, std::int64_t bytes) noexcept = 0;
    /// Fills memory that is handed out with bytes that are NaN in every float type.
    virtual void spoil(void* block, std::int64_t bytes) noexcept = 0;
    /// Returns true if memory is still as spoil() left it.
    [[nodiscard]] virtual bool is_spoiled(const void* block, std::int64_t bytes) noexcept = 0;
    /// Mark the bytes of a block that may be touched from now on, and those that may not, for memory that a sanitizer watches.
    virtual void allow(void* /*memory*/, std::int64_t /*bytes*/) noexcept {}
    virtual void forbid(void* /*memory*/, std::int64_t /*bytes*/) noexcept {}
};

/// The host's memory.
[[nodiscard]] BlockSource& host_blocks();

/// Blocks are used again as soon as they are given back: right for one thread on the CPU, and for one stream on a GPU,
/// whose work is done in the order of the calls.
class PoolAllocator final : public MeasuredAllocator {
public:
    explicit PoolAllocator(BlockSource& source = host_blocks()) : source_(source) {}
    PoolAllocator(const PoolAllocator&) = delete;
    PoolAllocator& operator=(const PoolAllocator&) = delete;
    /// All memory must have been given back.
    ~PoolAllocator() override;

    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) override;
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept override;

    /// Bytes requested; blocks themselves are rounded up to 64 bytes, those beyond 512 bytes by up to an eighth.
    [[nodiscard]] const model::MemoryUse& use() const override { return use_; }
    /// Forgets maxima: from now on they are those of what is live.
    void restart_high_water() override;
    /// Bytes held from the source, in use or kept.
    [[nodiscard]] std::int64_t reserved_bytes() const override { return reserved_; }
    /// Hands kept blocks back to the source.
    void trim() noexcept;

    /// Returns the size of the block that serves an allocation of `bytes`.
    [[nodiscard]] static std::int64_t block_bytes_for(std::int64_t bytes) { return block_bytes(size_index(bytes)); }

private:
    /// Blocks of one size. Room for all of them is reserved when a block is made, so that keeping one cannot fail.
    struct SizeClass {
        std::vector<void*> kept;
        std::size_t made = 0;
    };
    /// Eight block sizes up to 2^9 and eight for each power of two from there on.
    static constexpr int kSizes = 8 * 56;
    static int size_index(std::int64_t bytes);
    static std::int64_t block_bytes(int index);

    BlockSource& source_;
    std::array<SizeClass, kSizes> sizes_{};
    model::MemoryUse use_;
    std::int64_t live_ = 0;
    std::int64_t reserved_ = 0;
};

}  // namespace mgplan::runtime
