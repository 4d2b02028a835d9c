#include "model/meta/step_arena.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "model/device/arena_plan.hpp"
#include "plan/errors.hpp"

namespace mgplan::model {
namespace {

/// A stretch of the trace: a pass, or what lies between two.
struct Stretch {
    std::int64_t begin = 0, end = 0;    ///< takes and returns number [begin, end)
    int chunk = -1;                     ///< -1: no pass
    bool forward = false;
    std::int64_t partner = -1;          ///< the stretch of the other pass of this microbatch
    std::vector<std::size_t> local;     ///< records that live within it, by taking
    std::vector<std::size_t> left;      ///< of a forward: records for its backward, by taking
    std::int64_t slot = 0;              ///< offset of its slot among the slots; of a forward and its backward
    std::int64_t room = 0;              ///< bytes of the slot that are its own
    std::int64_t alive = 0;             ///< microbatches of chunks in a slot while it runs
};

/// Where the local tensors of equal passes lie: below the wall in the slot, from there on in the scratch.
struct PassPlan {
    std::vector<std::int64_t> offsets;
    std::int64_t wall = 0;
    std::int64_t scratch = 0;
};

class StepPlanner {
public:
    StepPlanner(std::span<const AllocationRecord> records, std::span<const RangeRecord> ranges, const std::vector<bool>& left_out,
                std::int64_t alignment)
        : records_(records), left_out_(left_out), alignment_(alignment) {
        MGPLAN_ASSERT(left_out.empty() || left_out.size() == records.size(), "every record is left out or not");
        arena_.offsets.assign(records.size(), -1);
        in_slot_.assign(records.size(), -1);
        for (const auto& record : records) clock_ = std::max({clock_, record.taken + 1, record.returned + 1});
        cut(ranges);
    }

    StepArena plan() {
        sort_records();
        arena_.lower_bound = most_alive(lives());
        arena_.carried = place_carried();
        place_slots();
        for (Stretch& stretch : stretches_) {
            if (stretch.chunk >= 0 || stretch.alive > 0) place_pass(stretch);
        }
        for (Stretch& stretch : stretches_) {
            if (stretch.chunk < 0 && stretch.alive == 0) place_outside(stretch);
        }
        settle();
        return std::move(arena_);
    }

private:
    [[nodiscard]] std::int64_t rounded(std::int64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }
    [[nodiscard]] bool planned(std::size_t i) const { return left_out_.empty() || !left_out_[i]; }
    [[nodiscard]] std::int64_t end_of(std::size_t i) const { return records_[i].returned < 0 ? clock_ : records_[i].returned; }

    [[nodiscard]] std::vector<ArenaItem> lives() const {
        std::vector<ArenaItem> items;
        for (std::size_t i = 0; i < records_.size(); ++i) {
            if (planned(i)) items.push_back({records_[i].bytes, records_[i].taken, end_of(i)});
        }
        return items;
    }

    /// Cuts time into stretches and finds each forward's backward.
    void cut(std::span<const RangeRecord> ranges) {
        std::int64_t now = 0;
        std::map<int, std::vector<std::int64_t>> forwards;  // by chunk, the oldest first
        std::map<int, std::size_t> backwards;               // by chunk: how many there were
        for (const RangeRecord& range : ranges) {
            const bool forward = range.name == "chunk forward";
            if (range.depth != 0 || (!forward && range.name != "chunk backward")) continue;
            stretches_.push_back({.begin = now, .end = range.begin});
            stretches_.push_back({.begin = range.begin, .end = range.end, .chunk = static_cast<int>(range.number), .forward = forward});
            now = range.end;
            const auto self = std::ssize(stretches_) - 1;
            auto& open = forwards[stretches_.back().chunk];
            if (forward) {
                open.push_back(self);
            } else if (auto& done = backwards[stretches_.back().chunk]; done < open.size()) {
                stretches_[static_cast<std::size_t>(self)].partner = open[done];
                stretches_[static_cast<std::size_t>(open[done])].partner = self;
                ++done;
            }
        }
        stretches_.push_back({.begin = now, .end = clock_});
        std::int64_t alive = 0;
        for (Stretch& stretch : stretches_) {
            if (stretch.forward && stretch.partner >= 0) ++alive;
            stretch.alive = alive;
            arena_.slot_count = std::max(arena_.slot_count, alive);
            if (stretch.chunk >= 0 && !stretch.forward && stretch.partner >= 0) --alive;
        }
    }

    [[nodiscard]] std::size_t stretch_at(std::int64_t when) const {
        const auto next = std::upper_bound(stretches_.begin(), stretches_.end(), when,
                                           [](std::int64_t time, const Stretch& stretch) { return time < stretch.end; });
        return static_cast<std::size_t>(next - stretches_.begin());
    }

    /// Says of every record which region it belongs to.
    void sort_records() {
        std::size_t at = 0;
        for (std::size_t i = 0; i < records_.size(); ++i) {
            if (!planned(i)) continue;
            const AllocationRecord& record = records_[i];
            if (record.returned < 0) {
                arena_.offsets[i] = arena_.persistent;
                arena_.persistent += rounded(record.bytes);
                continue;
            }
            while (stretches_[at].end <= record.taken) ++at;  // records are in the order of taking
            Stretch& stretch = stretches_[at];
            if (record.returned < stretch.end) {
                stretch.local.push_back(i);
            } else if (stretch.forward && stretch.partner >= 0 && static_cast<std::int64_t>(stretch_at(record.returned)) == stretch.partner) {
                in_slot_[i] = stretch.room;
                stretch.room += rounded(record.bytes);
                stretch.left.push_back(i);
            } else {
                carried_.push_back(i);
            }
        }
    }

    std::int64_t place_carried() {
        std::vector<ArenaItem> items;
        for (const std::size_t i : carried_) items.push_back({records_[i].bytes, records_[i].taken, records_[i].returned});
        const ArenaPlan plan = plan_arena(items, alignment_);
        for (std::size_t k = 0; k < carried_.size(); ++k) arena_.offsets[carried_[k]] = arena_.persistent + plan.offsets[k];
        return plan.total;
    }

    /// Slots as large as the largest are used first-in-first-out; where chunks differ so much that this wastes room, each
    /// microbatch of a chunk gets a piece of its own size.
    void place_slots() {
        std::vector<ArenaItem> pieces;
        std::vector<std::size_t> forwards;
        std::int64_t largest = 0;
        for (std::size_t i = 0; i < stretches_.size(); ++i) {
            const Stretch& stretch = stretches_[i];
            if (!stretch.forward || stretch.partner < 0) continue;
            forwards.push_back(i);
            pieces.push_back({stretch.room, static_cast<std::int64_t>(i), stretch.partner + 1});
            largest = std::max(largest, stretch.room);
        }
        const ArenaPlan own = plan_arena(pieces, alignment_);
        const std::int64_t equal = largest * arena_.slot_count;
        arena_.slots = std::min(own.total, equal);
        std::vector<std::int64_t> free;  // the one that has been free for longest first
        std::size_t oldest = 0;
        for (std::int64_t slot = 0; slot < arena_.slot_count; ++slot) free.push_back(slot * largest);
        std::size_t next = 0;
        for (Stretch& stretch : stretches_) {
            if (stretch.chunk < 0 || stretch.partner < 0) continue;
            if (stretch.forward) {
                stretch.slot = equal <= own.total ? free[oldest] : own.offsets[next];
                if (equal <= own.total) stretch.room = largest;
                ++oldest;
                ++next;
            } else {
                const Stretch& forward = stretches_[static_cast<std::size_t>(stretch.partner)];
                stretch.slot = forward.slot;
                stretch.room = forward.room;
                free.push_back(stretch.slot);
            }
        }
        for (const std::size_t f : forwards) {
            for (const std::size_t i : stretches_[f].left) arena_.offsets[i] = arena_.persistent + arena_.carried + stretches_[f].slot + in_slot_[i];
        }
    }

    /// What a plan of a pass depends on, in numbers.
    [[nodiscard]] std::vector<std::int64_t> signature(const Stretch& stretch, const std::vector<ArenaItem>& items,
                                                      const std::vector<ArenaObstacle>& obstacles, std::int64_t wall) const {
        std::vector<std::int64_t> numbers{wall, stretch.end - stretch.begin, std::ssize(items)};
        for (const ArenaItem& item : items) numbers.insert(numbers.end(), {item.bytes, item.begin, item.end});
        for (const ArenaObstacle& each : obstacles)
            numbers.insert(numbers.end(), {each.item.bytes, each.item.begin, each.item.end, each.offset});
        return numbers;
    }

    void place_pass(Stretch& stretch) {
        std::vector<ArenaItem> items;
        for (const std::size_t i : stretch.local) {
            const AllocationRecord& record = records_[i];
            items.push_back({record.bytes, record.taken - stretch.begin, record.returned - stretch.begin});
        }
        std::vector<ArenaObstacle> obstacles;
        const std::int64_t length = stretch.end - stretch.begin;
        const Stretch* const forward = stretch.partner < 0 ? nullptr
                                       : stretch.forward   ? &stretch
                                                           : &stretches_[static_cast<std::size_t>(stretch.partner)];
        if (forward != nullptr) {
            for (const std::size_t i : forward->left) {
                ArenaItem life{records_[i].bytes, 0, length};
                if (stretch.forward)
                    life.begin = records_[i].taken - stretch.begin;
                else
                    life.end = records_[i].returned - stretch.begin;
                if (life.end > life.begin) obstacles.push_back({life, in_slot_[i]});
            }
        }
        // A single slot lies right below the scratch.
        const bool joined = arena_.slot_count == 1 && forward != nullptr;
        const std::int64_t room = joined ? arena_.slots : forward != nullptr ? stretch.room : 0;
        const auto [entry, fresh] = passes_.try_emplace(signature(stretch, items, obstacles, room));
        PassPlan& plan = entry->second;
        if (fresh) {
            ArenaRules rules;
            rules.alignment = alignment_;
            rules.obstacles = obstacles;
            rules.wall = joined ? 0 : room;
            ArenaPlan placed = plan_arena(items, rules);
            plan.offsets = std::move(placed.offsets);
            plan.wall = room;
            plan.scratch = std::max<std::int64_t>(0, placed.total - room);
            arena_.scratch = std::max(arena_.scratch, plan.scratch);
        }
        const std::int64_t base = arena_.persistent + arena_.carried;
        for (std::size_t k = 0; k < stretch.local.size(); ++k) {
            const std::int64_t offset = plan.offsets[k];
            arena_.offsets[stretch.local[k]] =
                base + (joined ? offset : offset < plan.wall ? stretch.slot + offset : arena_.slots + offset - plan.wall);
        }
    }

    void place_outside(Stretch& stretch) {
        std::vector<ArenaItem> items;
        for (const std::size_t i : stretch.local) items.push_back({records_[i].bytes, records_[i].taken, records_[i].returned});
        const ArenaPlan plan = plan_arena(items, alignment_);
        arena_.outside = std::max(arena_.outside, plan.total);
        for (std::size_t k = 0; k < stretch.local.size(); ++k)
            arena_.offsets[stretch.local[k]] = arena_.persistent + arena_.carried + plan.offsets[k];
    }

    void settle() { arena_.total = arena_.persistent + arena_.carried + std::max(arena_.slots + arena_.scratch, arena_.outside); }

    std::span<const AllocationRecord> records_;
    const std::vector<bool>& left_out_;
    std::int64_t alignment_;
    std::int64_t clock_ = 0;  ///< one behind the last instant
    std::vector<Stretch> stretches_;
    std::vector<std::int64_t> in_slot_;  ///< of each record left for a backward: its offset in the slot
    std::vector<std::size_t> carried_;
    std::map<std::vector<std::int64_t>, PassPlan> passes_;
    StepArena arena_;
};

}  // namespace

StepArena plan_step(std::span<const AllocationRecord> records, std::span<const RangeRecord> ranges, const std::vector<bool>& left_out,
                    std::int64_t alignment) {
    return StepPlanner(records, ranges, left_out, alignment).plan();
}

}  // namespace mgplan::model
