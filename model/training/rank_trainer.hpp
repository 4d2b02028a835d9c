#pragma once
// Trains one rank: its groups, chunks, buffers, optimizer and pipeline, made from a layout. The
// same on shapes, CPU and CUDA: only the device and the world differ.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/world.hpp"
#include "model/device/late_values.hpp"
#include "model/graphs/iteration_graph.hpp"
#include "model/graphs/layer_graphs.hpp"
#include "model/layers/expert_bias.hpp"
#include "model/layers/fp8_delayed.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/layers/routing_log.hpp"
#include "model/optimizer/chunk_traffic.hpp"
#include "model/optimizer/fp8_parameters.hpp"
#include "model/optimizer/optimizer.hpp"
#include "model/pipeline/pipeline_executor.hpp"
#include "model/training/microbatch_source.hpp"
#include "model/training/training_task.hpp"
#include "plan/layout/layout.hpp"

namespace mgplan::model {

/// End of a step, which depends on its values.
enum class StepEnd : std::uint8_t { updated, loss_not_finite, gradient_not_finite };

struct StepReport {
    double loss = 0;  ///< mean over all tokens of the global batch; the same on every rank
    /// Mean load-balancing loss over MoE layers and microbatches without its coefficient: 1 when balanced (Megatron-LM's
    /// load_balancing_loss); 0 where it is not trained. The same on every rank; not part of `loss`.
    double auxiliary_loss = 0;
    /// Mean loss of each depth of multi-token prediction over the tokens that have a target, without its factor; the same on
    /// every rank; not part of `loss`.
    std::vector<double> mtp_losses;
    StepResult result;  ///< not updated: skipped, result.problem says why
    StepEnd end = StepEnd::updated;
};

/// parameter: main parameters and biases of experts. moment: the optimizer's state besides them, which begins with zeros. history:
/// largest magnitudes of fp8, which begin with zeros too.
enum class StateKind : std::uint8_t { parameter, moment, history };

/// A tensor of training state, or the part of it that one rank holds.
struct StatePiece {
    StateKind kind = StateKind::parameter;
    std::string name;        ///< the same under every layout: "decoder.layers.0.mlp.linear_fc1.weight/exp_avg"
    ShardOfWhole shard;      ///< the shard that is flattened
    std::int64_t begin = 0;  ///< its first element there
    Tensor values;           ///< flat
    ElementShare saves;      ///< its elements that this rank saves; others with the same values save the rest
};

/// Progress of a training; with the state and the task it determines the rest: the next sequences, the masks of dropout,
/// the learning rate.
struct TrainingPosition {
    std::int64_t steps = 0;    ///< done or left out
    std::int64_t updates = 0;  ///< of these, done
    bool operator==(const TrainingPosition&) const = default;
};

class RankTrainer {
public:
    /// Joins the rank's groups and allocates everything. Throws ConfigError as check_features() does. The device must
    /// outlive the trainer; one thread. `routing_log`: this rank's, if any (model/layers/context.hpp); outlives the trainer.
    RankTrainer(const TrainingTask& task, Device& device, const World& world, RoutingLog* routing_log = nullptr);
    RankTrainer(const RankTrainer&) = delete;  // layers hold the address of a member
    RankTrainer& operator=(const RankTrainer&) = delete;

    /// Makes one training step, counted from 1. Throws RunError for a loss or gradient that is not finite, under OnNonFinite::stop.
    StepReport step(const SequenceSource& source, double learning_rate);
    /// The same with another list of forwards and backwards than the layout's: one in which every chunk sees `microbatches`
    /// of them. For a probe of memory or time, which needs each op once; its loss means nothing.
    StepReport step(const SequenceSource& source, double learning_rate, const RankSchedule& schedule, std::int64_t microbatches);

    // The same in three parts, for callers that issue a step before they read the end of the one before it: begin_step() of the next may
    // come between end_step() and report(), since the passes do not depend on it. Nothing but report() waits for the device, if
    // the model allows it (docs/running.md).
    /// The passes and the reductions of gradients.
    void begin_step(const SequenceSource& source);
    void begin_step(const SequenceSource& source, const RankSchedule& schedule, std::int64_t microbatches);
    /// Norm, clipping, update and gathers, to be called once the step before was reported, so that updates() includes it.
    void end_step(double learning_rate);
    /// Waits for the values of the last end_step(). Once for each, throws as step() does.
    [[nodiscard]] StepReport report();

    /// Sets the end of the steps from here on for a device that has no values; elsewhere the values decide.
    void assume_end(StepEnd end) { assumed_ = end; }
    /// The list of forwards and backwards that a step runs.
    [[nodiscard]] const RankSchedule& schedule() const { return schedule_; }
    /// Steps that changed the parameters: what a learning-rate schedule counts.
    [[nodiscard]] std::int64_t updates() const { return updates_; }

    /// This rank's chunks with their weights, gathers finished; every rank calls it, since it may have to start them. If parameters are
    /// sharded, only shards exist between the passes. For tests.
    [[nodiscard]] const std::vector<std::unique_ptr<ChunkBuffers>>& parameters();

    /// Parameters and gradients of this rank's `chunk`-th model chunk; with sharded state the parameters may be on their way.
    [[nodiscard]] const ChunkBuffers& buffers(int chunk) const { return *buffers_.at(static_cast<std::size_t>(chunk)); }

    /// All that the next step depends on besides position() and the task: main parameters, moments, biases of experts, histories of fp8.
    /// Between steps; on shapes too.
    [[nodiscard]] std::vector<StatePiece> state() const;
    /// Between steps, all of them reported.
    [[nodiscard]] TrainingPosition position() const;
    /// Resumes from `position`, with the values written into all pieces of state(). Every rank calls it, before its first step.
    void go_on_from(const TrainingPosition& position);
    /// Returns once every rank of the world has called it. Sends and allocates nothing that counts bytes.
    void meet_all();

    /// Biases of the experts of this rank's MoE layers; nullptr where the model has none.
    [[nodiscard]] const ExpertBiases* expert_biases() const { return expert_biases_.get(); }

    /// Totals of the captured graphs; on shapes, of those that would be captured. Nothing without CUDA graphs.
    [[nodiscard]] std::optional<GraphTotals> graph_totals() const;

    /// Sets the listener to all operations of this rank's communicators from now on.
    void set_listener(CollectiveListener* listener);

private:
    struct Groups {
        std::unique_ptr<Communicator> tp, cp, ep, etp, dp_cp, expert_dp, tp_pp, pp_forward, pp_backward, embedding;
        std::unique_ptr<Communicator> tp_cp, expert_model;  ///< of MoE models
        std::unique_ptr<Communicator> tp_dp_cp;             ///< of models with expert biases, and under delayed scaling
        /// With several replicas of sharded state (HSDP): the ranks of dp·cp (edp) in one, and those with the same shards in all.
        std::unique_ptr<Communicator> shard, replicas, expert_shard, expert_replicas;
    };

    // The constructor's steps, in its order.
    void join_groups(const World& world);
    /// Ranks that share the state of dense or of expert parameters.
    [[nodiscard]] Communicator& shards_of(bool expert) const;
    [[nodiscard]] std::unique_ptr<ChunkTraffic> make_traffic(ChunkBuffers& buffers, const ModelChunk& chunk) const;
    void set_context();
    /// Makes each chunk with its buffers and their traffic; completes `share`, the tokens that this rank reads.
    void make_chunks(TokenShare& share);
    void make_expert_biases();
    void make_fp8_delayed();
    /// Experts' histories are reduced over the ranks that hold them, others over tp·dp·cp.
    struct FollowedLayers {
        std::unique_ptr<Fp8Delayed> scaling;
        std::vector<std::string> names;  ///< of its weights
        bool experts = false;
    };
    void update_fp8_scales();
    /// For linear layers' parameters that are stored in fp8: make their scales; set their first values and those of their main parameters;
    /// cast this rank's own parameters, whose codes are still to be gathered.
    void make_fp8_parameters();
    void begin_fp8_parameters();
    void cast_fp8_parameters();
    void add_fp8_histories(std::vector<StatePiece>& pieces) const;
    void make_optimizer();
    void make_executor();

    /// Zeroes gradients before the passes of `microbatches`, unless a graph of the iteration does.
    void begin_gradients(std::int64_t microbatches);
    /// All passes of a step, and the reductions that they start.
    void run_passes(const SequenceSource& source, const RankSchedule& schedule, std::int64_t microbatches, double d_loss);
    /// Starts the gather of all ranks' shards of the parameters.
    void gather_parameters();
    /// Adds up the passes' sums of losses over the global batch, into the tensor that a step ends with.
    void sum_losses(const Tensor& ended) const;
    /// Makes the report from these values of the last end_step().
    [[nodiscard]] StepReport report_of(std::span<const double> values) const;
    /// Gradient of each row's loss in a step of `microbatches`.
    [[nodiscard]] double loss_gradient(std::int64_t microbatches) const;
    /// Gradient of each MoE layer's auxiliary loss in a step of `microbatches`.
    [[nodiscard]] double d_auxiliary(std::int64_t microbatches) const;
    /// Tokens of the global batch, counted over all data-parallel ranks; on the meta device this rank's.
    [[nodiscard]] double count_tokens(std::int64_t rows) const;

    const TrainingTask& task_;
    Device& device_;
    Groups groups_;
    RankContext context_;
    int rank_ = 0;
    int pp_rank_ = 0;
    ShardPlace place_;
    std::vector<std::unique_ptr<ChunkBuffers>> buffers_;
    std::vector<std::unique_ptr<ModelChunk>> chunks_;
    std::vector<std::unique_ptr<ChunkTraffic>> traffic_;  ///< by chunk
    std::unique_ptr<Optimizer> optimizer_;
    std::unique_ptr<ExpertBiases> expert_biases_;      ///< of models with them
    std::vector<FollowedLayers> fp8_delayed_;          ///< under delayed scaling
    std::vector<Fp8Parameters> fp8_parameters_;        ///< dense ones, then experts', where they are stored in fp8
    std::unique_ptr<LayerGraphs> layer_graphs_;        ///< with CUDA graphs of layers
    std::unique_ptr<IterationGraph> iteration_graph_;  ///< with one of the whole iteration
    std::optional<MicrobatchSource> microbatches_;
    bool sums_losses_ = false;      ///< true if the loss is on this stage
    bool gathers_are_due_ = false;  ///< parameters are to be gathered before their next use
    std::unique_ptr<PipelineExecutor> executor_;
    RankSchedule schedule_;
    std::int64_t steps_ = 0;
    bool begun_ = false;           ///< a step, that did not end
    std::int64_t unreported_ = 0;  ///< the step that ended and was not reported; 0: none
    /// Values of its end: the tensor of a step's end, the sum of this rank's own losses, and its sums of squared gradients.
    std::unique_ptr<LateValues> late_values_;
    StepEnd assumed_ = StepEnd::updated;
    std::int64_t updates_ = 0;  ///< steps that changed the parameters, which Adam's bias correction counts
};

}  // namespace mgplan::model
