#include "simulator/timeline/jitter.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kMostDrawn = std::int64_t{1} << 22;
constexpr std::int64_t kFewestRuns = 20, kMostRuns = 200;

/// Standard normal numbers. The C++ standard defines the output of mt19937_64, but not the algorithm of normal_distribution.
class Normal {
public:
    explicit Normal(std::uint64_t seed) : bits_(seed) {}
    double operator()() {
        if (kept_) {
            kept_ = false;
            return second_;
        }
        const double radius = std::sqrt(-2 * std::log(1 - uniform())), angle = 2 * std::numbers::pi * uniform();
        second_ = radius * std::sin(angle);
        kept_ = true;
        return radius * std::cos(angle);
    }

private:
    /// Uniform in [0, 1).
    double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
    std::mt19937_64 bits_;
    double second_ = 0;
    bool kept_ = false;
};

}  // namespace

JitterResult run_with_jitter(const PipelineProgram& program, PipelineTimes times, const JitterRequest& request) {
    const auto passes = std::max<std::int64_t>(1, static_cast<std::int64_t>(program.ops.size()));
    JitterResult result;
    result.runs = static_cast<int>(std::clamp(kMostDrawn / passes / request.replicas, kFewestRuns, kMostRuns));
    result.replicas = std::clamp<std::int64_t>(kMostDrawn / passes / result.runs, 1, request.replicas);
    Normal normal(request.seed);
    std::vector<double> ends;
    times.factors.resize(program.ops.size());
    for (int run = 0; run < result.runs; ++run) {
        double slowest = 0;
        for (std::int64_t replica = 0; replica < result.replicas; ++replica) {
            for (double& factor : times.factors) factor = std::max(0.0, 1 + request.deviation * normal());
            slowest = std::max(slowest, run_pipeline(program, times).end);
        }
        ends.push_back(slowest);
        result.mean += slowest / result.runs;
    }
    std::sort(ends.begin(), ends.end());
    result.p95 = ends[static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(ends.size()))) - 1];
    return result;
}

}  // namespace mgplan::simulator
