#pragma once
// Options of `run` for optimizers other than Adam.

#include <cstdint>
#include <string>

#include "cli/options.hpp"
#include "model/optimizer/optimizer.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::cli {

/// Defaults are those of model::OptimizerOptions.
struct OtherOptimizers {
    struct Muon {
        double momentum = 0.95, extra_scale = 1;
        std::int64_t steps = 5;
        std::string scale = "spectral", shards = "distributed";
        bool nesterov = false, whole_qkv = false;
        bool operator==(const Muon&) const = default;
    } muon;
    double sgd_momentum = 0.9;
    double lion_beta1 = 0.9, lion_beta2 = 0.99;
};

void declare_optimizers(Options& options, OtherOptimizers& values);
/// Throws ConfigError naming options that are not the default and belong to another optimizer than the plan's.
void apply_optimizers(const OtherOptimizers& values, const TrainingSpec& training, model::OptimizerOptions& optimizer);
/// Returns a text of all choices, to compare processes by.
[[nodiscard]] std::string alike_text(const OtherOptimizers& values);

}  // namespace mgplan::cli
