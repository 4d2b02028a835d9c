#include "simulator/memory/caching_allocator.hpp"

#include <algorithm>
#include <iterator>

#include "plan/text/errors.hpp"
#include "plan/text/rounding.hpp"

namespace mgplan::simulator {
namespace {

// Constants of CUDACachingAllocator.cpp (PyTorch 2.x).
constexpr std::int64_t kSmallSize = std::int64_t{1} << 20;    // larger sizes come from the large pool
constexpr std::int64_t kSmallBuffer = std::int64_t{2} << 20;  // segments of the small pool
constexpr std::int64_t kMinLargeAlloc = std::int64_t{10} << 20;
constexpr std::int64_t kLargeBuffer = std::int64_t{20} << 20;  // segments for sizes below kMinLargeAlloc, and pages
constexpr std::int64_t kRoundLarge = std::int64_t{2} << 20;    // larger segments are multiples of it

std::int64_t segment_bytes(std::int64_t bytes) {
    if (bytes <= kSmallSize) return kSmallBuffer;
    if (bytes < kMinLargeAlloc) return kLargeBuffer;
    return round_up(bytes, kRoundLarge);
}

}  // namespace

CachingAllocator::CachingAllocator(const CachingAllocatorOptions& options) : options_(options) {}
CachingAllocator::~CachingAllocator() = default;

std::int64_t CachingAllocator::largest_block(std::int64_t bytes) const {
    const std::int64_t rounded = round_up(bytes, kMinBlock);
    if (rounded <= kSmallSize || options_.expandable_segments) return rounded;
    return rounded + (rounded < options_.max_split_bytes ? kSmallSize : kLargeBuffer);
}

void CachingAllocator::Pool::insert(const Free& entry) {
    const std::size_t bin = bin_of(entry.bytes);
    std::vector<Free>& falling = bins_[bin];
    falling.push_back(entry);
    auto at = falling.end() - 1;
    for (; at != falling.begin() && at[-1] < entry; --at) *at = at[-1];
    *at = entry;
    note(bin);
}

void CachingAllocator::Pool::erase(const Place& place) {
    std::vector<Free>& falling = bins_[place.bin];
    falling.erase(falling.begin() + place.index);
    note(place.bin);
}

CachingAllocator::Pool::Place CachingAllocator::Pool::place_of(const Free& entry) const {
    const std::size_t bin = bin_of(entry.bytes);
    auto at = bins_[bin].end() - 1;
    while (*at < entry) --at;
    return {bin, at - bins_[bin].begin()};
}

void CachingAllocator::Pool::replace(const Place& place, const Free& entry) {
    if (bin_of(entry.bytes) != place.bin) {
        erase(place);
        insert(entry);
        return;
    }
    std::vector<Free>& falling = bins_[place.bin];
    auto at = falling.begin() + place.index;
    for (; at != falling.begin() && at[-1] < entry; --at) *at = at[-1];
    for (; at + 1 != falling.end() && entry < at[1]; ++at) *at = at[1];
    *at = entry;
}

template <class Suits>
std::optional<CachingAllocator::Pool::Place> CachingAllocator::Pool::find(std::int64_t bytes, Suits suits) const {
    std::size_t bin = bin_of(bytes);
    auto behind = bins_[bin].end();
    while (behind != bins_[bin].begin() && behind[-1].bytes < bytes) --behind;
    if (behind == bins_[bin].begin()) {
        const std::uint64_t larger = bin + 1 < kBins ? filled_ >> (bin + 1) : 0;
        if (larger == 0) return std::nullopt;
        bin += 1 + static_cast<std::size_t>(std::countr_zero(larger));
        behind = bins_[bin].end();
    }
    if (!suits(*behind[-1].block)) return std::nullopt;
    return Place{bin, behind - 1 - bins_[bin].begin()};
}

void CachingAllocator::insert(Block* block) {
    pool_of(*block).insert(Free(block));
    whole_segments_ += is_whole_segment(*block) ? 1 : 0;
}

void CachingAllocator::erase(Block* block) {
    Pool& pool = pool_of(*block);
    pool.erase(pool.place_of(Free(block)));
    whole_segments_ -= is_whole_segment(*block) ? 1 : 0;
}

CachingAllocator::Block* CachingAllocator::new_block() {
    if (unused_.empty()) return &blocks_.emplace_back();
    Block* block = unused_.back();
    unused_.pop_back();
    *block = {};
    return block;
}

CachingAllocator::Block* CachingAllocator::take(Pool& pool, std::int64_t bytes) {
    const auto place = pool.find(bytes, [&](const Block& block) {
        if (options_.expandable_segments) return true;
        // A block too large to be split serves only requests that nearly fill it (get_free_block).
        if (bytes < options_.max_split_bytes && block.bytes >= options_.max_split_bytes) return false;
        return bytes < options_.max_split_bytes || block.bytes < bytes + kLargeBuffer;
    });
    if (!place) return nullptr;
    Block* block = pool.block_at(*place);
    if (is_whole_segment(*block)) --whole_segments_;
    if (Block* rest = split(block, bytes))
        pool.replace(*place, Free(rest));
    else
        pool.erase(*place);
    return block;
}

void CachingAllocator::release_free_segments() {
    if (whole_segments_ == 0) return;  // the usual case when nothing fits any more
    whole_segments_ = 0;
    for (Pool* pool : {&small_, &large_}) {
        pool->erase_if([this](const Free& free) {
            if (!is_whole_segment(*free.block)) return false;
            reserved_ -= free.bytes;
            if (watcher_) watcher_(free.block->segment, -free.bytes);
            unused_.push_back(free.block);
            return true;
        });
    }
}

CachingAllocator::Block* CachingAllocator::new_segment(bool small, std::int64_t bytes) {
    if (segment_bytes(bytes) > options_.limit_bytes - reserved_) release_free_segments();
    Block* block = new_block();
    block->bytes = segment_bytes(bytes);
    block->segment = segments_++;
    block->small = small;
    reserved_ += block->bytes;
    if (watcher_) watcher_(block->segment, block->bytes);
    return block;
}

CachingAllocator::Block* CachingAllocator::grow(bool small, std::int64_t bytes) {
    // A free block at the end of the segment is extended by whole pages; otherwise pages are mapped after it.
    const std::int64_t page = small ? kSmallBuffer : kLargeBuffer;
    Block*& last = small ? last_small_ : last_large_;
    if (last != nullptr && !last->used) {
        erase(last);
        const std::int64_t more = round_up(bytes - last->bytes, page);
        last->bytes += more;
        reserved_ += more;
        return last;
    }
    Block* block = new_block();
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
    return block;
}

CachingAllocator::Block* CachingAllocator::split(Block* block, std::int64_t bytes) {
    const std::int64_t rest = block->bytes - bytes;
    const bool worth =
        block->small || options_.expandable_segments ? rest >= kMinBlock : bytes < options_.max_split_bytes && rest > kSmallSize;
    if (!worth) return nullptr;
    Block* remainder = new_block();
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
    return remainder;
}

std::int64_t CachingAllocator::allocate(std::int64_t bytes) {
    MGPLAN_ASSERT(bytes > 0, "an allocation has bytes");
    const std::int64_t rounded = round_up(bytes, kMinBlock);
    const bool small = rounded <= kSmallSize;
    Pool& pool = small ? small_ : large_;
    Block* block = take(pool, rounded);
    if (block == nullptr) {
        block = options_.expandable_segments ? grow(small, rounded) : new_segment(small, rounded);
        if (Block* rest = split(block, rounded)) insert(rest);
    }
    block->used = true;
    allocated_ += block->bytes;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    peak_allocated_ = std::max(peak_allocated_, allocated_);
    if (unnamed_.empty()) {
        live_.push_back(block);
        return std::ssize(live_) - 1;
    }
    const std::int64_t number = unnamed_.back();
    unnamed_.pop_back();
    live_[static_cast<std::size_t>(number)] = block;
    return number;
}

void CachingAllocator::free(std::int64_t allocation) {
    const auto at = static_cast<std::size_t>(allocation);
    MGPLAN_ASSERT(allocation >= 0 && allocation < std::ssize(live_) && live_[at] != nullptr, "only what is allocated is freed");
    Block* block = live_[at];
    live_[at] = nullptr;
    unnamed_.push_back(allocation);
    allocated_ -= block->bytes;
    block->used = false;
    const auto absorb = [&](Block* left, Block* right) {
        left->bytes += right->bytes;
        left->behind = right->behind;
        if (right->behind != nullptr) right->behind->before = left;
        for (Block** last : {&last_small_, &last_large_}) {
            if (*last == right) *last = left;
        }
        unused_.push_back(right);
    };
    // The merged block replaces one of its parts.
    Block* behind = block->behind != nullptr && !block->behind->used ? block->behind : nullptr;
    Block* before = block->before != nullptr && !block->before->used ? block->before : nullptr;
    if (behind == nullptr && before == nullptr) {
        insert(block);
        return;
    }
    Pool& pool = pool_of(*block);
    if (behind != nullptr && before != nullptr) pool.erase(pool.place_of(Free(behind)));
    const Pool::Place place = pool.place_of(Free(before != nullptr ? before : behind));
    if (behind != nullptr) absorb(block, behind);
    if (before != nullptr) {
        absorb(before, block);
        block = before;
    }
    pool.replace(place, Free(block));
    whole_segments_ += is_whole_segment(*block) ? 1 : 0;
}

}  // namespace mgplan::simulator
