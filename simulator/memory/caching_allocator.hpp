#pragma once
// PyTorch's caching allocator, replayed on sizes: how many bytes it holds from the driver for a given sequence of
// allocations. Follows c10/cuda/CUDACachingAllocator.cpp for one stream with default settings (and, on request,
// expandable segments); written against its constants and rules, none of its code.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

namespace mgplan::simulator {

struct CachingAllocatorOptions {
    /// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: one growing segment per pool, mapped in pages.
    bool expandable_segments = false;
    std::int64_t max_split_bytes = INT64_MAX;  ///< max_split_size_mb
};

/// Replays allocations by number. Not thread-safe.
class CachingAllocator {
public:
    explicit CachingAllocator(const CachingAllocatorOptions& options = {});
    ~CachingAllocator();
    CachingAllocator(const CachingAllocator&) = delete;
    CachingAllocator& operator=(const CachingAllocator&) = delete;

    /// An allocation of `bytes` (> 0); the number names it until it is freed.
    std::int64_t allocate(std::int64_t bytes);
    void free(std::int64_t allocation);

    /// Sum of what is allocated, each rounded up to 512 bytes: what memory_allocated() reports.
    [[nodiscard]] std::int64_t allocated_bytes() const { return allocated_; }
    [[nodiscard]] std::int64_t peak_allocated_bytes() const { return peak_allocated_; }
    /// Segments held: what memory_reserved() reports. They are kept, so the present is also the maximum.
    [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_; }

private:
    struct Block;
    /// Smallest first, then lowest segment and place, as the allocator's own comparator orders them.
    struct Smaller {
        bool operator()(const Block* a, const Block* b) const;
    };
    using Pool = std::set<Block*, Smaller>;

    [[nodiscard]] Block* find(Pool& pool, std::int64_t bytes);
    [[nodiscard]] Block* new_segment(bool small, std::int64_t bytes);
    [[nodiscard]] Block* grow(bool small, std::int64_t bytes);
    void split(Block* block, std::int64_t bytes);

    CachingAllocatorOptions options_;
    Pool small_, large_;
    std::unordered_map<Block*, std::unique_ptr<Block>> blocks_;
    std::unordered_map<std::int64_t, Block*> live_;
    Block* last_small_ = nullptr;  ///< end of the expandable segment of each pool
    Block* last_large_ = nullptr;
    std::int64_t next_ = 0, segments_ = 0;
    std::int64_t allocated_ = 0, peak_allocated_ = 0, reserved_ = 0;
};

}  // namespace mgplan::simulator
