#pragma once
// PyTorch's caching allocator, replayed on sizes: how many bytes it holds from the driver for a given sequence of
// allocations. Follows c10/cuda/CUDACachingAllocator.cpp for one stream with default settings (and, on request,
// expandable segments); written against its constants and rules, none of its code.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace mgplan::simulator {

struct CachingAllocatorOptions {
    /// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: one growing segment per pool, mapped in pages.
    bool expandable_segments = false;
    std::int64_t max_split_bytes = INT64_MAX;  ///< max_split_size_mb
    /// What the device has for segments. Where one more would exceed it, those without a tensor are given back first
    /// (release_cached_blocks); what is needed all the same is taken beyond the limit. Not with expandable segments.
    std::int64_t limit_bytes = INT64_MAX;
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

    /// The largest block that an allocation of `bytes` may be given: what is left over in front of the next one stays with it.
    [[nodiscard]] std::int64_t largest_block(std::int64_t bytes) const;

    /// Sum of what is allocated, each rounded up to 512 bytes: what memory_allocated() reports.
    [[nodiscard]] std::int64_t allocated_bytes() const { return allocated_; }
    [[nodiscard]] std::int64_t peak_allocated_bytes() const { return peak_allocated_; }
    /// Segments held: what memory_reserved() reports. They are kept, so that the present is also the maximum, but where the limit has them
    /// given back.
    [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_; }
    [[nodiscard]] std::int64_t peak_reserved_bytes() const { return peak_reserved_; }

private:
    static constexpr std::int64_t kMinBlock = 512;  ///< every size is a multiple of it
    static constexpr int kOffsetBits = 40;          ///< of multiples of kMinBlock: half a pebibyte

    struct Block {
        std::int64_t bytes = 0;
        std::int64_t segment = 0, offset = 0;
        bool small = false, used = false;
        Block* before = nullptr;  ///< neighbours in the segment
        Block* behind = nullptr;
    };
    /// A free block: smallest first, then lowest segment and place in it, as the allocator's own comparator orders them.
    struct Free {
        std::int64_t bytes = 0;
        std::uint64_t place = 0;  ///< segment and offset as one number: replays compare these most of their time
        Block* block = nullptr;
        explicit Free(Block* free)
            : bytes(free->bytes),
              place(static_cast<std::uint64_t>(free->segment) << kOffsetBits | static_cast<std::uint64_t>(free->offset / kMinBlock)),
              block(free) {}
        bool operator<(const Free& other) const { return bytes != other.bytes ? bytes < other.bytes : place < other.place; }
    };
    /// Free blocks in bins by size, half a power of two each: moving the few of a sorted bin takes less than making nodes of a tree. What
    /// is freed is mostly among the first of its bin, and so these stand at the end.
    class Pool {
    public:
        /// Where an entry stands, until another one moves.
        struct Place {
            std::size_t bin;
            std::ptrdiff_t index;
        };
        void insert(const Free& entry);
        void erase(const Place& place);
        /// Puts an entry in the place of another, and where it belongs.
        void replace(const Place& place, const Free& entry);
        [[nodiscard]] Place place_of(const Free& entry) const;
        [[nodiscard]] Block* block_at(const Place& place) const { return bins_[place.bin][static_cast<std::size_t>(place.index)].block; }
        /// The first block of at least `bytes`; nothing where there is none, or that one does not suit.
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
        // In the class, to be inlined: each event of a replay asks several times.
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

        std::array<std::vector<Free>, kBins> bins_;  ///< smaller blocks in earlier ones; within each the first stands last
        std::uint64_t filled_ = 0;                   ///< one bit for each bin
    };

    [[nodiscard]] static bool is_whole_segment(const Block& block) { return block.before == nullptr && block.behind == nullptr; }
    [[nodiscard]] Pool& pool_of(const Block& block) { return block.small ? small_ : large_; }
    void insert(Block* block);
    void erase(Block* block);
    [[nodiscard]] Block* new_block();
    /// Takes a free block, without what is left over behind `bytes` of it; null where there is none.
    [[nodiscard]] Block* take(Pool& pool, std::int64_t bytes);
    [[nodiscard]] Block* new_segment(bool small, std::int64_t bytes);
    [[nodiscard]] Block* grow(bool small, std::int64_t bytes);
    /// What is left over behind `bytes` of a block, where that is worth a block of its own; else null.
    [[nodiscard]] Block* split(Block* block, std::int64_t bytes);
    void release_free_segments();

    CachingAllocatorOptions options_;
    Pool small_, large_;
    std::deque<Block> blocks_;           ///< all that ever were
    std::vector<Block*> unused_;         ///< those of them that were merged into others
    std::vector<Block*> live_;           ///< by allocation; null where it was freed
    std::vector<std::int64_t> unnamed_;  ///< numbers of freed allocations
    std::int64_t whole_segments_ = 0;    ///< free blocks that are a segment of their own
    Block* last_small_ = nullptr;        ///< end of the expandable segment of each pool
    Block* last_large_ = nullptr;
    std::int64_t segments_ = 0;
    std::int64_t allocated_ = 0, peak_allocated_ = 0, reserved_ = 0, peak_reserved_ = 0;
};

}  // namespace mgplan::simulator
