#include "runtime/memory/arena_allocator.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {

ArenaAllocator::ArenaAllocator(const ArenaScript& script, BlockSource& source)
    : script_(script), source_(source), cursor_(script), pool_(source), bytes_((script.bytes + 63) / 64 * 64) {
    if (bytes_ == 0) return;
    arena_ = static_cast<std::byte*>(source_.take(bytes_));
    if (arena_ == nullptr) throw std::bad_alloc();
    source_.forbid(arena_, bytes_);
}

ArenaAllocator::~ArenaAllocator() {
    if (arena_ != nullptr) source_.give_back(arena_, bytes_);
}

void ArenaAllocator::end_step() {
    cursor_.end_step();
    throw_if_written();
}

void ArenaAllocator::throw_if_written() {
    if (written_at_ < 0) return;
    throw RunError(fmt::format("something wrote behind the tensor of {} bytes at byte {} of the arena: an op that goes beyond its output",
                               with_thousands(written_bytes_), with_thousands(written_at_)));
}

bool ArenaAllocator::is_free(std::int64_t offset, std::int64_t end) const {
    const auto behind = live_.lower_bound(end);  // the first that begins at or after `end`; the one before is the last that may overlap
    return behind == live_.begin() || std::prev(behind)->second.end <= offset;
}

std::byte* ArenaAllocator::take(std::int64_t bytes, model::MemoryCategory category, std::string_view name) {
    if (bytes <= 0) throw std::bad_alloc();
    throw_if_written();
    const auto offset = cursor_.take(bytes, category, name);
    std::byte* memory = nullptr;
    if (offset) {
        const std::int64_t end = *offset + script_.room_of(bytes);
        if (*offset < 0 || end > bytes_ || !is_free(*offset, end)) {
            throw RunError(
                fmt::format("the arena's plan puts \"{}\" at bytes [{}, {}) of {}, where another tensor lives or the arena ends; run "
                            "it with --memory pool",
                            name, with_thousands(*offset), with_thousands(end), with_thousands(bytes_)));
        }
        live_.emplace(*offset, Room{.end = end, .guarded = checks()});
        touched_ = std::max(touched_, end);
        memory = arena_ + *offset;
        if (checks()) {
            source_.allow(memory, end - *offset);
            source_.spoil(memory, end - *offset);
            source_.forbid(memory + bytes, end - *offset - bytes);
        }
        source_.allow(memory, bytes);
#ifndef NDEBUG
        if (!keeps_contents_) source_.spoil(memory, bytes);  // makes reading before writing visible
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
        const std::int64_t room = script_.room_of(bytes);
        const auto place = live_.find(memory - arena_);
        const bool guarded = place != live_.end() && place->second.guarded;
        if (place != live_.end()) live_.erase(place);
        if (checks()) {
            source_.allow(memory, room);
            if (guarded && written_at_ < 0 && !source_.is_spoiled(memory + bytes, room - bytes)) {
                written_at_ = memory - arena_;
                written_bytes_ = bytes;
            }
            source_.spoil(memory, room);
        }
        source_.forbid(memory, room);
    } else {
        pool_.give_back(memory, bytes, category);
    }
}

}  // namespace mgplan::runtime
