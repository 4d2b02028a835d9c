#include "runtime/comm/in_process/wait_board.hpp"

#include <algorithm>
#include <new>

#include <fmt/format.h>

namespace mgplan::runtime {
namespace {

constexpr std::chrono::milliseconds kLookEvery{50};

std::string ranks_text(const std::vector<std::int32_t>& ranks) {
    return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

WaitBoard::WaitBoard(int ranks, std::optional<std::chrono::milliseconds> deadline) : deadline_(deadline) {
    slots_.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) slots_.push_back(std::make_unique<Slot>());
    watcher_ = std::thread([this] { watch(); });
}

WaitBoard::~WaitBoard() {
    {
        const std::scoped_lock lock(stop_mutex_);
        stop_ = true;
    }
    stop_changed_.notify_all();
    watcher_.join();
}

void WaitBoard::begin(int rank, Awaited& awaited, model::CollectiveKind kind) {
    Slot& slot = *slots_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(slot.mutex);
    slot.awaited = &awaited;
    slot.kind = kind;
    slot.since = Clock::now();
    ++slot.changes;
}

void WaitBoard::end(int rank) {
    Slot& slot = *slots_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(slot.mutex);
    slot.awaited = nullptr;
    ++slot.changes;
}

void WaitBoard::note(int rank, model::CollectiveKind kind, const std::string& group_text) {
    Slot& slot = *slots_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(slot.mutex);
    slot.last_kind = kind;
    slot.last_group = group_text;
}

std::string WaitBoard::whereabouts(int rank) const {
    const Slot& slot = *slots_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(slots_[static_cast<std::size_t>(rank)]->mutex);
    if (slot.last_group.empty()) return "before its first operation";
    return fmt::format("after {} in group {}", to_string(slot.last_kind), slot.last_group);
}

void WaitBoard::enter(int rank) {
    Slot& slot = *slots_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(slot.mutex);
    slot.left = false;
    ++slot.changes;
}

void WaitBoard::leave(int rank) {
    Slot& slot = *slots_[static_cast<std::size_t>(rank)];
    const std::scoped_lock lock(slot.mutex);
    slot.left = true;
    ++slot.changes;
}

void WaitBoard::abort(const std::string& reason) noexcept {
    std::call_once(first_abort_, [&] {
        try {
            reason_ = reason;
        } catch (const std::bad_alloc&) {  // that it was aborted is known all the same
            reason_.clear();
        }
        aborted_.store(true, std::memory_order_release);
        // A rank writes its slot before it reads aborted_ and waits: either it is found here, or it sees the abort.
        for (const auto& slot : slots_) {
            const std::scoped_lock lock(slot->mutex);
            if (slot->awaited != nullptr) slot->awaited->ring();
        }
    });
}

model::CommunicationError WaitBoard::error(int rank, model::CollectiveKind kind, const std::string& group_text) const {
    return model::CommunicationError(fmt::format("rank {}, {} in group {}: {}", rank, to_string(kind), group_text, reason_));
}

std::vector<WaitBoard::Seen> WaitBoard::look() const {
    std::vector<Seen> all;
    all.reserve(slots_.size());
    const auto now = Clock::now();
    for (std::size_t rank = 0; rank < slots_.size(); ++rank) {
        const Slot& slot = *slots_[rank];
        const std::scoped_lock lock(slots_[rank]->mutex);
        Seen seen{slot.left, slot.changes, {}, {}, {}};
        if (slot.awaited != nullptr) {
            seen.missing = slot.awaited->missing();
            seen.waited = now - slot.since;
            if (seen.stuck()) {
                seen.text = fmt::format("rank {} in {} of group {} waits for {}", rank, to_string(slot.kind), slot.awaited->group_text(),
                                        ranks_text(seen.missing));
            }
        }
        all.push_back(std::move(seen));
    }
    return all;
}

// The rank that waits longest often waits for a rank that itself waits; the cause is at the end of the chain.
std::string WaitBoard::chain_from(const std::vector<Seen>& seen, std::int32_t first) const {
    std::vector<std::int32_t> reached{first};
    std::string text;
    for (std::size_t i = 0; i < reached.size(); ++i) {
        const std::int32_t rank = reached[i];
        const Seen& at = seen[static_cast<std::size_t>(rank)];
        text += i == 0 ? "" : "; ";
        if (at.stuck()) {
            text += at.text;
        } else if (at.left) {
            text += fmt::format("rank {} has finished", rank);
        } else {
            text += fmt::format("rank {} is {}", rank, whereabouts(rank));
        }
        for (const std::int32_t next : at.missing) {
            if (std::find(reached.begin(), reached.end(), next) == reached.end()) reached.push_back(next);
        }
    }
    return text;
}

std::optional<std::string> WaitBoard::verdict(const std::vector<Seen>& before, const std::vector<Seen>& now) const {
    if (deadline_) {
        const auto late = std::max_element(now.begin(), now.end(), [](const Seen& a, const Seen& b) {
            return (a.stuck() ? a.waited : Clock::duration{}) < (b.stuck() ? b.waited : Clock::duration{});
        });
        if (late->stuck() && late->waited >= *deadline_) {
            return fmt::format("no progress within the deadline of {} ms: {}", deadline_->count(),
                               chain_from(now, static_cast<std::int32_t>(late - now.begin())));
        }
    }
    // Slots are read one after the other; but if none changed since the last look, all had these values at one time in between.
    std::string waiting;
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
        if (before.empty() || before[rank].changes != now[rank].changes || (!now[rank].left && !now[rank].stuck())) return std::nullopt;
        if (!now[rank].left) waiting += (waiting.empty() ? "" : "; ") + now[rank].text;
    }
    if (waiting.empty()) return std::nullopt;
    std::vector<std::int32_t> gone;
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
        if (now[rank].left) gone.push_back(static_cast<std::int32_t>(rank));
    }
    return fmt::format("no rank can go on: {}{}", waiting, gone.empty() ? "" : fmt::format("; {} already finished", ranks_text(gone)));
}

void WaitBoard::watch() {
    const auto every = deadline_ ? std::clamp(*deadline_ / 4, std::chrono::milliseconds{1}, kLookEvery) : kLookEvery;
    std::vector<Seen> before;
    for (;;) {
        {
            std::unique_lock lock(stop_mutex_);
            if (stop_changed_.wait_for(lock, every, [this] { return stop_; })) return;
        }
        if (aborted()) continue;
        try {
            auto now = look();
            if (const auto reason = verdict(before, now)) abort(*reason);
            before = std::move(now);
        } catch (const std::bad_alloc&) {  // look again later
            before.clear();
        }
    }
}

}  // namespace mgplan::runtime
