#include "runtime/cpu/pool_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "runtime/cpu/huge_pages.hpp"

namespace mgplan::runtime {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

// A kept block is out of bounds for the address sanitizer until it is taken again, and so is what rounding added to one
// in use: without this it would not see a tensor that is used after its end.
#ifdef __SANITIZE_ADDRESS__
void poison(void* memory, std::size_t bytes) {
    __asan_poison_memory_region(memory, bytes);
}
void unpoison(void* memory, std::size_t bytes) {
    __asan_unpoison_memory_region(memory, bytes);
}
#else
void poison(void* /*memory*/, std::size_t /*bytes*/) {}
void unpoison(void* /*memory*/, std::size_t /*bytes*/) {}
#endif

}  // namespace

// Sizes run 64, 128 … 512 by the alignment, from there on eight to a power of two: 576, 640 … 1024, 1152 … No two indices
// share a size, so that what is reserved follows from how many blocks of each size live at one time.
int PoolAllocator::size_index(std::int64_t bytes) {
    constexpr int kFirstPower = 9;  // from here on an eighth of a power of two is a multiple of the alignment
    if (bytes <= std::int64_t{1} << kFirstPower) return static_cast<int>((std::max<std::int64_t>(bytes, 1) - 1) / kAlignment);
    const auto wanted = static_cast<std::uint64_t>(bytes);
    const int power = static_cast<int>(std::bit_width(wanted)) - 1;  // 2^power <= wanted
    const std::uint64_t step = std::uint64_t{1} << (power - 3);
    const std::uint64_t steps = (wanted - (std::uint64_t{1} << power) + step - 1) / step;  // 0 to 8
    return 7 + (power - kFirstPower) * 8 + static_cast<int>(steps);
}

std::int64_t PoolAllocator::block_bytes(int index) {
    if (index < 8) return (index + 1) * kAlignment;
    const std::int64_t power = std::int64_t{1} << ((index - 7) / 8 + 9);
    return power + power / 8 * ((index - 7) % 8);
}

PoolAllocator::~PoolAllocator() {
    trim();
}

std::byte* PoolAllocator::take(std::int64_t bytes, model::MemoryCategory category, std::string_view /*name*/) {
    if (bytes <= 0 || bytes > kMostBytes) throw std::bad_alloc();
    const int index = size_index(bytes);
    const auto slot = static_cast<std::size_t>(index);
    const std::int64_t block = block_bytes(index);
    void* memory = kept_[slot];
    if (memory != nullptr) {
        unpoison(memory, sizeof(Kept));
        kept_[slot] = kept_[slot]->next;
    } else {
        const auto size = static_cast<std::size_t>(block);
        const std::size_t alignment = size >= kHugePage ? kHugePage : std::size_t{kAlignment};
        // Unlike aligned_alloc it takes sizes that are no multiple of the alignment.
        if (posix_memalign(&memory, alignment, size) != 0) {
            trim();
            if (posix_memalign(&memory, alignment, size) != 0) throw std::bad_alloc();
        }
        prefer_huge_pages(memory, size);
        reserved_ += block;
    }
    poison(memory, static_cast<std::size_t>(block));
    unpoison(memory, static_cast<std::size_t>(bytes));
#ifndef NDEBUG
    std::memset(memory, 0xff, static_cast<std::size_t>(bytes));  // NaN in every float type: reading before writing shows
#endif
    const auto place = static_cast<std::size_t>(category);
    use_.current[place] += bytes;
    live_ += bytes;
    use_.high_water[place] = std::max(use_.high_water[place], use_.current[place]);
    if (live_ > use_.peak) {
        use_.peak = live_;
        use_.at_peak = use_.current;
    }
    return static_cast<std::byte*>(memory);
}

void PoolAllocator::give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept {
    use_.current[static_cast<std::size_t>(category)] -= bytes;
    live_ -= bytes;
    const int index = size_index(bytes);
    const auto block = static_cast<std::size_t>(block_bytes(index));
    unpoison(memory, block);  // a tensor may be smaller than the link
    auto& first = kept_[static_cast<std::size_t>(index)];
    first = ::new (static_cast<void*>(memory)) Kept{first};
    poison(memory, block);
}

void PoolAllocator::restart_high_water() {
    use_.high_water = use_.current;
    use_.peak = live_;
    use_.at_peak = use_.current;
}

void PoolAllocator::trim() noexcept {
    for (int index = 0; index < kSizes; ++index) {
        auto& first = kept_[static_cast<std::size_t>(index)];
        while (first != nullptr) {
            Kept* const block = first;
            unpoison(block, static_cast<std::size_t>(block_bytes(index)));
            first = block->next;
            std::free(block);
            reserved_ -= block_bytes(index);
        }
    }
}

}  // namespace mgplan::runtime
