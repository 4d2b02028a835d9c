#pragma once
// Data to draw one iteration of a pipeline: begin and end of each pass. Plain values.

#include <cstdint>
#include <vector>

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan::simulator {

struct DrawnPass {
    double begin = 0, end = 0;  ///< seconds from the iteration's begin
    std::int32_t microbatch = 0;
    std::uint16_t rank = 0;  ///< pipeline rank
    std::uint16_t chunk = 0;
    Pass pass = Pass::forward;
    bool paired = false;  ///< runs at the same time as a pass of the other direction, which has the same begin and end
};

/// Reduction of gradients or gather of parameters in parallel with the passes.
struct DrawnTraffic {
    double begin = 0, end = 0;
    std::uint16_t rank = 0;
};

struct PipelinePicture {
    int ranks = 1;
    int chunks = 1;
    std::vector<DrawnPass> passes;
    std::vector<DrawnTraffic> data_parallel;
    double optimizer_begin = 0;
    std::vector<double> optimizer;  ///< seconds by rank
    std::vector<double> gather;     ///< seconds by rank after the optimizer
};

}  // namespace mgplan::simulator
