#pragma once
// Parts of `simulate --html` other than memory: key figures, time of the iteration by cause, the pipeline as it runs, and rank groups.

#include <cstddef>
#include <string>

#include "plan/layout/layout.hpp"
#include "simulator/prediction.hpp"
#include "simulator/timeline/pipeline_picture.hpp"

namespace mgplan::reports {

/// Iteration, throughput, MFU, bubble and peak in one row; below them a bar of the memory by category, as long as the GPU's memory, and one
/// of the compute by module.
[[nodiscard]] std::string figures_section(const simulator::Prediction& prediction);

/// Every part of the iteration as one bar and a table, exposed communication by group below it, and the prediction as JSON
/// (prediction_to_json()) in the script element "prediction".
[[nodiscard]] std::string time_section(const simulator::Prediction& prediction);

/// Maximum number of passes drawn individually; of a longer iteration only its begin and end are, and the whole as busy shares.
inline constexpr std::size_t kMostDrawnPasses = 12'000;
/// Maximum number of rows; with more pipeline ranks the first and last half of this number are drawn.
inline constexpr int kMostDrawnRanks = 64;

/// The pipeline, row by row, with its schedule's name. A script shows the pass under the pointer.
[[nodiscard]] std::string pipeline_section(const simulator::PipelinePicture& picture, const std::string& schedule);

/// Maximum number of ranks in the map; of a larger world the first are drawn.
inline constexpr std::int64_t kMostDrawnGroupRanks = 1024;

/// Every rank in the colour of its stage, node by node; a script shows the groups of the rank under the pointer. Below it the axes of both
/// grids with size, stride and the group of rank 0.
[[nodiscard]] std::string groups_section(const Layout& layout, int gpus_per_node);

}  // namespace mgplan::reports
