#pragma once
// A stage split that follows the work of the layers.

#include <optional>
#include <vector>

#include "plan/layout/stage_split.hpp"

namespace mgplan {

/// Work of the parts of a model, in any unit: of each decoder layer in order, of all MTP layers together, and of embedding and loss, which
/// count as the last stage's.
struct StageLoads {
    std::vector<double> layers;
    double mtp = 0, loss = 0;
};

/// A layout string whose fullest pipeline rank has less work than that of `split`, found by moving single layers from the fullest rank to
/// the emptiest one, within a rank between the chunks of most and least work. Every chunk but the last keeps a layer. Nothing if no such
/// move helps, for one rank, and for splits in a V.
[[nodiscard]] std::optional<StageSplit> balanced_stage_split(const StageSplit& split, const StageLoads& loads);

}  // namespace mgplan
