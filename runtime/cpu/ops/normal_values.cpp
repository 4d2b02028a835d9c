#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "model/ops/philox.hpp"
#include "plan/allowed_processors.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/element_types.hpp"

namespace mgplan::runtime::cpu {
namespace {

double uniform(std::uint64_t key, std::uint64_t counter, double offset) {
    return (static_cast<double>(model::spread_bits(key ^ model::spread_bits(counter)) >> 11U) + offset) * 0x1p-53;
}

double normal(std::uint64_t key, std::uint64_t counter) {
    const double u = uniform(key, 2 * counter, 0.5), v = uniform(key, 2 * counter + 1, 0);
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

/// Calls work(first, last) for stretches of all rows, on several threads where there is much to do: a value takes some 40 ns,
/// and a billion of them on one thread more than half a minute.
template <class Work>
void in_stretches(std::int64_t rows, std::int64_t values, const Work& work) {
    constexpr std::int64_t kWorthAThread = 1 << 20;
    const std::int64_t processors = allowed_processors();
    const std::int64_t stretches =
        std::clamp<std::int64_t>(values / kWorthAThread, 1, std::max<std::int64_t>(1, std::min(processors, rows)));
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < stretches; ++i) {
        threads.emplace_back([&work, first = rows * i / stretches, last = rows * (i + 1) / stretches] { work(first, last); });
    }
    work(0, rows / stretches);
}

}  // namespace

void fill_normal(model::Device& /*device*/, const model::FillNormalArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Element* const to = values<Element>(x.x);
        in_stretches(x.rows, x.rows * x.columns, [&](std::int64_t first, std::int64_t last) {
            for (std::int64_t row = first; row < last; ++row) {
                const std::uint64_t counter = x.draw.first + static_cast<std::uint64_t>(row * x.draw.pitch);
                for (std::int64_t column = 0; column < x.columns; ++column) {
                    const double value = x.draw.deviation * normal(x.draw.key, counter + static_cast<std::uint64_t>(column));
                    to[row * x.columns + column] = Element(static_cast<Compute<Element>>(value));
                }
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
