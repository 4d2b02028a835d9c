#include "simulator/memory/caching_allocator.hpp"

#include <algorithm>

#include "plan/errors.hpp"
#include "plan/rounding.hpp"

namespace mgplan::simulator {
namespace {

// Constants of CUDACachingAllocator.cpp (PyTorch 2.x).
constexpr std::int64_t kMinBlock = 512;                       // every size is a multiple of it
constexpr std::int64_t kSmallSize = std::int64_t{1} << 20;    // larger ones come from the large pool
constexpr std::int64_t kSmallBuffer = std::int64_t{2} << 20;  // segments of the small pool
constexpr std::int64_t kMinLargeAlloc = std::int64_t{10} << 20;
constexpr std::int64_t kLargeBuffer = std::int64_t{20} << 20;  // segments for sizes below kMinLargeAlloc, and pages
constexpr std::int64_t kRoundLarge = std::int64_t{2} << 20;    // segments of larger ones are multiples of it

std::int64_t segment_bytes(std::int64_t bytes) {
    if (bytes <= kSmallSize) return kSmallBuffer;
    if (bytes < kMinLargeAlloc) return kLargeBuffer;
    return round_up(bytes, kRoundLarge);
}

}  // namespace

struct CachingAllocator::Block {
    std::int64_t bytes = 0;
    std::int64_t segment = 0, offset = 0;
    bool small = false, used = false;
    Block* before = nullptr;  // neighbours in the segment
    Block* behind = nullptr;
};

bool CachingAllocator::Smaller::operator()(const Block* a, const Block* b) const {
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->segment != b->segment) return a->segment < b->segment;
    return a->offset < b->offset;
}

CachingAllocator::CachingAllocator(const CachingAllocatorOptions& options) : options_(options) {}
CachingAllocator::~CachingAllocator() = default;

CachingAllocator::Block* CachingAllocator::find(Pool& pool, std::int64_t bytes) {
    Block wanted;
    wanted.bytes = bytes;
    wanted.segment = -1;
    const auto found = pool.lower_bound(&wanted);
    if (found == pool.end()) return nullptr;
    Block* block = *found;
    if (!options_.expandable_segments) {
        // A block too large to be split serves only requests that nearly fill it (get_free_block).
        if (bytes < options_.max_split_bytes && block->bytes >= options_.max_split_bytes) return nullptr;
        if (bytes >= options_.max_split_bytes && block->bytes >= bytes + kLargeBuffer) return nullptr;
    }
    pool.erase(found);
    return block;
}

CachingAllocator::Block* CachingAllocator::new_segment(bool small, std::int64_t bytes) {
    auto fresh = std::make_unique<Block>();
    Block* block = fresh.get();
    block->bytes = segment_bytes(bytes);
    block->segment = segments_++;
    block->small = small;
    reserved_ += block->bytes;
    blocks_.emplace(block, std::move(fresh));
    return block;
}

CachingAllocator::Block* CachingAllocator::grow(bool small, std::int64_t bytes) {
    // A free block at the end of the segment is extended by whole pages; otherwise pages are mapped behind it.
    const std::int64_t page = small ? kSmallBuffer : kLargeBuffer;
    Block*& last = small ? last_small_ : last_large_;
    if (last != nullptr && !last->used) {
        (small ? small_ : large_).erase(last);
        const std::int64_t more = round_up(bytes - last->bytes, page);
        last->bytes += more;
        reserved_ += more;
        return last;
    }
    auto fresh = std::make_unique<Block>();
    Block* block = fresh.get();
    block->bytes = round_up(bytes, page);
    block->small = small;
    block->segment = small ? 0 : 1;
    if (last != nullptr) {
        block->offset = last->offset + last->bytes;
        block->before = last;
        last->behind = block;
    }
    last = block;
    reserved_ += block->bytes;
    blocks_.emplace(block, std::move(fresh));
    return block;
}

void CachingAllocator::split(Block* block, std::int64_t bytes) {
    const std::int64_t rest = block->bytes - bytes;
    const bool worth =
        block->small || options_.expandable_segments ? rest >= kMinBlock : bytes < options_.max_split_bytes && rest > kSmallSize;
    if (!worth) return;
    auto fresh = std::make_unique<Block>();
    Block* remainder = fresh.get();
    remainder->bytes = rest;
    remainder->segment = block->segment;
    remainder->offset = block->offset + bytes;
    remainder->small = block->small;
    remainder->before = block;
    remainder->behind = block->behind;
    if (block->behind != nullptr) block->behind->before = remainder;
    block->behind = remainder;
    block->bytes = bytes;
    for (Block** last : {&last_small_, &last_large_}) {
        if (*last == block) *last = remainder;
    }
    blocks_.emplace(remainder, std::move(fresh));
    (block->small ? small_ : large_).insert(remainder);
}

std::int64_t CachingAllocator::allocate(std::int64_t bytes) {
    MGPLAN_ASSERT(bytes > 0, "an allocation has bytes");
    const std::int64_t rounded = round_up(bytes, kMinBlock);
    const bool small = rounded <= kSmallSize;
    Pool& pool = small ? small_ : large_;
    Block* block = find(pool, rounded);
    if (block == nullptr) block = options_.expandable_segments ? grow(small, rounded) : new_segment(small, rounded);
    split(block, rounded);
    block->used = true;
    allocated_ += block->bytes;
    peak_allocated_ = std::max(peak_allocated_, allocated_);
    live_.emplace(next_, block);
    return next_++;
}

void CachingAllocator::free(std::int64_t allocation) {
    const auto found = live_.find(allocation);
    MGPLAN_ASSERT(found != live_.end(), "only what is allocated is freed");
    Block* block = found->second;
    live_.erase(found);
    allocated_ -= block->bytes;
    block->used = false;
    Pool& pool = block->small ? small_ : large_;
    const auto absorb = [&](Block* left, Block* right) {
        left->bytes += right->bytes;
        left->behind = right->behind;
        if (right->behind != nullptr) right->behind->before = left;
        for (Block** last : {&last_small_, &last_large_}) {
            if (*last == right) *last = left;
        }
        blocks_.erase(right);
    };
    if (Block* behind = block->behind; behind != nullptr && !behind->used) {
        pool.erase(behind);
        absorb(block, behind);
    }
    if (Block* before = block->before; before != nullptr && !before->used) {
        pool.erase(before);
        absorb(before, block);
        block = before;
    }
    pool.insert(block);
}

}  // namespace mgplan::simulator
