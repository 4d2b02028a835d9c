#pragma once
// The parts of `simulate --html` beside memory: key figures, where the iteration's time goes, the pipeline as it runs, and which
// ranks form groups.

#include <cstddef>
#include <string>

#include "plan/layout/layout.hpp"
#include "simulator/prediction.hpp"
#include "simulator/timeline/pipeline_picture.hpp"

namespace mgplan::reports {

/// Iteration, throughput, MFU, bubble and peak side by side.
[[nodiscard]] std::string figures_section(const simulator::Prediction& prediction);

/// Every part of the iteration as one bar and a table, exposed communication by group below it, and the prediction as JSON
/// (prediction_to_json()) in the script element "prediction".
[[nodiscard]] std::string time_section(const simulator::Prediction& prediction);

/// Passes drawn one by one; of a longer iteration its begin and its end are, and the whole as busy shares.
inline constexpr std::size_t kMostDrawnPasses = 12'000;
/// Rows; of more pipeline ranks the first and last half of these are drawn.
inline constexpr int kMostDrawnRanks = 64;

/// The pipeline, row by row, with its schedule's name. The script tells the pass under the pointer.
[[nodiscard]] std::string pipeline_section(const simulator::PipelinePicture& picture, const std::string& schedule);

/// Ranks in the map; of a larger world the first are drawn.
inline constexpr std::int64_t kMostDrawnGroupRanks = 1024;

/// Node by node every rank in the colour of its stage; the script shows the groups of the rank under the pointer. Below it the
/// axes of both grids with size, stride and the group of rank 0.
[[nodiscard]] std::string groups_section(const Layout& layout, int gpus_per_node);

}  // namespace mgplan::reports
