#pragma once
// What a stretch of work does to live memory, taken from a trace of allocations, and how such stretches follow each other.

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

/// Changes of live bytes over a stretch of work, all relative to what was alive when it began.
struct OpProfile {
    BytesByCategory net{};         ///< at its end; negative where more was given back than taken
    BytesByCategory at_peak{};     ///< when the sum over categories is first at its maximum
    BytesByCategory high_water{};  ///< each category's own maximum, at least 0
    std::int64_t peak = 0;         ///< the sum of at_peak, at least 0
    std::string_view peak_tensor;  ///< what was taken at the peak; empty where the peak is the beginning

    [[nodiscard]] std::int64_t net_total() const;
};

/// Profiles of stretches of a trace, whose takes and returns are put in order once. The trace must outlive it.
class TraceProfiles {
public:
    /// O(n log n) in the tensors of the trace.
    explicit TraceProfiles(std::span<const model::AllocationRecord> trace);
    /// Of the takes and returns in [begin, end). Times need not be dense: where a take and a return fall on one instant, the take counts as
    /// the earlier.
    [[nodiscard]] OpProfile of(std::int64_t begin, std::int64_t end) const;

private:
    struct Change {
        std::int64_t when = 0;
        bool returned = false;
        const model::AllocationRecord* tensor = nullptr;
    };
    std::vector<Change> changes_;  ///< in order
};

/// Bytes taken at once (given back if negative) and kept.
[[nodiscard]] OpProfile change_of(model::MemoryCategory category, std::int64_t bytes, std::string_view tensor = {});

/// First `a`, then `b`.
[[nodiscard]] OpProfile then(const OpProfile& a, const OpProfile& b);

/// `a`, `times` times (at least once) in a row. O(1).
[[nodiscard]] OpProfile repeat(const OpProfile& a, std::int64_t times);

}  // namespace mgplan::simulator
