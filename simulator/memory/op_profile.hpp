#pragma once
// Effect of some work on live memory, computed from a trace of allocations, and composition of such effects in sequence.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/device/memory.hpp"
#include "model/meta/meta_device.hpp"

namespace mgplan::simulator {

using model::BytesByCategory;

/// Bytes of all categories.
[[nodiscard]] std::int64_t sum(const BytesByCategory& bytes);

/// Changes of live bytes over some work, relative to the live bytes at its beginning.
struct OpProfile {
    BytesByCategory net{};         ///< at its end; negative if more was freed than taken
    BytesByCategory at_peak{};     ///< when the sum over categories first reaches its maximum
    BytesByCategory high_water{};  ///< each category's own maximum, at least 0
    std::int64_t peak = 0;         ///< the sum of at_peak, at least 0
    std::string_view peak_tensor;  ///< the tensor allocated at the peak; empty if the peak is the beginning

    [[nodiscard]] std::int64_t net_total() const;
};

/// Allocations and frees of a trace, sorted once, and profiles of its intervals. The trace must outlive it.
class TraceProfiles {
public:
    struct Change {
        std::int64_t when = 0;
        bool returned = false;
        const model::AllocationRecord* tensor = nullptr;
    };

    /// O(n log n) in the tensors of the trace.
    explicit TraceProfiles(std::span<const model::AllocationRecord> trace);
    /// Changes in [begin, end), in order, of tensors with bytes. Times need not be dense: if an allocation and a free have the same time,
    /// the allocation counts as the earlier.
    [[nodiscard]] std::span<const Change> changes(std::int64_t begin, std::int64_t end) const;
    [[nodiscard]] OpProfile of(std::int64_t begin, std::int64_t end) const;

private:
    std::vector<Change> changes_;  ///< in order
};

/// Bytes taken at once (freed if negative) and kept.
[[nodiscard]] OpProfile change_of(model::MemoryCategory category, std::int64_t bytes, std::string_view tensor = {});

/// First `a`, then `b`.
[[nodiscard]] OpProfile then(const OpProfile& a, const OpProfile& b);

/// `a`, `times` times (at least once) in sequence. O(1).
[[nodiscard]] OpProfile repeat(const OpProfile& a, std::int64_t times);

/// Adds `next`, `times` times (at least once), to `work`.
void append(OpProfile& work, const OpProfile& next, std::int64_t times = 1);

/// A forward that frees everything at its end except its output, which replaces its input, and a kept input. `stream`: bytes of the input.
[[nodiscard]] OpProfile keeping(const OpProfile& forward, std::int64_t stream, bool input);

/// Change of live bytes over some work, summed over categories: an OpProfile without its categories.
struct MemoryDelta {
    std::int64_t net = 0;   ///< live bytes at the end minus those at the beginning
    std::int64_t peak = 0;  ///< peak bytes above the beginning; at least 0
    bool operator==(const MemoryDelta&) const = default;
};
[[nodiscard]] MemoryDelta delta_of(const OpProfile& profile);

/// If each repetition adds memory, the last one has the peak; otherwise the first.
inline void append(MemoryDelta& work, const MemoryDelta& next, std::int64_t times = 1) {
    const std::int64_t peak = next.peak + std::max<std::int64_t>(0, (times - 1) * next.net);
    work = {work.net + times * next.net, std::max(work.peak, work.net + peak)};
}

[[nodiscard]] inline MemoryDelta keeping(const MemoryDelta& forward, std::int64_t stream, bool input) {
    return {input ? stream : 0, forward.peak};
}

/// The forward and the backward of some work.
template <class Value>
struct BothPasses {
    Value forward{}, backward{};
    bool operator==(const BothPasses&) const = default;
};
using PassProfile = BothPasses<OpProfile>;
using PassDeltas = BothPasses<MemoryDelta>;
[[nodiscard]] PassDeltas deltas_of(const PassProfile& profile);

/// `inner` between the forward and the backward of `outer`.
template <class Value>
[[nodiscard]] BothPasses<Value> nested(BothPasses<Value> outer, const BothPasses<Value>& inner) {
    append(outer.forward, inner.forward);
    Value backward = inner.backward;
    append(backward, outer.backward);
    return {std::move(outer.forward), std::move(backward)};
}

}  // namespace mgplan::simulator
