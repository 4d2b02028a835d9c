#pragma once
// The shapes that `mgplan calibrate` measures.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/device/kernel_traits.hpp"
#include "plan/cluster/cluster_spec.hpp"
#include "plan/plan.hpp"
#include "runtime/calibration/traced_work.hpp"

namespace mgplan::cli {

struct ShapesToMeasure {
    std::optional<std::string> models;  ///< names, with commas between
    std::vector<std::int64_t> tp;       ///< of shards without expert parallelism; etp is the same
    std::vector<std::int64_t> ep;       ///< of shards of MoE models without tensor parallelism
    std::optional<std::int64_t> sequence;
    std::int64_t micro_batch = 1;
};

/// Returns products, grouped products and attention of the models' shards, one layer of each kind; nothing without models. Sizes that
/// cannot be computed are named in `left_out`. Throws ConfigError for unknown models and those of which nothing can be computed.
[[nodiscard]] runtime::TracedWork work_of_models(const ShapesToMeasure& asked, const std::vector<Precision>& precisions,
                                                 const ClusterSpec& cluster, const model::KernelTraits& traits,
                                                 std::vector<std::string>& left_out);

/// Returns the same for a rank of every pipeline stage of the plan. Throws ConfigError for a plan that breaks a rule.
[[nodiscard]] runtime::TracedWork work_of_plan(const Plan& plan, const model::KernelTraits& traits);

}  // namespace mgplan::cli
