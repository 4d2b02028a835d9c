#include "runtime/memory/pool_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/memory/huge_pages.hpp"
#include "runtime/sanitizers.hpp"

#ifdef MGPLAN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace mgplan::runtime {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

class HostBlocks final : public BlockSource {
public:
    void* take(std::int64_t bytes) noexcept override {
        const auto size = static_cast<std::size_t>(bytes);
        void* block = nullptr;
        // Unlike aligned_alloc it takes sizes that are no multiple of the alignment.
        if (posix_memalign(&block, size >= kHugePage ? kHugePage : std::size_t{kAlignment}, size) != 0) return nullptr;
        prefer_huge_pages(block, size);
        return block;
    }
    void give_back(void* block, std::int64_t bytes) noexcept override {
        allow(block, bytes);
        std::free(block);
    }
    void spoil(void* block, std::int64_t bytes) noexcept override { std::memset(block, 0xff, static_cast<std::size_t>(bytes)); }
    bool is_spoiled(const void* block, std::int64_t bytes) noexcept override {
        const auto* const values = static_cast<const unsigned char*>(block);
        return std::all_of(values, values + bytes, [](unsigned char value) { return value == 0xff; });
    }

    // A kept block is out of bounds for the address sanitizer until it is taken again, and so is what rounding added to one
    // in use: without this it would not see a tensor that is used after its end.
#ifdef MGPLAN_ADDRESS_SANITIZER
    void allow(void* memory, std::int64_t bytes) noexcept override {
        __asan_unpoison_memory_region(memory, static_cast<std::size_t>(bytes));
    }
    void forbid(void* memory, std::int64_t bytes) noexcept override {
        __asan_poison_memory_region(memory, static_cast<std::size_t>(bytes));
    }
#endif
};

}  // namespace

BlockSource& host_blocks() {
    static HostBlocks blocks;
    return blocks;
}

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
    SizeClass& size = sizes_[static_cast<std::size_t>(index)];
    const std::int64_t block = block_bytes(index);
    void* memory = nullptr;
    if (!size.kept.empty()) {
        memory = size.kept.back();
        size.kept.pop_back();
    } else {
        if (size.kept.capacity() <= size.made) size.kept.reserve(2 * size.made + 1);
        memory = source_.take(block);
        if (memory == nullptr) {
            trim();
            memory = source_.take(block);
        }
        if (memory == nullptr) throw std::bad_alloc();
        ++size.made;
        reserved_ += block;
    }
    source_.forbid(memory, block);
    source_.allow(memory, bytes);
#ifndef NDEBUG
    // Makes reading before writing visible. Of a large block only both ends: spoiling a workspace of a hundred megabytes for each product
    // would take nearly all the time.
    constexpr std::int64_t kEnd = std::int64_t{1} << 19;
    source_.spoil(memory, bytes > 2 * kEnd ? kEnd : bytes);
    if (bytes > 2 * kEnd) source_.spoil(static_cast<std::byte*>(memory) + bytes - kEnd, kEnd);
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
    source_.forbid(memory, block_bytes(index));
    sizes_[static_cast<std::size_t>(index)].kept.push_back(memory);
}

void PoolAllocator::restart_high_water() {
    use_.high_water = use_.current;
    use_.peak = live_;
    use_.at_peak = use_.current;
}

void PoolAllocator::trim() noexcept {
    for (int index = 0; index < kSizes; ++index) {
        SizeClass& size = sizes_[static_cast<std::size_t>(index)];
        for (void* block : size.kept) {
            source_.give_back(block, block_bytes(index));
            reserved_ -= block_bytes(index);
        }
        size.made -= size.kept.size();
        size.kept.clear();
    }
}

}  // namespace mgplan::runtime
