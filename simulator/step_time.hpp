#pragma once
// Time of one iteration: pipeline of stages, gradient reduction, optimizer, parameter gather.

#include <vector>

#include "simulator/layers/layer_costs.hpp"
#include "simulator/prediction.hpp"
#include "simulator/stage_census.hpp"

namespace mgplan::simulator {

struct StepInputs {
    const Workload& workload;
    const Layout& layout;
    const Calibration& calibration;
    const KernelTimes& kernels;
    const LayerCosts& layers;
    const SplitCensus& split;
    LayoutPaths paths;
    double model_flops;
    std::vector<ParameterCount> stage_parameters;  ///< per pipeline rank
};

[[nodiscard]] TimePrediction step_time(const StepInputs& inputs);

}  // namespace mgplan::simulator
