#pragma once
#include <algorithm>
#include <ctime>
#include <functional>
#include <utility>

namespace mgplan::tests {

/// Processor time of work(4 * size) over that of work(size), each the least of three runs: about 4 where the time is linear in the size,
/// 16 where it is quadratic. A ratio holds on every machine and under sanitizers. `work(size)` prepares its input and returns the
/// clock ticks of the call under test alone.
inline double growth_of_time(int size, const std::function<std::clock_t(int)>& work) {
    std::clock_t few = 0, many = 0;
    for (int run = 0; run < 3; ++run) {
        const auto [a, b] = std::pair(work(size), work(4 * size));
        few = run == 0 ? a : std::min(few, a);
        many = run == 0 ? b : std::min(many, b);
    }
    return static_cast<double>(many) / static_cast<double>(std::max<std::clock_t>(few, 1));
}

}  // namespace mgplan::tests
