#pragma once
// `simulate --straggler` and `--jitter`: the iteration with slow ranks or varying times.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/options.hpp"
#include "plan/layout/layout.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/timeline/jitter.hpp"
#include "simulator/timeline/stragglers.hpp"

namespace mgplan::cli {

struct DisturbanceOptions {
    std::optional<std::string> stragglers;
    double jitter_percent = 0;
    std::int64_t seed = 1;
    [[nodiscard]] bool any() const { return stragglers || jitter_percent > 0; }
};

void declare_disturbance_options(Options& options, DisturbanceOptions& values);

/// The iteration of a layout with its slowest replica's stragglers, and how it varies.
struct DisturbedIteration {
    double undisturbed_seconds = 0;
    std::vector<double> slowdown;                   ///< by pipeline rank, of the slowest replica; empty: no stragglers
    simulator::TimePrediction time;                 ///< with the stragglers
    std::optional<simulator::JitterResult> jitter;  ///< of the whole iteration
};

/// `timeline_of` replays the layout with the given slowdown and without details. Throws ConfigError if a straggler is no rank
/// of the layout.
[[nodiscard]] DisturbedIteration disturbed_iteration(
    const DisturbanceOptions& options, const Layout& layout,
    const std::function<simulator::LayoutTimeline(const std::vector<double>& slowdown)>& timeline_of);

[[nodiscard]] nlohmann::ordered_json disturbed_to_json(const DisturbanceOptions& options, const DisturbedIteration& iteration);
[[nodiscard]] std::string disturbed_text(const DisturbanceOptions& options, const DisturbedIteration& iteration);

}  // namespace mgplan::cli
