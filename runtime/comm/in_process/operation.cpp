#include "runtime/comm/in_process/operation.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include <fmt/core.h>

#include "runtime/comm/reduce.hpp"

namespace mgplan::runtime {
namespace {

using model::CollectiveKind;

constexpr int kClosed = 1 << 30;
// Waking the others costs more than doing this little alone (about 5 us at 10 GB/s against 2 to 20 us a wake-up).
constexpr std::int64_t kDoneByTheLast = 64 * 1024;
constexpr std::int64_t kSmallestPart = 16 * 1024;

void copy_on_host(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::int64_t sum_before(const std::vector<std::int64_t>& counts, std::size_t end) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{0});
}

std::string_view to_string(model::Reduction reduction) {
    switch (reduction) {
        case model::Reduction::sum:
            return "sum";
        case model::Reduction::average:
            return "average";
        case model::Reduction::maximum:
            return "maximum";
    }
    return "";
}

std::string text(const Contribution& contribution) {
    std::string text = fmt::format("{} of {} bytes of {}", to_string(contribution.kind), contribution.bytes, to_string(contribution.dtype));
    if (contribution.kind == CollectiveKind::all_reduce || contribution.kind == CollectiveKind::reduce_scatter) {
        text += fmt::format(" to the {}", to_string(contribution.reduction));
    }
    if (contribution.kind == CollectiveKind::broadcast) text += fmt::format(" from member {}", contribution.root);
    return text;
}

bool alike(const Contribution& a, const Contribution& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.reduction == b.reduction && a.root == b.root &&
           (a.bytes == b.bytes || a.kind == CollectiveKind::all_to_all || !a.receive_bytes.empty()) &&
           (a.kind == CollectiveKind::all_to_all || (a.send_bytes == b.send_bytes && a.receive_bytes == b.receive_bytes));
}

}  // namespace

Operation::Operation(std::span<const std::int32_t> ranks, const std::string& group_text)
    : Awaited(group_text), ranks_(ranks), contributions_(ranks.size()), came_(ranks.size()) {}

std::optional<std::string> Operation::arrive(int member, Contribution contribution) {
    contributions_[static_cast<std::size_t>(member)] = std::move(contribution);
    came_[static_cast<std::size_t>(member)].store(true, std::memory_order_release);
    if (arrivals_.fetch_add(1, std::memory_order_acq_rel) + 1 < static_cast<int>(ranks_.size())) return std::nullopt;

    if (auto complaint = disagreement()) return complaint;
    parts_ = count_parts();
    ready_.store(true, std::memory_order_release);
    std::int64_t bytes = 0;
    for (const auto& each : contributions_) bytes += each.bytes;
    if (bytes <= kDoneByTheLast) work(member);
    ring();
    return std::nullopt;
}

std::vector<std::int32_t> Operation::missing() const {
    std::vector<std::int32_t> missing;
    for (std::size_t member = 0; member < ranks_.size(); ++member) {
        if (!came_[member].load(std::memory_order_acquire)) missing.push_back(ranks_[member]);
    }
    return missing;
}

std::optional<std::string> Operation::disagreement() const {
    const Contribution& first = contributions_.front();
    for (std::size_t member = 1; member < contributions_.size(); ++member) {
        if (!alike(contributions_[member], first)) {
            return fmt::format("rank {} came with {}, rank {} with {} as the same operation of group {}", ranks_[0], text(first),
                               ranks_[member], text(contributions_[member]), group_text());
        }
    }
    if (first.kind != CollectiveKind::all_to_all) return std::nullopt;
    for (std::size_t from = 0; from < contributions_.size(); ++from) {
        for (std::size_t to = 0; to < contributions_.size(); ++to) {
            const auto sent = contributions_[from].send_bytes[to];
            const auto expected = contributions_[to].receive_bytes[from];
            if (sent != expected) {
                return fmt::format("rank {} sends {} bytes to rank {}, which expects {}, in all_to_all of group {}", ranks_[from], sent,
                                   ranks_[to], expected, group_text());
            }
        }
    }
    return std::nullopt;
}

int Operation::count_parts() const {
    const int members = static_cast<int>(contributions_.size());
    const Contribution& first = contributions_.front();
    switch (first.kind) {
        case CollectiveKind::all_reduce:
            return static_cast<int>(std::clamp<std::int64_t>(first.bytes / kSmallestPart, 1, members));
        case CollectiveKind::barrier:
            return 0;
        default:
            return members;
    }
}

void Operation::work(int member) {
    model::MemoryOperations* const operations = contributions_[static_cast<std::size_t>(member)].operations;
    for (;;) {
        const int part = next_.fetch_add(1, std::memory_order_acq_rel);
        if (part >= parts_) return;
        try {
            do_part(part, operations);
            // Others look at the results as soon as the part counts as done. A stream of its own for each group could do without
            // the wait; here ranks share one card, and their times say nothing.
            if (operations != nullptr) operations->finish();
        } catch (...) {  // a GPU's error: whoever waits for the part waits on until the world is aborted
            failed_.store(true, std::memory_order_release);
            done_.fetch_add(1, std::memory_order_acq_rel);
            throw;
        }
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts_) ring();
    }
}

void Operation::close() {
    int taken = 0;
    {
        const std::scoped_lock lock(close_mutex_);
        if (!taken_before_close_) {
            const int next = next_.exchange(kClosed, std::memory_order_acq_rel);
            // parts_ is surely written only if a part was taken.
            taken_before_close_ = next == 0 ? 0 : std::min(next, parts_);
        }
        taken = *taken_before_close_;
    }
    while (done_.load(std::memory_order_acquire) < taken) std::this_thread::yield();
}

void Operation::do_part(int part, model::MemoryOperations* operations) {
    const auto copy = [operations](std::byte* to, const std::byte* from, std::int64_t bytes) {
        if (operations != nullptr) {
            operations->copy(to, from, bytes);
        } else {
            copy_on_host(to, from, bytes);
        }
    };
    const auto reduce = [operations](auto&&... arguments) {
        if (operations != nullptr) {
            operations->reduce(arguments...);
        } else {
            reduce_in_order(arguments...);
        }
    };
    const auto index = static_cast<std::size_t>(part);
    const Contribution& first = contributions_.front();
    Contribution& own = contributions_[index];
    switch (first.kind) {
        case CollectiveKind::all_reduce: {
            // Range `part` of the elements, for all members.
            std::vector<const std::byte*> inputs;
            std::vector<std::byte*> outputs;
            for (const auto& each : contributions_) {
                inputs.push_back(each.from);
                outputs.push_back(each.to);
            }
            const std::int64_t elements = first.bytes / bytes_of(first.dtype);
            const std::int64_t share = elements / parts_;
            const std::int64_t begin = share * part;
            reduce(first.dtype, first.reduction, inputs, outputs, begin, part + 1 == parts_ ? elements : begin + share);
            return;
        }
        case CollectiveKind::reduce_scatter: {
            // The piece of member `part`.
            const bool even = first.send_bytes.empty();
            const std::int64_t piece = even ? first.bytes / static_cast<std::int64_t>(contributions_.size()) : first.send_bytes[index];
            const std::int64_t begin = even ? piece * part : sum_before(first.send_bytes, index);
            std::vector<const std::byte*> inputs;
            for (const auto& each : contributions_) inputs.push_back(each.from + begin);
            std::byte* const output = own.to;
            reduce(first.dtype, first.reduction, inputs, std::span(&output, 1), 0, piece / bytes_of(first.dtype));
            return;
        }
        case CollectiveKind::all_gather: {
            // The piece of member `part`, to all members: read once while it is in the cache.
            const std::int64_t begin = first.receive_bytes.empty() ? own.bytes * part : sum_before(first.receive_bytes, index);
            for (auto& each : contributions_) copy(each.to + begin, own.from, own.bytes);
            return;
        }
        case CollectiveKind::all_to_all: {
            std::byte* to = own.to;
            for (std::size_t sender = 0; sender < contributions_.size(); ++sender) {
                const Contribution& other = contributions_[sender];
                copy(to, other.from + sum_before(other.send_bytes, index), other.send_bytes[index]);
                to += other.send_bytes[index];
            }
            return;
        }
        case CollectiveKind::broadcast:
            copy(own.to, contributions_[static_cast<std::size_t>(first.root)].from, first.bytes);
            return;
        case CollectiveKind::send:
        case CollectiveKind::receive:
        case CollectiveKind::barrier:
            return;
    }
}

}  // namespace mgplan::runtime
