#pragma once
// Large blocks in large pages: fewer faults when they are first touched, fewer misses when matrix products walk them.

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mgplan::runtime {

inline constexpr std::size_t kHugePage = std::size_t{1} << 21;  // of x86-64 and of AArch64 with 4 KiB pages

/// Requests large pages wherever whole ones fit into the block. Only a hint: nothing happens if the system has none.
inline void prefer_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
    const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
    const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
    if (end > begin) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // NOLINT(performance-no-int-to-ptr)
#endif
}

}  // namespace mgplan::runtime
