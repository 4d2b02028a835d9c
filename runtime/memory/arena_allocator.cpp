#include "runtime/memory/arena_allocator.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "plan/text.hpp"

namespace mgplan::runtime {

ArenaAllocator::ArenaAllocator(const ArenaScript& script, BlockSource& source)
    : source_(source), cursor_(script), pool_(source), bytes_((script.bytes + 63) / 64 * 64), alignment_(script.alignment) {
    if (bytes_ == 0) return;
    arena_ = static_cast<std::byte*>(source_.take(bytes_));
    if (arena_ == nullptr) throw std::bad_alloc();
    source_.forbid(arena_, bytes_);
}

ArenaAllocator::~ArenaAllocator() {
    if (arena_ != nullptr) source_.give_back(arena_, bytes_);
}

bool ArenaAllocator::is_free(std::int64_t offset, std::int64_t end) const {
    const auto behind = live_.lower_bound(end);  // the first that begins behind it; the one before is the last that may overlap
    return behind == live_.begin() || std::prev(behind)->second <= offset;
}

std::byte* ArenaAllocator::take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) {
    if (bytes <= 0) throw std::bad_alloc();
    const auto offset = cursor_.take(bytes, category, name);
    std::byte* memory = nullptr;
    if (offset) {
        const std::int64_t end = *offset + rounded(bytes);
        if (*offset < 0 || end > bytes_ || !is_free(*offset, end)) {
            throw RunError(
                fmt::format("the arena's plan puts \"{}\" at bytes [{}, {}) of {}, where another tensor lives or the arena ends; run "
                            "it with --memory pool",
                            name, with_thousands(*offset), with_thousands(end), with_thousands(bytes_)));
        }
        live_.emplace(*offset, end);
        touched_ = std::max(touched_, end);
        memory = arena_ + *offset;
        source_.allow(memory, bytes);
#ifndef NDEBUG
        source_.spoil(memory, bytes);  // reading before writing shows
#endif
    } else {
        memory = pool_.take(bytes, category, name);
    }
    static_cast<void>(counter_.take(bytes, category, name));
    return memory;
}

void ArenaAllocator::give_back(std::byte* memory, std::int64_t bytes, model::MemoryCategory category) noexcept {
    counter_.give_back(nullptr, bytes, category);
    if (arena_ != nullptr && memory >= arena_ && memory < arena_ + bytes_) {
        live_.erase(memory - arena_);
        source_.forbid(memory, rounded(bytes));
    } else {
        pool_.give_back(memory, bytes, category);
    }
}

}  // namespace mgplan::runtime
