#pragma once
// Effect of some work on live memory, computed from a trace of allocations, and composition of such effects in sequence.

#include <cstdint>
#include <span>
#include <string_view>
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

/// Profiles of intervals of a trace, whose events are sorted once. The trace must outlive it.
class TraceProfiles {
public:
    /// O(n log n) in the tensors of the trace.
    explicit TraceProfiles(std::span<const model::AllocationRecord> trace);
    /// Profile of the events in [begin, end). Times need not be dense: if an allocation and a free have the same time, the allocation
    /// counts as the earlier.
    [[nodiscard]] OpProfile of(std::int64_t begin, std::int64_t end) const;

private:
    struct Change {
        std::int64_t when = 0;
        bool returned = false;
        const model::AllocationRecord* tensor = nullptr;
    };
    std::vector<Change> changes_;  ///< in order
};

/// Bytes taken at once (freed if negative) and kept.
[[nodiscard]] OpProfile change_of(model::MemoryCategory category, std::int64_t bytes, std::string_view tensor = {});

/// First `a`, then `b`.
[[nodiscard]] OpProfile then(const OpProfile& a, const OpProfile& b);

/// `a`, `times` times (at least once) in sequence. O(1).
[[nodiscard]] OpProfile repeat(const OpProfile& a, std::int64_t times);

}  // namespace mgplan::simulator
