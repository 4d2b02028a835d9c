#pragma once
// Whether a planned arena can be lived in: replays the trace and looks at every range that is handed out.

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "model/meta/step_arena.hpp"

namespace mgplan::model {

/// Empty where the plan is sound, else what is wrong with it.
inline std::string fault_of(std::span<const AllocationRecord> records, const StepArena& arena, const std::vector<bool>& left_out,
                            std::int64_t alignment) {
    if (arena.offsets.size() != records.size()) return "not every record has an offset";
    struct Event {
        std::size_t record;
        bool taken;
    };
    std::map<std::int64_t, Event> events;
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (!left_out.empty() && left_out[i]) {
            if (arena.offsets[i] != -1) return "a record that is left out has a place";
            continue;
        }
        events[records[i].taken] = {i, true};
        if (records[i].returned >= 0) events[records[i].returned] = {i, false};
    }
    std::map<std::int64_t, std::int64_t> live;  // ends by offset
    std::int64_t alive = 0, most = 0, touched = 0;
    for (const auto& [when, event] : events) {
        const AllocationRecord& record = records[event.record];
        const std::int64_t offset = arena.offsets[event.record], end = offset + record.bytes;
        if (!event.taken) {
            live.erase(offset);
            alive -= record.bytes;
            continue;
        }
        if (offset < 0 || offset % alignment != 0) return fmt::format("record {} lies at {}", event.record, offset);
        const auto behind = live.lower_bound(end);
        if (behind != live.begin() && std::prev(behind)->second > offset)
            return fmt::format("record {} ({}, {} bytes at {}) overlaps a living tensor at {}", event.record, record.name, record.bytes,
                               offset, std::prev(behind)->first);
        live.emplace(offset, end);
        alive += record.bytes;
        most = std::max(most, alive);
        touched = std::max(touched, (end + alignment - 1) / alignment * alignment);
    }
    if (most != arena.lower_bound) return fmt::format("{} bytes live at once, the plan says {}", most, arena.lower_bound);
    if (touched > arena.total) return fmt::format("{} bytes are touched of {}", touched, arena.total);
    return {};
}

}  // namespace mgplan::model
