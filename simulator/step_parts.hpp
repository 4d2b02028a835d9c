#pragma once
// What the parts of an iteration take: one microbatch on a stage or on a chunk of it, gradient reduction and parameter gather,
// the optimizer, transfers between stages. The closed form (step_time.hpp) and the exact timeline (step_timeline.hpp)
// put them together.

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "simulator/compute/layer_costs.hpp"
#include "simulator/piece/stage_census.hpp"
#include "simulator/piece_parameters.hpp"
#include "simulator/prediction.hpp"
#include "simulator/price/shard.hpp"

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
    const PieceParameters* pieces = nullptr;       ///< of the layout's shard; asked for units and tables
    double offloaded_bytes = 0;                    ///< of a microbatch, to the host in its forward and back in its backward
    /// The same of a layer, by index of its kind; empty where no module's inputs wait on the host beside the passes.
    std::vector<std::int64_t> offloaded_by_kind{};
    /// Muon's work on all matrices of a layer by index of its kind, behind them of one of multi-token prediction; empty with others.
    std::vector<double> orthogonalise_seconds{};
    bool divided = false;  ///< backwards come in two passes, the second of weight gradients
};

/// One microbatch on one stage, or on one chunk of it.
struct StageTime {
    double forward = 0, backward = 0;  ///< seconds, all in
    double weight = 0;                 ///< part of backward: gradients of weights
    double recompute = 0;              ///< compute seconds, part of backward
    double recompute_flops = 0;
    double device = 0, issue = 0;  ///< of forward and backward: seconds of the device alone, of the host to issue them
    double waiting = 0;            ///< compute seconds: the device waits for the host's launches
    double host = 0;               ///< what of it follows the host's launches
    double expert_layers = 0;      ///< of layers with experts
    GroupSeconds exposed;          ///< part of forward and backward
    double exposed_data = 0;       ///< the same of gathering sharded parameters and reducing sharded gradients
    GroupSeconds exposed_forward;

    [[nodiscard]] double total() const { return forward + backward; }
};

/// The costs of layers as they are launched: one graph for the whole iteration has no launches.
[[nodiscard]] LayerCosts launched_costs(const StepInputs& inputs);

/// What the chunks of a layout take with such costs of layers. Each piece is looked at once, however many chunks have it.
class PassTimes {
public:
    /// Both must outlive it.
    PassTimes(const StepInputs& inputs, const LayerCosts& layers);
    ~PassTimes();
    PassTimes(const PassTimes&) = delete;
    PassTimes& operator=(const PassTimes&) = delete;

    [[nodiscard]] StageTime chunk(const ChunkCensus& chunk);
    /// All chunks of a pipeline rank.
    [[nodiscard]] StageTime stage(int rank);

private:
    struct PieceTime;
    // Places behind the kinds of layers.
    static constexpr std::size_t kPrediction = 0, kEmbedding = 1, kHead = 2, kEnds = 3;

    /// `count` copies of a piece; `recomputed`: with its forward once more.
    void add(StageTime& time, std::size_t place, double count, bool recomputed);
    /// `share` of the layers is recomputed.
    [[nodiscard]] StageTime of(const ChunkCensus& held, double share);

    const StepInputs& in_;
    const LayerCosts& layers_;
    std::vector<std::optional<PieceTime>> pieces_;  ///< as they are and recomputed
};

[[nodiscard]] StageTime chunk_time(const StepInputs& inputs, const LayerCosts& layers, const ChunkCensus& chunk);

/// Gradient reduction and parameter gather of `count` parameters, nothing of it hidden.
struct DataParallelSeconds {
    double reduce = 0, gather = 0;
    double buckets = 1;  ///< into which they are cut where they are cut by size
};
[[nodiscard]] DataParallelSeconds data_parallel_seconds(const StepInputs& inputs, const ParameterCount& count);

/// `stage`: what the rank holds, for Muon. `passes`: seconds of all its forwards and backwards, beside which optimizer state may leave.
[[nodiscard]] double optimizer_seconds(const StepInputs& inputs, const ParameterCount& count, const ChunkCensus& stage, double passes);
/// One transfer between neighbouring stages; 0 without a pipeline.
[[nodiscard]] double transfer_seconds(const StepInputs& inputs);
/// All-reduce of the gradient of a table that the first and the last stage share; 0 where they do not.
[[nodiscard]] double tied_embedding_seconds(const StepInputs& inputs);

}  // namespace mgplan::simulator
