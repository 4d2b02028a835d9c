#pragma once
// The log of a job next to the prediction of its layout: used by verify and doctor.

#include <cstddef>
#include <string>
#include <vector>

#include "formats/megatron/megatron_log.hpp"
#include "plan/layout/layout.hpp"
#include "reports/verification.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

inline constexpr std::size_t kMostLogBytes = std::size_t{256} << 20;

/// The largest report of each rank, with the prediction of its stage; of a log that names no rank, with the fullest stage. Throws
/// ConfigError for a rank that the layout does not have.
[[nodiscard]] std::vector<reports::LoggedRankMemory> compare_memory(const formats::MegatronLog& log, simulator::CostModel& model,
                                                                    const Layout& layout, const std::string& where);

/// FLOPs of an iteration as the log counts them, divided by the model's; nothing if the log has no throughput.
[[nodiscard]] std::optional<double> logged_flops_ratio(const formats::SteadyIterations& steady, const Workload& work);

}  // namespace mgplan::cli
