#pragma once
// Everything one rank needs to train: its groups, chunks, buffers, optimizer and pipeline, put together from a layout. The
// same on shapes, CPU and CUDA: only the device and the world differ.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/world.hpp"
#include "model/layers/initialization.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/layers/routing_log.hpp"
#include "model/optimizer/optimizer.hpp"
#include "model/pipeline/pipeline_executor.hpp"
#include "plan/batch_spec.hpp"
#include "plan/layout.hpp"
#include "plan/model_spec.hpp"
#include "plan/training_spec.hpp"

namespace mgplan::model {

/// What is trained; plain values that outlive the trainer.
struct TrainingTask {
    ModelSpec model;
    BatchSpec batch;
    TrainingSpec training;
    Layout layout;
    InitializationOptions initialization;
    OptimizerOptions optimizer;  ///< distributed and main_dtype follow from `training`
    std::uint64_t dropout_seed = 4321;
    bool balanced_routing = false;  ///< mixtures: experts chosen in turn, whatever the router says
};

/// Writes sequence `index` of the whole run: batch.sequence + 1 token ids, of which the last is only a target.
using SequenceSource = std::function<void(std::int64_t index, std::span<std::int32_t> tokens)>;

struct StepReport {
    double loss = 0;  ///< mean over all tokens of the global batch; the same on every rank
    /// Mean load-balancing loss over mixtures and microbatches without its coefficient: 1 when balanced (Megatron-LM's
    /// load_balancing_loss); 0 where it is not trained. The same on every rank; not part of `loss`.
    double auxiliary_loss = 0;
    StepResult result;
};

/// Features of the task that the layers do not compute, in words; a task with any cannot be trained.
[[nodiscard]] std::vector<std::string> features_not_executed(const TrainingTask& task);

class RankTrainer {
public:
    /// Joins the rank's groups and allocates everything. Throws ConfigError for features_not_executed(). The device must
    /// outlive the trainer; one thread. `routing_log`: this rank's, if any (model/layers/context.hpp); outlives the trainer.
    RankTrainer(const TrainingTask& task, Device& device, const World& world, RoutingLog* routing_log = nullptr);
    RankTrainer(const RankTrainer&) = delete;  // layers hold the address of a member
    RankTrainer& operator=(const RankTrainer&) = delete;

    /// One training step, counted from 1.
    StepReport step(const SequenceSource& source, double learning_rate);

    /// Reports what every communicator of this rank does from now on.
    void set_listener(CollectiveListener* listener);

private:
    struct Groups {
        std::unique_ptr<Communicator> tp, cp, ep, etp, dp_cp, expert_dp, tp_pp, pp_forward, pp_backward, embedding;
        std::unique_ptr<Communicator> tp_cp, expert_model;  ///< of models with mixtures
    };

    [[nodiscard]] Microbatch microbatch(std::int64_t index, const SequenceSource& source) const;
    [[nodiscard]] double mean_loss(double sum) const;
    [[nodiscard]] double mean_auxiliary_loss() const;

    const TrainingTask& task_;
    Device& device_;
    Groups groups_;
    RankContext context_;
    int pp_rank_ = 0;
    std::int64_t dp_rank_ = 0;
    std::vector<std::unique_ptr<ChunkBuffers>> buffers_;
    std::vector<std::unique_ptr<ModelChunk>> chunks_;
    std::unique_ptr<Optimizer> optimizer_;
    std::unique_ptr<PipelineExecutor> executor_;
    RankSchedule schedule_;
    double auxiliary_loss_ = 0;  ///< of this rank's rows in this step, what the layers add to
    std::int64_t steps_ = 0;
    std::int64_t updates_ = 0;  ///< steps that changed the parameters: what Adam's bias correction counts
};

}  // namespace mgplan::model
