#include "reports/memory_snapshot.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/rounding.hpp"
#include "plan/text/text.hpp"
#include "reports/pickle.hpp"

namespace mgplan::reports {
namespace {

using simulator::AllocationLabel;
using simulator::AllocatorHistory;
using simulator::ReplayRecord;
using Action = ReplayRecord::Action;

/// Address of the first segment, and the multiple at which each one begins: CUDA's.
constexpr std::int64_t kFirstAddress = 0x7f0000000000, kSegmentAlignment = std::int64_t{2} << 20;
/// Segments of the small pool have this size (kSmallBuffer of CUDACachingAllocator.cpp).
constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;

/// Entries of a trace for one event: a free is requested and completed.
std::size_t entries_of(const ReplayRecord::Event& event) {
    return event.action == Action::give_back ? 2 : 1;
}

class SnapshotWriter {
public:
    SnapshotWriter(std::ostream& out, const AllocatorHistory& history) : history_(history), pickle_(out) {}

    void write(std::size_t first_part) {
        pickle_.open_dict();
        pickle_.text("device_traces");
        pickle_.open_list();
        pickle_.open_list();
        const std::vector<ReplayRecord::Part>& parts = history_.record.parts;
        for (part_ = 0; part_ < parts.size(); ++part_) {
            const std::size_t end = part_ + 1 < parts.size() ? parts[part_ + 1].begin : history_.record.events.size();
            for (std::size_t i = parts[part_].begin; i < end; ++i) play(history_.record.events[i], part_ >= first_part);
        }
        pickle_.append();
        pickle_.text("segments");
        pickle_.open_list();
        for (const auto& [number, segment] : segments_) write_segment(segment);
        pickle_.text("allocator_settings");
        pickle_.open_dict();
        pickle_.text("expandable_segments");
        pickle_.truth(false);
        pickle_.close_dict();
        pickle_.close_dict();
        pickle_.finish();
    }

private:
    /// A block with a tensor.
    struct Block {
        std::int64_t bytes = 0, requested = 0;
        std::size_t part = 0, allocation = 0;
        std::optional<std::uint32_t> frames;  ///< their number once they are written
    };
    struct Segment {
        std::int64_t address = 0, bytes = 0;
        std::map<std::int64_t, Block> blocks;  ///< by offset
    };

    /// Updates segments and blocks; `kept`: writes the entries of the event.
    void play(const ReplayRecord::Event& event, bool kept) {
        const simulator::BlockPlace& place = event.place;
        if (event.action == Action::take_segment) {
            const std::int64_t address = next_address_;
            next_address_ += round_up(place.bytes, kSegmentAlignment);
            segments_.emplace(place.segment, Segment{address, place.bytes, {}});
            if (kept) write_entry("segment_alloc", address, place.bytes, nullptr);
            return;
        }
        const auto segment = segments_.find(place.segment);
        MGPLAN_ASSERT(segment != segments_.end(), "an event has a segment");
        const std::int64_t address = segment->second.address + place.offset;
        if (event.action == Action::give_segment_back) {
            if (kept) write_entry("segment_free", address, place.bytes, nullptr);
            segments_.erase(segment);
            return;
        }
        std::map<std::int64_t, Block>& blocks = segment->second.blocks;
        if (event.action == Action::take) {
            const auto& allocations = part_ == 0 ? history_.allocations.setup : history_.allocations.iteration;
            Block& block = blocks[place.offset];
            block = {place.bytes, allocations[event.allocation].bytes, part_, event.allocation, {}};
            if (kept) write_entry("alloc", address, block.requested, &block);
            return;
        }
        const auto block = blocks.find(place.offset);
        MGPLAN_ASSERT(block != blocks.end(), "only what is allocated is freed");
        if (kept) {
            for (const char* action : {"free_requested", "free_completed"})
                write_entry(action, address, block->second.requested, &block->second);
        }
        blocks.erase(block);
    }

    void write_field(const char* name, std::int64_t value) {
        pickle_.text(name);
        pickle_.number(value);
    }

    void write_entry(const char* action, std::int64_t address, std::int64_t bytes, Block* block) {
        pickle_.open_dict();
        pickle_.text("action");
        pickle_.text(action);
        write_field("addr", address);
        write_field("size", bytes);
        write_field("stream", 0);
        write_field("time_us", time_++);
        write_frames(block);
        pickle_.close_dict();
        pickle_.append();
    }

    /// The innermost frame first, as PyTorch has them. Null: no frames.
    void write_frames(Block* block) {
        pickle_.text("frames");
        if (block == nullptr) {
            pickle_.open_list();
            return;
        }
        if (block->frames) {
            pickle_.recall(*block->frames);
            return;
        }
        const auto& labels = block->part == 0 ? history_.allocations.setup_labels : history_.allocations.iteration_labels;
        const AllocationLabel& label = labels[block->allocation];
        pickle_.open_list();
        block->frames = pickle_.remember();
        if (label.layer >= 0)
            append_frame("decoder.layers", label.layer, fmt::format("{}: {}", label.part, label.tensor));
        else
            append_frame(label.part, 0, label.tensor);
        if (label.pass)
            append_frame("microbatch", label.pass->microbatch,
                         fmt::format("{} of chunk {}", to_string(label.pass->pass), label.pass->chunk));
        if (block->part == 0)
            append_frame("setup", 0, "before the first iteration");
        else
            append_frame("iteration", static_cast<std::int64_t>(block->part), "training step");
    }

    void append_frame(const std::string& file, std::int64_t line, const std::string& name) {
        const auto [known, fresh] = frames_.try_emplace({file, line, name}, 0);
        if (fresh) {
            pickle_.open_dict();
            pickle_.text("filename");
            pickle_.text(file);
            write_field("line", line);
            pickle_.text("name");
            pickle_.text(name);
            pickle_.close_dict();
            known->second = pickle_.remember();
        } else {
            pickle_.recall(known->second);
        }
        pickle_.append();
    }

    void write_segment(const Segment& segment) {
        std::int64_t allocated = 0, requested = 0;
        for (const auto& [offset, block] : segment.blocks) {
            allocated += block.bytes;
            requested += block.requested;
        }
        pickle_.open_dict();
        write_field("device", 0);
        write_field("address", segment.address);
        write_field("total_size", segment.bytes);
        write_field("allocated_size", allocated);
        write_field("active_size", allocated);
        write_field("requested_size", requested);
        write_field("stream", 0);
        pickle_.text("segment_type");
        pickle_.text(segment.bytes == kSmallSegment ? "small" : "large");
        pickle_.text("segment_pool_id");
        pickle_.number(0);
        pickle_.number(0);
        pickle_.pair();
        pickle_.text("is_expandable");
        pickle_.truth(false);
        write_frames(nullptr);
        pickle_.text("blocks");
        pickle_.open_list();
        std::int64_t end = 0;
        for (auto [offset, block] : segment.blocks) {
            write_block(segment, end, offset - end, nullptr);
            write_block(segment, offset, block.bytes, &block);
            end = offset + block.bytes;
        }
        write_block(segment, end, segment.bytes - end, nullptr);
        pickle_.close_dict();
        pickle_.append();
    }

    /// Null: free memory. Writes nothing for 0 bytes.
    void write_block(const Segment& segment, std::int64_t offset, std::int64_t bytes, Block* block) {
        if (bytes == 0) return;
        pickle_.open_dict();
        write_field("address", segment.address + offset);
        write_field("size", bytes);
        write_field("requested_size", block != nullptr ? block->requested : 0);
        pickle_.text("state");
        pickle_.text(block != nullptr ? "active_allocated" : "inactive");
        write_frames(block);
        pickle_.close_dict();
        pickle_.append();
    }

    const AllocatorHistory& history_;
    PickleWriter pickle_;
    std::size_t part_ = 0;  ///< that is played
    std::int64_t time_ = 0, next_address_ = kFirstAddress;
    std::map<std::int64_t, Segment> segments_;  ///< by number
    std::map<std::tuple<std::string, std::int64_t, std::string>, std::uint32_t> frames_;
};

/// The first and the last iteration that a snapshot holds, from 1.
std::pair<std::size_t, std::size_t> iterations_of(const SnapshotSummary& summary) {
    return {std::max<std::size_t>(summary.first_part, 1), summary.parts - 1};
}

/// "setup and iterations 1 to 3", "iteration 3".
std::string parts_text(const SnapshotSummary& summary) {
    const auto [first, last] = iterations_of(summary);
    const std::string iterations = first == last ? fmt::format("iteration {}", last) : fmt::format("iterations {} to {}", first, last);
    return (summary.first_part == 0 ? "setup and " : "") + iterations;
}

}  // namespace

SnapshotSummary summary_of(const AllocatorHistory& history, std::int64_t rank, int stage, std::int64_t microbatches) {
    const ReplayRecord& record = history.record;
    MGPLAN_ASSERT(!record.parts.empty(), "a snapshot has events");
    SnapshotSummary summary;
    summary.rank = rank;
    summary.stage = stage;
    summary.parts = record.parts.size();
    summary.memory = history.memory;
    summary.microbatches = microbatches;
    summary.played_microbatches = history.allocations.microbatches;
    summary.offloaded_bytes = history.offloaded_bytes;
    for (const ReplayRecord::Part& part : record.parts) summary.requested_bytes = std::max(summary.requested_bytes, part.peak_bytes);
    const auto entries_from = [&](std::size_t part) {
        std::size_t entries = 0;
        for (std::size_t i = record.parts[part].begin; i < record.events.size(); ++i) entries += entries_of(record.events[i]);
        return entries;
    };
    summary.events = entries_from(0);
    if (summary.events <= kMostSnapshotEvents) return summary;
    summary.first_part = record.parts.size() - 1;
    while (record.parts[summary.first_part].peak_bytes < summary.requested_bytes) --summary.first_part;
    summary.events = entries_from(summary.first_part);
    return summary;
}

void write_memory_snapshot(std::ostream& out, const AllocatorHistory& history, const SnapshotSummary& summary) {
    SnapshotWriter(out, history).write(summary.first_part);
}

nlohmann::ordered_json snapshot_to_json(const SnapshotSummary& summary) {
    return {{"file", summary.file},
            {"rank", summary.rank},
            {"stage", summary.stage},
            {"requested_bytes", summary.requested_bytes},
            {"allocated_bytes", summary.memory.allocated},
            {"reserved_bytes", summary.memory.steady},
            {"events", summary.events},
            {"setup", summary.first_part == 0},
            {"iterations", {iterations_of(summary).first, iterations_of(summary).second}},
            {"microbatches", summary.played_microbatches},
            {"offloaded_bytes", summary.offloaded_bytes}};
}

std::string snapshot_text(const SnapshotSummary& summary) {
    std::string text =
        fmt::format("\nmemory snapshot of rank {} (stage {}): {} of tensors at the peak, {} allocated, {} reserved\n  {} events of {}",
                    summary.rank, summary.stage, human_bytes(summary.requested_bytes), human_bytes(summary.memory.allocated),
                    human_bytes(summary.memory.steady), with_thousands(static_cast<std::int64_t>(summary.events)), parts_text(summary));
    if (summary.first_part > 0)
        text += fmt::format(" alone: with what precedes it there are more than {}", with_thousands(kMostSnapshotEvents));
    if (summary.played_microbatches < summary.microbatches)
        text += fmt::format(", with {} of {} microbatches: the others repeat them", summary.played_microbatches, summary.microbatches);
    if (summary.offloaded_bytes > 0)
        text += fmt::format("\n  with {} of activations that are on the host at the peak", human_bytes(summary.offloaded_bytes));
    return text + fmt::format("\n  {}: open it at pytorch.org/memory_viz\n", summary.file);
}

}  // namespace mgplan::reports
