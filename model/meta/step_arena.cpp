#include "model/meta/step_arena.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "model/device/arena_plan.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Tensors that one layer of a forward, or the work before or after its layers, saves for the backward, one after another
/// in the order of taking.
struct Piece {
    std::int64_t bytes = 0;
    std::int64_t offset = 0;  ///< among the slots
    std::vector<std::size_t> records{};
};

/// A stretch of the trace: a pass, or what lies between two.
struct Stretch {
    std::int64_t begin = 0, end = 0;  ///< takes and returns number [begin, end)
    int chunk = -1;                   ///< -1: no pass
    bool forward = false;
    std::int64_t partner = -1;         ///< the stretch of the other pass of this microbatch
    bool joint = false;                ///< of a forward: its backward follows at once
    std::vector<std::int64_t> cuts{};  ///< of a forward: where its layers begin and end
    std::vector<std::size_t> local{};  ///< records that live within it, by taking
    std::vector<Piece> pieces{};       ///< of a forward
    std::int64_t alive = 0;            ///< microbatches of chunks in a slot while it runs
};

/// Settings of a plan: few addresses, or little waste.
struct Effort {
    double slot_waste = 0;         ///< room that equal slots may waste, as a share of the lower bound
    bool between_carried = false;  ///< local tensors may lie where no carried tensor does during their pass
    bool fixed = false;            ///< slots are equal, whatever it wastes, and no pass depends on its neighbours in time
};

/// The plan with the fewest addresses is made first; if it wastes a larger share than kEnough, so is the tightest one.
constexpr Effort kFewAddresses{0.01, false}, kTightest{0, true};
constexpr double kEnough = 0.02;
/// If the better plan wastes a larger share than kTooMuch, and there are at most kMostAlone records, each tensor is placed alone.
constexpr double kTooMuch = 0.03;
constexpr std::int64_t kMostAlone = 20'000;

class StepPlanner {
public:
    StepPlanner(std::span<const AllocationRecord> records, std::span<const RangeRecord> ranges, const std::vector<bool>& left_out,
                std::int64_t alignment, const Effort& effort)
        : records_(records), left_out_(left_out), alignment_(alignment), effort_(effort) {
        MGPLAN_ASSERT(left_out.empty() || left_out.size() == records.size(), "every record is left out or not");
        arena_.offsets.assign(records.size(), -1);
        in_piece_.assign(records.size(), -1);
        for (const auto& record : records) clock_ = std::max({clock_, record.taken + 1, record.returned + 1});
        cut(ranges);
    }

    StepArena plan() {
        sort_records();
        trim_joint_pieces();
        arena_.lower_bound = most_alive(lives());
        arena_.carried = place_carried();
        place_slots();
        for (Stretch& stretch : stretches_) {
            if (stretch.chunk >= 0 || stretch.alive > 0) place_pass(stretch);
        }
        for (Stretch& stretch : stretches_) {
            if (stretch.chunk < 0 && stretch.alive == 0 && !stretch.local.empty()) place_outside(stretch);
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
            if (range.name == "layer forward" && range.depth == 1 && !stretches_.empty()) {
                stretches_.back().cuts.push_back(range.begin);
                stretches_.back().cuts.push_back(range.end);
            }
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
            const auto self = &stretch - stretches_.data();
            stretch.joint = !effort_.fixed && stretch.forward && stretch.partner == self + 2 &&
                            stretches_[static_cast<std::size_t>(self) + 1].begin == stretches_[static_cast<std::size_t>(self) + 1].end;
            arena_.slot_count = std::max(arena_.slot_count, alive);
            if (stretch.chunk >= 0 && !stretch.forward && stretch.partner >= 0) --alive;
        }
    }

    [[nodiscard]] std::size_t stretch_at(std::int64_t when) const {
        const auto next = std::upper_bound(stretches_.begin(), stretches_.end(), when,
                                           [](std::int64_t time, const Stretch& stretch) { return time < stretch.end; });
        return static_cast<std::size_t>(next - stretches_.begin());
    }

    /// Assigns every record to its region.
    void sort_records() {
        std::size_t at = 0;
        for (std::size_t i = 0; i < records_.size(); ++i) {
            if (!planned(i)) continue;
            const AllocationRecord& record = records_[i];
            if (record.returned < 0) {
                arena_.offsets[i] = arena_.persistent;
                persistent_.push_back(i);
                arena_.persistent += rounded(record.bytes);
                continue;
            }
            while (stretches_[at].end <= record.taken) ++at;  // records are in the order of taking
            Stretch& stretch = stretches_[at];
            if (record.returned < stretch.end) {
                stretch.local.push_back(i);
            } else if (stretch.forward && stretch.partner >= 0 &&
                       static_cast<std::int64_t>(stretch_at(record.returned)) == stretch.partner) {
                // The piece that the last cut began. What a loss leaves to a backward right after it is in the scratch, not in a slot.
                const auto cut = std::upper_bound(stretch.cuts.begin(), stretch.cuts.end(), record.taken) - stretch.cuts.begin();
                if (stretch.joint && cut == std::ssize(stretch.cuts)) {
                    stretch.local.push_back(i);
                    continue;
                }
                if (stretch.pieces.empty()) stretch.pieces.resize(stretch.cuts.size() + 1);
                Piece& piece = stretch.pieces[static_cast<std::size_t>(cut)];
                in_piece_[i] = piece.bytes;
                piece.bytes += rounded(record.bytes);
                piece.records.push_back(i);
            } else {
                carried_.push_back(i);
            }
        }
    }

    /// A forward right before its backward may save more than others, such as the loss's input. Tensors beyond the size
    /// of the others' pieces are treated as local.
    void trim_joint_pieces() {
        std::int64_t largest = 0;
        for (const Stretch& stretch : stretches_) {
            if (stretch.joint) continue;
            for (const Piece& piece : stretch.pieces) largest = std::max(largest, piece.bytes);
        }
        if (largest == 0) return;
        for (Stretch& stretch : stretches_) {
            if (!stretch.joint) continue;
            for (Piece& piece : stretch.pieces) {
                const auto records = std::exchange(piece.records, {});
                piece.bytes = 0;
                for (const std::size_t i : records) {
                    if (piece.bytes + rounded(records_[i].bytes) > largest) {
                        stretch.local.push_back(i);
                        continue;
                    }
                    in_piece_[i] = piece.bytes;
                    piece.bytes += rounded(records_[i].bytes);
                    piece.records.push_back(i);
                }
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

    /// Slots as large as the largest, used first-in-first-out; where chunks differ so much that this would waste room, each
    /// piece gets a place of its own instead.
    void place_slots() {
        std::vector<ArenaItem> items;
        std::int64_t largest = 0;
        for (std::size_t i = 0; i < stretches_.size(); ++i) {
            std::int64_t bytes = 0;
            for (const Piece& piece : stretches_[i].pieces) {
                items.push_back({piece.bytes, static_cast<std::int64_t>(i), stretches_[i].partner + 1});
                bytes += piece.bytes;
            }
            largest = std::max(largest, bytes);
        }
        arena_.slots = largest * arena_.slot_count;
        if (effort_.fixed ||
            static_cast<double>(arena_.slots - most_alive(items)) <= effort_.slot_waste * static_cast<double>(arena_.lower_bound)) {
            place_equal_slots(largest);
        } else {
            const ArenaPlan own = plan_arena(items, alignment_);
            if (own.total < arena_.slots) {
                arena_.slots = own.total;
                std::size_t next = 0;
                for (Stretch& stretch : stretches_) {
                    for (Piece& piece : stretch.pieces) piece.offset = own.offsets[next++];
                }
            } else {
                place_equal_slots(largest);
            }
        }
        const std::int64_t base = arena_.persistent + arena_.carried;
        for (const Stretch& stretch : stretches_) {
            for (const Piece& piece : stretch.pieces) {
                for (const std::size_t i : piece.records) arena_.offsets[i] = base + piece.offset + in_piece_[i];
            }
        }
    }

    void place_equal_slots(std::int64_t largest) {
        std::deque<std::int64_t> free;  // the one that has been free for longest first, as plan/graphs/graph_slots.cpp
        std::int64_t used = 0;
        std::map<std::int64_t, std::int64_t> taken;  // by stretch of the backward
        for (std::size_t i = 0; i < stretches_.size(); ++i) {
            Stretch& stretch = stretches_[i];
            if (stretch.chunk < 0 || stretch.partner < 0) continue;
            if (stretch.forward) {
                if (free.empty()) free.push_back(used++ * largest);
                std::int64_t offset = free.front();
                taken[stretch.partner] = offset;
                free.pop_front();
                // The rest of the slot after the last piece is room too.
                const std::int64_t end = offset + largest;
                for (Piece& piece : stretch.pieces) {
                    piece.offset = offset;
                    offset += piece.bytes;
                }
                if (offset < end) stretch.pieces.push_back({end - offset, offset});
            } else {
                free.push_back(taken.extract(static_cast<std::int64_t>(i)).mapped());
            }
        }
    }

    /// Room that a pass may fill besides the scratch: contiguous pieces of its own slot are one room.
    struct Room {
        std::int64_t offset = 0, bytes = 0;
    };

    /// Returns the carried tensors alive in some part of a pass; called in the order of time.
    const std::vector<std::size_t>& carried_during(std::int64_t begin, std::int64_t length) {
        std::erase_if(carried_now_, [&](std::size_t i) { return records_[i].returned <= begin; });
        for (; next_carried_ < carried_.size() && records_[carried_[next_carried_]].taken < begin + length; ++next_carried_)
            carried_now_.push_back(carried_[next_carried_]);
        return carried_now_;
    }

    /// Plans a pass, a forward together with the backward that follows at once.
    void place_pass(const Stretch& stretch) {
        const Stretch* const partner = stretch.partner < 0 ? nullptr : &stretches_[static_cast<std::size_t>(stretch.partner)];
        if (!stretch.forward && partner != nullptr && partner->joint) return;  // done
        const Stretch* const forward = stretch.forward ? &stretch : partner;
        std::vector<std::size_t> local = stretch.local;
        std::int64_t length = stretch.end - stretch.begin;
        if (stretch.joint) {
            local.insert(local.end(), partner->local.begin(), partner->local.end());
            length = partner->end - stretch.begin;
        }
        const auto life_in_pass = [&](std::size_t i) {
            return ArenaItem{records_[i].bytes, std::max<std::int64_t>(records_[i].taken - stretch.begin, 0),
                             std::min(records_[i].returned - stretch.begin, length)};
        };
        std::vector<ArenaItem> items;
        for (const std::size_t i : local) items.push_back(life_in_pass(i));
        // Rooms one after another, then the scratch, as the plan sees them.
        std::vector<ArenaObstacle> obstacles;
        std::vector<Room> rooms;
        std::vector<std::int64_t> walls;
        std::int64_t end = 0;
        if (effort_.between_carried && arena_.carried > 0) {
            rooms.push_back({-arena_.carried, arena_.carried});
            walls.push_back(arena_.carried);
            end = arena_.carried;
            for (const std::size_t i : carried_during(stretch.begin, length)) {
                const ArenaItem life = life_in_pass(i);
                if (life.end > life.begin) obstacles.push_back({life, arena_.offsets[i] - arena_.persistent});
            }
        }
        if (forward != nullptr) {
            for (const Piece& piece : forward->pieces) {
                if (piece.bytes == 0) continue;
                if (!rooms.empty() && rooms.back().offset + rooms.back().bytes == piece.offset) {
                    rooms.back().bytes += piece.bytes;
                    walls.back() += piece.bytes;
                } else {
                    rooms.push_back({piece.offset, piece.bytes});
                    walls.push_back(end + piece.bytes);
                }
                for (const std::size_t i : piece.records) {
                    const ArenaItem life = life_in_pass(i);
                    if (life.end > life.begin) obstacles.push_back({life, end + in_piece_[i]});
                }
                end += piece.bytes;
            }
        }
        // A room right below the scratch is one with it.
        const bool joined = !rooms.empty() && rooms.back().offset + rooms.back().bytes == arena_.slots;
        if (joined) walls.pop_back();
        std::vector<std::int64_t> signature{joined ? 1 : 0, std::ssize(walls), std::ssize(items)};
        signature.insert(signature.end(), walls.begin(), walls.end());
        for (const ArenaItem& item : items) signature.insert(signature.end(), {item.bytes, item.begin, item.end});
        for (const ArenaObstacle& each : obstacles)
            signature.insert(signature.end(), {each.item.bytes, each.item.begin, each.item.end, each.offset});
        const auto [entry, fresh] = passes_.try_emplace(std::move(signature));
        if (fresh) {
            ArenaRules rules;
            rules.alignment = alignment_;
            rules.obstacles = obstacles;
            rules.walls = walls;
            ArenaPlan placed = plan_arena(items, rules);
            entry->second = std::move(placed.offsets);
            arena_.scratch = std::max(arena_.scratch, placed.total - end);
        }
        const std::vector<std::int64_t>& offsets = entry->second;
        const std::int64_t base = arena_.persistent + arena_.carried;
        for (std::size_t k = 0; k < local.size(); ++k) {
            std::int64_t at = offsets[k], room_begin = 0, found = arena_.slots - end;  // scratch, and a room joined to it
            for (const Room& room : rooms) {
                if (at < room_begin + room.bytes) {
                    found = room.offset - room_begin;
                    break;
                }
                room_begin += room.bytes;
            }
            arena_.offsets[local[k]] = base + found + at;
        }
    }

    /// Slots and scratch are free then, and while persistent buffers are being made, so is the room of those that do not exist yet.
    void place_outside(const Stretch& stretch) {
        std::vector<ArenaItem> items;
        for (const std::size_t i : stretch.local) items.push_back({records_[i].bytes, records_[i].taken, records_[i].returned});
        std::vector<ArenaObstacle> obstacles;
        std::int64_t there = 0;  // persistent bytes from the stretch's begin on
        for (const std::size_t i : persistent_) {
            if (records_[i].taken < stretch.begin)
                there = arena_.offsets[i] + rounded(records_[i].bytes);
            else if (records_[i].taken < stretch.end)
                obstacles.push_back({{records_[i].bytes, records_[i].taken, stretch.end}, arena_.offsets[i]});
        }
        if (there > 0) obstacles.push_back({{there, stretch.begin, stretch.end}, 0});
        for (const std::size_t i : carried_) {
            const ArenaItem life{records_[i].bytes, std::max(records_[i].taken, stretch.begin),
                                 std::min(records_[i].returned, stretch.end)};
            if (life.end > life.begin) obstacles.push_back({life, arena_.offsets[i]});
        }
        ArenaRules rules;
        rules.alignment = alignment_;
        rules.obstacles = obstacles;
        const ArenaPlan plan = plan_arena(items, rules);
        arena_.outside = std::max(arena_.outside, plan.total - arena_.persistent - arena_.carried);
        for (std::size_t k = 0; k < stretch.local.size(); ++k) arena_.offsets[stretch.local[k]] = plan.offsets[k];
    }

    void settle() { arena_.total = arena_.persistent + arena_.carried + std::max(arena_.slots + arena_.scratch, arena_.outside); }

    std::span<const AllocationRecord> records_;
    const std::vector<bool>& left_out_;
    std::int64_t alignment_;
    Effort effort_;
    std::int64_t clock_ = 0;  ///< one after the last instant
    std::vector<Stretch> stretches_;
    std::vector<std::int64_t> in_piece_;  ///< of each record left for a backward: its offset in the piece
    std::vector<std::size_t> persistent_, carried_;
    std::vector<std::size_t> carried_now_;
    std::size_t next_carried_ = 0;                                           ///< the first of carried_ that has not been in carried_now_
    std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> passes_;  ///< offsets of local tensors by what they follow from
    StepArena arena_;
};

/// Every tensor that is given back on its own, without slots.
StepArena each_alone(std::span<const AllocationRecord> records, const std::vector<bool>& left_out, std::int64_t alignment) {
    StepArena arena;
    arena.offsets.assign(records.size(), -1);
    std::vector<ArenaItem> items;
    std::vector<std::size_t> placed;
    for (std::size_t i = 0; i < records.size(); ++i) {
        if (!left_out.empty() && left_out[i]) continue;
        const AllocationRecord& record = records[i];
        if (record.returned < 0) {
            arena.offsets[i] = arena.persistent;
            arena.persistent += (record.bytes + alignment - 1) / alignment * alignment;
        } else {
            items.push_back({record.bytes, record.taken, record.returned});
            placed.push_back(i);
        }
    }
    const ArenaPlan plan = plan_arena(items, alignment);
    for (std::size_t k = 0; k < placed.size(); ++k) arena.offsets[placed[k]] = arena.persistent + plan.offsets[k];
    arena.scratch = plan.total;
    arena.total = arena.persistent + plan.total;
    return arena;
}

}  // namespace

StepArena plan_step(std::span<const AllocationRecord> records, std::span<const RangeRecord> ranges, const std::vector<bool>& left_out,
                    std::int64_t alignment, ArenaPurpose purpose) {
    if (purpose == ArenaPurpose::fixed_addresses)
        return StepPlanner(records, ranges, left_out, alignment, {.between_carried = false, .fixed = true}).plan();
    StepArena plan = StepPlanner(records, ranges, left_out, alignment, kFewAddresses).plan();
    if (plan.waste() <= kEnough) return plan;
    StepArena tight = StepPlanner(records, ranges, left_out, alignment, kTightest).plan();
    if (tight.total < plan.total) plan = std::move(tight);
    if (plan.waste() <= kTooMuch || std::ssize(records) > kMostAlone) return plan;
    StepArena alone = each_alone(records, left_out, alignment);
    if (alone.total >= plan.total) return plan;
    alone.lower_bound = plan.lower_bound;
    alone.slot_count = plan.slot_count;
    return alone;
}

}  // namespace mgplan::model
