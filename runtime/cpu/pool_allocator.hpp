#pragma once
// Memory of a CPU rank: blocks that were given back are kept for the next taker, and every byte is counted. These
// counters are the measurement that predictions are held against, so this file knows allocations and nothing else.

#include <array>
#include <cstdint>

#include "model/device/memory.hpp"

namespace mgplan::runtime {

class PoolAllocator final : public model::Allocator {
public:
    PoolAllocator() = default;
    PoolAllocator(const PoolAllocator&) = delete;
    PoolAllocator& operator=(const PoolAllocator&) = delete;
    /// All memory must have been given back.
    ~PoolAllocator() override;

    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) override;
    void give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept override;

    /// Bytes asked for; blocks themselves are rounded up to 64 bytes, those beyond 512 bytes by up to an eighth.
    [[nodiscard]] const model::MemoryUse& use() const { return use_; }
    /// Forgets maxima: from now on they are those of what is live.
    void restart_high_water();
    /// Bytes held from the operating system, in use or kept.
    [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_; }
    /// Hands kept blocks back to the operating system.
    void trim() noexcept;

    /// Size of the block that serves an allocation of so many bytes.
    [[nodiscard]] static std::int64_t block_bytes_for(std::int64_t bytes) { return block_bytes(size_index(bytes)); }

private:
    struct Kept {
        Kept* next;
    };
    /// Eight block sizes up to 2^9 and eight for each power of two from there on.
    static constexpr int kSizes = 8 * 56;
    static int size_index(std::int64_t bytes);
    static std::int64_t block_bytes(int index);

    std::array<Kept*, kSizes> kept_{};
    model::MemoryUse use_;
    std::int64_t live_ = 0;
    std::int64_t reserved_ = 0;
};

}  // namespace mgplan::runtime
