#pragma once
// Layers and links made up so that every time is a round number.

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/cost_model.hpp"
#include "simulator/step_time.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator {

/// A pipeline of equal layers whose forward takes one second and whose backward takes two; ends and links are free.
class StepTime : public testing::Test {
protected:
    Workload workload = workload_of(gpt(16), 4, 8);
    Calibration calibration = ideal_calibration();
    LayoutRequest request;
    PieceCost dense, windowed_dense;  ///< of a layer, without and with a window
    PassPair hidden_exchanges;        ///< exchanges of every layer that paired passes hide
    LayerCosts layers;
    LayoutPaths paths;
    std::vector<ParameterCount> parameters;
    std::optional<PieceParameters> pieces;

    StepTime() {
        request.pp = 4;
        dense.forward = 1;
        dense.backward = 2;
    }
    TimePrediction run() {
        const Layout layout = planner::make_layout(request, workload);
        const KernelTimes kernels(workload.cluster, calibration, workload.training.precision);
        const LayerKinds kinds = layer_kinds(workload.model);
        const SplitCensus split = take_census(kinds, layout.split);
        layers.layers.clear();
        for (const LayerKindHalves& kind : kinds.kinds) {
            LayerCosts::Layer& layer = layers.layers.emplace_back();
            layer.cost = kind.windowed ? windowed_dense : dense;
            layer.mixture = kind.mixture;
            layer.hidden = hidden_exchanges;
        }
        parameters.resize(static_cast<std::size_t>(request.pp));
        return step_time({workload, layout, calibration, kernels, layers, kinds, split, paths, model_flops(workload.model, workload.batch),
                          parameters, pieces ? &*pieces : nullptr});
    }
};

/// One stage of eight data-parallel ranks on links of 1 GB/s, nothing overlapped.
class DataParallelTime : public StepTime {
protected:
    DataParallelTime() {
        request.pp = 1;
        workload.world = 8;
        workload.training.overlap_grad_reduce = workload.training.overlap_param_gather = false;
        paths.dp_cp = {.ranks = 8, .ranks_per_domain = 8, .inside = 1e9, .network = 1e9, .latency = 0};
        parameters = {{.dense = 400'000'000}};
    }
};

}  // namespace mgplan::simulator
