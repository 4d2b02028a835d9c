#include "runtime/calibration/repeat.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>

#include "model/device/graph_capture.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

constexpr double kReading = 2e-3;  ///< seconds that one reading of the clock should span
constexpr double kLeast = 1e-9;    ///< below the resolution of any clock here

double quantile(const std::vector<double>& sorted, double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
    MGPLAN_ASSERT(!values.empty(), "a spread is of something");
    std::sort(values.begin(), values.end());
    const double median = quantile(values, 0.5);
    return {median, median > 0 ? (quantile(values, 0.75) - quantile(values, 0.25)) / median : 0};
}

Timing timing_of(std::vector<double> seconds) {
    for (double& each : seconds) each = std::max(each, kLeast);
    const auto count = static_cast<std::int64_t>(seconds.size());
    const Spread spread = spread_of(std::move(seconds));
    return {spread.median, spread.relative, count};
}

std::int64_t calls_together(double seconds_of_one) {
    return static_cast<std::int64_t>(std::clamp(std::ceil(kReading / std::max(seconds_of_one, kLeast)), 1.0, 1000.0));
}

Timing repeat(model::Device& device, double budget, const std::function<void(std::int64_t call)>& once) {
    using Clock = std::chrono::steady_clock;
    const auto watch = device.make_stopwatch();
    std::int64_t calls = 0;
    const auto round = [&](std::int64_t count) {
        watch->start();
        for (std::int64_t i = 0; i < count; ++i) once(calls++);
        watch->stop();
        return watch->seconds() / static_cast<double>(count);
    };
    // The first call loads kernels, chooses among them and touches memory; the second measures how long one takes.
    static_cast<void>(round(1));
    const double first = round(1);
    const std::int64_t together = calls_together(first);
    if (together > 1) static_cast<void>(round(together));
    std::vector<double> seconds;
    const auto begin = Clock::now();
    const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    while (seconds.size() < 3 || (seconds.size() < 100 && spent() < budget)) seconds.push_back(round(together));
    return timing_of(std::move(seconds));
}

Timing repeat_without_host(model::Device& device, double budget, const std::function<void(std::int64_t call)>& once) {
    const Timing issued = repeat(device, budget, once);
    model::WorkCapture* const capture = device.work_capture();
    if (capture == nullptr || capture->runs_at_once() || issued.seconds >= kMayWaitForHost) return issued;
    const std::int64_t together = calls_together(issued.seconds);
    std::unique_ptr<model::CapturedWork> graph;
    try {
        device.synchronize();
        capture->begin();
        for (std::int64_t call = 0; call < together; ++call) once(call);
        graph = capture->end();
    } catch (const std::exception&) {
        capture->abandon();
        return issued;
    }
    if (!graph) return issued;
    Timing replayed = repeat(device, budget, [&](std::int64_t) { graph->launch(); });
    device.synchronize();  // the graph is destroyed on return
    replayed.seconds /= static_cast<double>(together);
    return replayed;
}

}  // namespace mgplan::runtime
