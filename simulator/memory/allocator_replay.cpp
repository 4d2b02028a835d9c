#include "simulator/memory/allocator_replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <limits>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

/// Allocation or free of an element of a list.
struct Event {
    std::int64_t time = 0;
    std::size_t allocation = 0;
    bool take = true;
};

/// Sorted by time; at equal times in the order of the list.
std::vector<Event> events_of(std::span<const Allocation> allocations) {
    std::vector<Event> events;
    events.reserve(2 * allocations.size());
    // Played lists have a distinct time for each event, from 0 on: such events go directly to their index; the few others are sorted.
    const std::size_t places = 2 * allocations.size();
    std::vector<Event> by_time(places, Event{-1, 0, false});
    bool apart = true;
    const auto add = [&](const Event& event) {
        if (event.time < 0 || event.time >= static_cast<std::int64_t>(places)) {
            apart = apart && event.time >= 0;
            events.push_back(event);
            return;
        }
        Event& place = by_time[static_cast<std::size_t>(event.time)];
        apart = apart && place.time < 0;
        place = event;
    };
    const auto add_all = [&](const auto& add_one) {
        for (std::size_t i = 0; i < allocations.size(); ++i) {
            if (allocations[i].bytes <= 0) continue;
            add_one(Event{allocations[i].taken, i, true});
            if (allocations[i].returned >= 0) add_one(Event{allocations[i].returned, i, false});
        }
    };
    add_all(add);
    if (!apart) {
        events.clear();
        add_all([&](const Event& event) { events.push_back(event); });
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.time < b.time; });
    if (!apart) return events;
    std::erase_if(by_time, [](const Event& event) { return event.time < 0; });
    by_time.insert(by_time.end(), events.begin(), events.end());
    return by_time;
}

/// Replays a list repeatedly; allocations that it keeps happen only the first time.
class Tape {
public:
    explicit Tape(std::span<const Allocation> allocations)
        : allocations_(allocations), events_(events_of(allocations)), live_(allocations.size(), -1) {}

    /// Stops and returns false if the allocator reserves `enough` or more.
    bool play(CachingAllocator& allocator, std::int64_t enough, ReplayRecord* record) {
        if (record != nullptr) record->parts.push_back({record->events.size(), record->live_bytes});
        for (const Event& event : events_) {
            std::int64_t& number = live_[event.allocation];
            if (event.take) {
                if (number >= 0) continue;
                number = allocator.allocate(allocations_[event.allocation].bytes);
                if (record != nullptr) add(*record, event, allocator.place_of(number));
                if (allocator.reserved_bytes() >= enough) return false;
            } else if (number >= 0) {
                if (record != nullptr) add(*record, event, allocator.place_of(number));
                allocator.free(number);
                number = -1;
            }
        }
        return true;
    }

    /// Upper bound of the bytes that it keeps: allocated in the first replay and present from the start of each later one.
    [[nodiscard]] std::int64_t kept_at_most(const CachingAllocator& allocator) const {
        std::int64_t kept = 0;
        for (const Allocation& each : allocations_) {
            if (each.bytes > 0 && lasts(each)) kept += allocator.largest_block(each.bytes);
        }
        return kept;
    }

    /// Upper bound of the peak of the bytes that it frees.
    [[nodiscard]] std::int64_t passing_at_most(const CachingAllocator& allocator) const {
        std::int64_t now = 0, most = 0;
        for (const Event& event : events_) {
            const Allocation& each = allocations_[event.allocation];
            if (lasts(each)) continue;
            now += (event.take ? 1 : -1) * allocator.largest_block(each.bytes);
            most = std::max(most, now);
        }
        return most;
    }

private:
    /// True if the allocation is live when the tape ends.
    [[nodiscard]] static bool lasts(const Allocation& one) { return one.returned < one.taken; }

    void add(ReplayRecord& record, const Event& event, const BlockPlace& place) const {
        record.events.push_back({event.take ? ReplayRecord::Action::take : ReplayRecord::Action::give_back, event.allocation, place});
        record.live_bytes += (event.take ? 1 : -1) * allocations_[event.allocation].bytes;
        std::int64_t& peak = record.parts.back().peak_bytes;
        peak = std::max(peak, record.live_bytes);
    }

    std::span<const Allocation> allocations_;
    std::vector<Event> events_;
    std::vector<std::int64_t> live_;
};

/// Position of an event in the trace: the index of a pass, before all of them, or after.
constexpr std::size_t kBefore = std::numeric_limits<std::size_t>::max() - 1;
constexpr std::size_t kBehind = kBefore + 1;

class Player {
public:
    Player(const IterationTrace& trace, const RankSchedule& schedule, const model::SendDepth& depth, std::vector<PlayedTensor>* origins)
        : trace_(trace), schedule_(schedule), depth_(depth), origins_(origins) {
        const std::size_t count = trace.tensors.size();
        oldest_.resize(count, kNone);
        latest_.resize(count, kNone);
        taken_in_.resize(count);
        returned_in_.resize(count);
        by_pass_.resize(trace.passes.size());
        for (std::size_t i = 0; i < count; ++i) {
            taken_in_[i] = pass_at(trace.tensors[i].taken);
            returned_in_[i] = trace.tensors[i].returned < 0 ? kBehind : pass_at(trace.tensors[i].returned);
        }
        for (const Event& event : events_of(trace.tensors)) {
            const std::size_t pass = event.take ? taken_in_[event.allocation] : returned_in_[event.allocation];
            (pass == kBefore ? before_ : pass == kBehind ? behind_ : by_pass_[pass]).push_back(event);
        }
    }

    std::vector<Allocation> play() {
        for (const Event& event : before_) event.take ? take(event.allocation) : give_back(event.allocation);
        for (const PipelineOp& op : schedule_.ops) {
            running_ = op;
            run(signed_chunk(op));
        }
        running_.reset();
        for (std::deque<std::size_t>* sent : {&sent_forward_, &sent_backward_}) {
            for (const std::size_t tensor : *sent) give_back(tensor);
        }
        for (const Event& event : behind_) {
            if (event.take)
                take(event.allocation);
            else if (is_open(event.allocation))
                give_back(event.allocation);
        }
        return std::move(played_);
    }

private:
    [[nodiscard]] std::size_t pass_at(std::int64_t time) const {
        if (trace_.passes.empty() || time < trace_.passes.front().begin) return kBefore;
        const auto behind = std::upper_bound(trace_.passes.begin(), trace_.passes.end(), time,
                                             [](std::int64_t t, const TracedPass& pass) { return t < pass.end; });
        return behind == trace_.passes.end() ? kBehind : static_cast<std::size_t>(behind - trace_.passes.begin());
    }

    /// True for a tensor taken by a pass and freed neither by it nor by the other pass of its chunk.
    [[nodiscard]] bool is_message(std::size_t tensor) const {
        const std::size_t taken = taken_in_[tensor], returned = returned_in_[tensor];
        if (taken >= kBefore || trace_.tensors[tensor].returned < 0) return false;
        return returned >= kBefore || std::abs(trace_.passes[taken].op) != std::abs(trace_.passes[returned].op);
    }

    void run(int op) {
        const auto same = [op](const TracedPass& pass) { return pass.op == op; };
        const auto found = std::find_if(trace_.passes.begin(), trace_.passes.end(), same);
        MGPLAN_ASSERT(found != trace_.passes.end(), "every pass of the schedule is in the trace");
        std::deque<std::size_t>& sent = op > 0 ? sent_forward_ : sent_backward_;
        for (const Event& event : by_pass_[static_cast<std::size_t>(found - trace_.passes.begin())]) {
            if (is_message(event.allocation)) {
                if (!event.take) continue;
                take(event.allocation);
                sent.push_back(event.allocation);
            } else if (event.take) {
                // Tensors that passes keep are allocated only the first time.
                if (trace_.tensors[event.allocation].returned >= 0 || !is_open(event.allocation)) take(event.allocation);
            } else if (is_open(event.allocation)) {
                give_back(event.allocation);
            }
        }
        while (std::ssize(sent) > (op > 0 ? depth_.forward : depth_.backward)) {
            give_back(sent.front());
            sent.pop_front();
        }
    }

    [[nodiscard]] bool is_open(std::size_t tensor) const { return oldest_[tensor] != kNone; }
    void take(std::size_t tensor) {
        (is_open(tensor) ? next_[latest_[tensor]] : oldest_[tensor]) = played_.size();
        latest_[tensor] = played_.size();
        next_.push_back(kNone);
        if (origins_ != nullptr) origins_->push_back({tensor, running_});
        played_.push_back({trace_.tensors[tensor].bytes, clock_++, -1});
    }
    void give_back(std::size_t tensor) {
        std::size_t& oldest = oldest_[tensor];
        played_[oldest].returned = clock_++;
        oldest = next_[oldest];
    }

    const IterationTrace& trace_;
    const RankSchedule& schedule_;
    model::SendDepth depth_;
    std::vector<PlayedTensor>* origins_;
    std::optional<PipelineOp> running_;
    std::deque<std::size_t> sent_forward_, sent_backward_;  ///< open messages, oldest first
    std::vector<std::size_t> taken_in_, returned_in_;
    std::vector<Event> before_, behind_;
    std::vector<std::vector<Event>> by_pass_;
    // Open allocations of each tensor of the trace, oldest first, as a linked list of indices in played_.
    static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> oldest_, latest_;  ///< by tensor
    std::vector<std::size_t> next_;             ///< by index in played_: the next one of the same tensor
    std::vector<Allocation> played_;
    std::int64_t clock_ = 0;
};

}  // namespace

ReservedMemory replay_allocator(std::span<const Allocation> setup, std::span<const Allocation> iteration, int iterations,
                                const CachingAllocatorOptions& options) {
    return *replay_allocator_within(std::numeric_limits<double>::infinity(), setup, iteration, iterations, options);
}

std::optional<ReservedMemory> replay_allocator_within(double most_fragmentation, std::span<const Allocation> setup,
                                                      std::span<const Allocation> iteration, int iterations,
                                                      const CachingAllocatorOptions& options, ReplayRecord* record) {
    MGPLAN_ASSERT(iterations >= 1, "at least one iteration is played");
    CachingAllocator allocator(options);
    if (record != nullptr) {
        allocator.watch([record](std::int64_t segment, std::int64_t bytes) {
            using enum ReplayRecord::Action;
            record->events.push_back({bytes > 0 ? take_segment : give_segment_back, 0, {segment, 0, std::abs(bytes)}});
        });
    }
    Tape before(setup), tape(iteration);
    // The maximum reserved never shrinks, so its ratio to an upper bound of the allocated peak is enough.
    std::int64_t enough = std::numeric_limits<std::int64_t>::max();
    if (std::isfinite(most_fragmentation)) {
        const std::int64_t most = before.kept_at_most(allocator) + std::max(before.passing_at_most(allocator),
                                                                            tape.kept_at_most(allocator) + tape.passing_at_most(allocator));
        enough = static_cast<std::int64_t>(std::ceil(static_cast<double>(most) * (1 + most_fragmentation))) + 1;
    }
    if (!before.play(allocator, enough, record)) return std::nullopt;
    ReservedMemory memory;
    for (int i = 0; i < iterations; ++i) {
        if (!tape.play(allocator, enough, record)) return std::nullopt;
        const std::int64_t reserved = allocator.peak_reserved_bytes();
        if (i == 0) memory.first = reserved;
        const bool steady = i > 0 && reserved == memory.steady;
        memory.steady = reserved;
        if (steady) break;
    }
    memory.allocated = allocator.peak_allocated_bytes();
    return memory;
}

std::vector<Allocation> play_allocations(const IterationTrace& trace, const RankSchedule& schedule, const model::SendDepth& depth,
                                         std::vector<PlayedTensor>* origins) {
    return Player(trace, schedule, depth, origins).play();
}

}  // namespace mgplan::simulator
