#pragma once
// Repeats something until its time is known.

#include <cstdint>
#include <functional>
#include <vector>

#include "model/device/device.hpp"
#include "plan/cluster/cluster_calibration.hpp"

namespace mgplan::runtime {

struct Spread {
    double median = 0;
    double relative = 0;  ///< distance of the quartiles over the median; 0 where that is 0
};
/// At least one value.
[[nodiscard]] Spread spread_of(std::vector<double> values);

/// Median, and the distance of the quartiles over it. `seconds`: of each repetition, at least one.
[[nodiscard]] Timing timing_of(std::vector<double> seconds);

/// Returns the number of calls between two readings of the clock, from the seconds of one call: a few milliseconds' worth, so that
/// neither the clock nor, on a GPU, the gap after the last launch matters.
[[nodiscard]] std::int64_t calls_together(double seconds_of_one);

/// Times `once` on the device; its argument is the number of earlier calls. Makes some calls that do not count, then rounds until
/// `budget` seconds are over, at least three and at most a hundred.
[[nodiscard]] Timing repeat(model::Device& device, double budget, const std::function<void(std::int64_t call)>& once);

/// The same for work that may be shorter than the host's time to issue it: calls below kMayWaitForHost are captured together and replayed,
/// so that the host issues one graph. Without a capture, on devices where work runs when it is called, and for work that cannot be
/// captured, it is repeat().
[[nodiscard]] Timing repeat_without_host(model::Device& device, double budget, const std::function<void(std::int64_t call)>& once);
inline constexpr double kMayWaitForHost = 50e-6;  ///< seconds; no host takes as long for a launch

}  // namespace mgplan::runtime
