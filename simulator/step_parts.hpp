#pragma once
// Seconds of the parts of an iteration: one microbatch on a stage or chunk, gradient reduction and parameter gather, the optimizer,
// transfers between stages. The closed form (step_time.hpp) and the exact timeline (step_timeline.hpp) combine them.

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
    const LayerKinds& kinds;
    const SplitCensus& split;
    LayoutPaths paths;
    double model_flops;
    std::vector<ParameterCount> stage_parameters;  ///< per pipeline rank
    const PieceParameters* pieces = nullptr;       ///< parameters of the layout's shard, for sharded units and embedding tables
    double offloaded_bytes = 0;                    ///< per microbatch, to the host in its forward and back in its backward
    /// Offloaded bytes of each layer, by index of its kind; empty if no module's inputs are offloaded.
    std::vector<std::int64_t> offloaded_by_kind{};
    /// Muon's seconds for all matrices of a layer by index of its kind, then of a multi-token prediction layer; empty with other
    /// optimizers.
    std::vector<double> orthogonalise_seconds{};
    bool graphed = false;  ///< one CUDA graph holds the iteration: the host launches no kernels
};

/// Time of one microbatch on one stage, or on one chunk of it.
struct StageTime {
    double forward = 0, backward = 0;  ///< total seconds
    double weight = 0;                 ///< part of backward: gradients of weights
    double recompute = 0;              ///< compute seconds, part of backward
    double recompute_flops = 0;
    double device = 0, issue = 0;  ///< forward and backward: seconds of the device alone; seconds in which the host launches
    double waiting = 0;            ///< compute seconds in which the device waits for kernel launches
    double host = 0;               ///< seconds that scale with the host's launch time
    double expert_layers = 0;      ///< part in layers with experts
    GroupSeconds exposed;          ///< part of forward and backward
    double exposed_data = 0;       ///< part of forward and backward: gathers of sharded parameters, reductions of sharded gradients
    GroupSeconds exposed_forward;
    ByModule<ModuleWork> modules;  ///< work of the ops in forward and backward; empty if not counted; excludes host waits

    [[nodiscard]] double total() const { return forward + backward; }
};

/// Times of a layout's chunks. Each piece is computed once, however many chunks have it.
class PassTimes {
public:
    /// `inputs` must outlive it.
    explicit PassTimes(const StepInputs& inputs);
    ~PassTimes();
    PassTimes(const PassTimes&) = delete;
    PassTimes& operator=(const PassTimes&) = delete;

    [[nodiscard]] StageTime chunk(const ChunkCensus& chunk);
    /// All chunks of a pipeline rank together.
    [[nodiscard]] StageTime stage(int rank);

private:
    struct PieceTime;
    // Indices into pieces_ after the kinds of layers.
    static constexpr std::size_t kPrediction = 0, kEmbedding = 1, kHead = 2, kEnds = 3;

    /// Adds `count` copies of a piece; `recomputed`: its forward runs once more.
    void add(StageTime& time, std::size_t place, double count, bool recomputed);
    /// `share`: fraction of the layers that is recomputed.
    [[nodiscard]] StageTime of(const ChunkCensus& held, double share);

    const StepInputs& in_;
    std::vector<std::optional<PieceTime>> pieces_;  ///< two entries each: without and with recompute
};

[[nodiscard]] StageTime chunk_time(const StepInputs& inputs, const ChunkCensus& chunk);

/// Gradient reduction and parameter gather of `count` parameters, all exposed.
struct DataParallelSeconds {
    double reduce = 0, gather = 0;
    double buckets = 1;  ///< number of buckets, if buckets are cut by size
};
[[nodiscard]] DataParallelSeconds data_parallel_seconds(const StepInputs& inputs, const ParameterCount& count);

/// `stage`: layer counts of the rank, for Muon. `passes`: seconds of all its forwards and backwards, which hide transfers of optimizer
/// state.
[[nodiscard]] double optimizer_seconds(const StepInputs& inputs, const ParameterCount& count, const ChunkCensus& stage, double passes);
/// One transfer between adjacent stages; 0 without a pipeline.
[[nodiscard]] double transfer_seconds(const StepInputs& inputs);
/// All-reduce of the gradient of the embedding table shared by the first and last stage; 0 if they share none.
[[nodiscard]] double tied_embedding_seconds(const StepInputs& inputs);

}  // namespace mgplan::simulator
