#pragma once
// PyTorch's caching allocator, simulated on sizes: bytes that it holds from the driver for a given sequence of allocations. Follows
// c10/cuda/CUDACachingAllocator.cpp for one stream with default settings (and, on request, expandable segments); written against its
// constants and rules, none of its code.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "simulator/memory/allocator_history.hpp"

namespace mgplan::simulator {

struct CachingAllocatorOptions {
    /// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: one growing segment per pool, mapped in pages.
    bool expandable_segments = false;
    std::int64_t max_split_bytes = INT64_MAX;  ///< max_split_size_mb
    /// Bytes of the device available for segments. If one more would exceed them, segments without a tensor are freed first
    /// (release_cached_blocks); a segment that is still needed exceeds the limit. Ignored with expandable segments.
    std::int64_t limit_bytes = INT64_MAX;
};

/// Simulates allocations identified by number. Not thread-safe.
class CachingAllocator {
public:
    explicit CachingAllocator(const CachingAllocatorOptions& options = {});
    ~CachingAllocator();
    CachingAllocator(const CachingAllocator&) = delete;
    CachingAllocator& operator=(const CachingAllocator&) = delete;

    /// Allocates `bytes` (> 0); returns a number that identifies the allocation until it is freed.
    std::int64_t allocate(std::int64_t bytes);
    void free(std::int64_t allocation);

    /// Receives each segment taken from the driver, and with negative bytes each one that is freed. Segments are numbered from 0.
    using SegmentWatcher = std::function<void(std::int64_t segment, std::int64_t bytes)>;
    /// Not called for expandable segments.
    void watch(SegmentWatcher watcher) { watcher_ = std::move(watcher); }

    /// `allocation` must be live.
    [[nodiscard]] BlockPlace place_of(std::int64_t allocation) const {
        const Block& block = *live_[static_cast<std::size_t>(allocation)];
        return {block.segment, block.offset, block.bytes};
    }

    /// The largest block that an allocation of `bytes` may occupy: a remainder too small for a block stays with it.
    [[nodiscard]] std::int64_t largest_block(std::int64_t bytes) const;

    /// Sum of allocations, each rounded up to 512 bytes: the value of memory_allocated().
    [[nodiscard]] std::int64_t allocated_bytes() const { return allocated_; }
    [[nodiscard]] std::int64_t peak_allocated_bytes() const { return peak_allocated_; }
    /// Bytes of segments held: the value of memory_reserved(). Segments are kept, so that the current value is also the maximum, unless the
    /// limit forces some to be freed.
    [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_; }
    [[nodiscard]] std::int64_t peak_reserved_bytes() const { return peak_reserved_; }

private:
    static constexpr std::int64_t kMinBlock = 512;  ///< every size is a multiple of it
    static constexpr int kOffsetBits = 40;          ///< bits of an offset in multiples of kMinBlock: half a pebibyte

    struct Block {
        std::int64_t bytes = 0;
        std::int64_t segment = 0, offset = 0;
        bool small = false, used = false;
        Block* before = nullptr;  ///< neighbours in the segment
        Block* behind = nullptr;
    };
    /// A free block, ordered by size, then segment, then offset, as the allocator's own comparator orders them.
    struct Free {
        std::int64_t bytes = 0;
        std::uint64_t place = 0;  ///< segment and offset as one number, because replays spend most of their time in comparisons
        Block* block = nullptr;
        explicit Free(Block* free)
            : bytes(free->bytes),
              place(static_cast<std::uint64_t>(free->segment) << kOffsetBits | static_cast<std::uint64_t>(free->offset / kMinBlock)),
              block(free) {}
        bool operator<(const Free& other) const { return bytes != other.bytes ? bytes < other.bytes : place < other.place; }
    };
    /// Free blocks in bins by size, two for each power of two: moving the few entries of a sorted bin is faster than allocating nodes of a
    /// tree. Freed blocks are mostly among the smallest of their bin, which is therefore sorted in descending order.
    class Pool {
    public:
        /// Position of an entry, valid until another one moves.
        struct Place {
            std::size_t bin;
            std::ptrdiff_t index;
        };
        void insert(const Free& entry);
        void erase(const Place& place);
        /// Removes the entry at `place` and inserts `entry` at its sorted position.
        void replace(const Place& place, const Free& entry);
        [[nodiscard]] Place place_of(const Free& entry) const;
        [[nodiscard]] Block* block_at(const Place& place) const { return bins_[place.bin][static_cast<std::size_t>(place.index)].block; }
        /// The first block of at least `bytes`; nothing if there is none or `suits` rejects it.
        template <class Suits>
        [[nodiscard]] std::optional<Place> find(std::int64_t bytes, Suits suits) const;
        template <class Gone>
        void erase_if(Gone gone) {
            for (std::size_t bin = 0; bin < kBins; ++bin) {
                std::erase_if(bins_[bin], gone);
                note(bin);
            }
        }

    private:
        static constexpr std::size_t kBins = 64;
        // Defined in the class, to be inlined: each event of a replay calls it several times.
        [[nodiscard]] static std::size_t bin_of(std::int64_t bytes) {
            const auto size = static_cast<std::uint64_t>(bytes);
            const auto width = static_cast<std::size_t>(std::bit_width(size));
            constexpr std::size_t kSmallest = 9;  // no block is smaller than 512 bytes, which have ten bits
            if (width <= kSmallest) return 0;
            return std::min(kBins - 1, 2 * (width - kSmallest) + ((size >> (width - 2)) & 1U));
        }
        void note(std::size_t bin) {
            const std::uint64_t bit = std::uint64_t{1} << bin;
            filled_ = bins_[bin].empty() ? filled_ & ~bit : filled_ | bit;
        }

        std::array<std::vector<Free>, kBins> bins_;  ///< smaller blocks in earlier bins; within each in descending order
        std::uint64_t filled_ = 0;                   ///< one bit for each bin that is not empty
    };

    [[nodiscard]] static bool is_whole_segment(const Block& block) { return block.before == nullptr && block.behind == nullptr; }
    [[nodiscard]] Pool& pool_of(const Block& block) { return block.small ? small_ : large_; }
    void insert(Block* block);
    void erase(Block* block);
    [[nodiscard]] Block* new_block();
    /// Takes a free block and returns the part beyond `bytes` to the pool; null if there is none.
    [[nodiscard]] Block* take(Pool& pool, std::int64_t bytes);
    [[nodiscard]] Block* new_segment(bool small, std::int64_t bytes);
    [[nodiscard]] Block* grow(bool small, std::int64_t bytes);
    /// Cuts off the part of a block beyond `bytes`, if it is large enough for a block of its own; else null.
    [[nodiscard]] Block* split(Block* block, std::int64_t bytes);
    void release_free_segments();

    CachingAllocatorOptions options_;
    SegmentWatcher watcher_;
    Pool small_, large_;
    std::deque<Block> blocks_;           ///< all that were ever created
    std::vector<Block*> unused_;         ///< blocks that were merged into others, to be reused
    std::vector<Block*> live_;           ///< by allocation; null if freed
    std::vector<std::int64_t> unnamed_;  ///< numbers of freed allocations
    std::int64_t whole_segments_ = 0;    ///< number of free blocks that fill their segment
    Block* last_small_ = nullptr;        ///< last block of each pool's expandable segment
    Block* last_large_ = nullptr;
    std::int64_t segments_ = 0;
    std::int64_t allocated_ = 0, peak_allocated_ = 0, reserved_ = 0, peak_reserved_ = 0;
};

}  // namespace mgplan::simulator
