#pragma once
// Time of one iteration: pipeline of stages, gradient reduction, optimizer, parameter gather. The closed form that the search
// asks, and the parts that it shares with the exact timeline (timeline/step_timeline.hpp).

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

/// One microbatch on one stage, or on one chunk of it.
struct StageTime {
    double forward = 0, backward = 0;  ///< seconds, all in
    double weight = 0;                 ///< part of backward: gradients of weights
    double recompute = 0;              ///< compute seconds, part of backward
    double recompute_flops = 0;
    double host = 0;           ///< what of it follows the host's launches
    double expert_layers = 0;  ///< of layers with experts
    GroupSeconds exposed;      ///< part of forward and backward
    GroupSeconds exposed_forward;

    [[nodiscard]] double total() const { return forward + backward; }
};

/// The costs of layers as they are launched: one graph for the whole iteration has no launches.
[[nodiscard]] LayerCosts launched_costs(const StepInputs& inputs);
[[nodiscard]] StageTime chunk_time(const StepInputs& inputs, const LayerCosts& layers, const ChunkCensus& chunk);

/// Gradient reduction and parameter gather of `count` parameters, nothing of it hidden.
struct DataParallelSeconds {
    double reduce = 0, gather = 0;
    double buckets = 1;  ///< into which they are cut where they are cut by size
};
[[nodiscard]] DataParallelSeconds data_parallel_seconds(const StepInputs& inputs, const ParameterCount& count);

[[nodiscard]] double optimizer_seconds(const StepInputs& inputs, const ParameterCount& count);
/// One transfer between neighbouring stages; 0 without a pipeline.
[[nodiscard]] double transfer_seconds(const StepInputs& inputs);
/// All-reduce of the gradient of a table that the first and the last stage share; 0 where they do not.
[[nodiscard]] double tied_embedding_seconds(const StepInputs& inputs);

/// What follows from iteration_seconds: the interval, tokens, FLOP/s, mfu and hfu. `recompute_flops`: repeated by one
/// microbatch on all stages. `slowest`: one microbatch on the slowest stage.
void finish_rates(const StepInputs& inputs, const StageTime& slowest, double recompute_flops, TimePrediction& time);

[[nodiscard]] TimePrediction step_time(const StepInputs& inputs);

}  // namespace mgplan::simulator
