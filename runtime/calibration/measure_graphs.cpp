#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>

#include "model/device/graph_capture.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/text.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/calibration/repeat.hpp"

namespace mgplan::runtime {
namespace {

/// Kernels of a graph: as layers of large models have them, and fewer and more.
constexpr std::array<std::int64_t, 3> kKernels{16, 64, 256};
constexpr int kTimes = 5;
/// Kernels of the graphs that are instantiated at a time: doubled until they take kEnough, because a driver takes memory in pieces of
/// 2 MiB or more, in which few small graphs would not show; but no more than kMost.
constexpr std::int64_t kFirst = 512, kMost = 65'536, kEnough = std::int64_t{64} << 20;

using Graphs = std::vector<std::unique_ptr<model::CapturedWork>>;

/// Captures and instantiates one graph of `kernels` kernels, which change nothing.
std::unique_ptr<model::CapturedWork> captured(model::Device& device, model::WorkCapture& capture, std::int64_t kernels) {
    const model::Tensor x = device.zeros({1}, Dtype::fp32, model::MemoryCategory::parameters, "value to measure with");
    device.synchronize();
    capture.begin();
    try {
        for (std::int64_t i = 0; i < kernels; ++i) model::scale(x, 1);
        std::unique_ptr<model::CapturedWork> graph = capture.end();
        device.synchronize();  // x is freed on return
        return graph;
    } catch (...) {
        capture.abandon();
        throw;
    }
}

}  // namespace

bool measure_graphs(RankDevice& made, const CalibrateOptions& options, ClusterCalibration& into) {
    model::Device& device = made.device();
    model::WorkCapture* const capturing = device.work_capture();
    if (capturing == nullptr || !made.free_bytes()) return true;
    const bool known = std::ranges::all_of(kKernels, [&](std::int64_t kernels) {
        return std::ranges::any_of(into.graphs, [&](const GraphMemory& each) { return each.kernels == kernels; });
    });
    if (known) return true;
    into.graphs.clear();  // graphs of an earlier measurement are gone, and a driver may keep their memory
    Graphs held;
    held.push_back(captured(device, *capturing, kKernels.front()));  // the first of a process takes more
    for (std::size_t i = 0; i < kKernels.size(); ++i) {
        const std::int64_t kernels = kKernels[i];
        std::int64_t graphs = kFirst / kernels;
        std::vector<double> bytes;
        while (bytes.size() < kTimes) {
            if (options.interrupt != nullptr && options.interrupt->load()) {
                into.graphs.clear();
                return false;
            }
            const std::int64_t before = *made.free_bytes();
            for (std::int64_t graph = 0; graph < graphs; ++graph) held.push_back(captured(device, *capturing, kernels));
            const std::int64_t taken = std::max<std::int64_t>(0, before - *made.free_bytes());
            if (taken < kEnough && 2 * graphs * kernels <= kMost) {
                graphs *= 2;
                bytes.clear();
            } else {
                bytes.push_back(static_cast<double>(taken));
            }
        }
        const Spread spread = spread_of(std::move(bytes));
        into.graphs.push_back({kernels, graphs, std::llround(spread.median), spread.relative, kTimes});
        if (options.on_measured) {
            options.on_measured(into, {fmt::format("{} graphs of {} kernels: {} of the device, {:.1f} KiB a kernel", graphs, kernels,
                                                   human_bytes(into.graphs.back().bytes), into.graphs.back().bytes_of_a_kernel() / 1024),
                                       i + 1, kKernels.size()});
        }
    }
    return true;
}

}  // namespace mgplan::runtime
