#pragma once
// What the parity tests share: layouts as one line, training on ranks as threads, and the same ranks on shapes alone.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/training/rank_trainer.hpp"

namespace mgplan::model {

inline constexpr int kSteps = 5;

/// A layout's sizes; what is left out is 1 or off. Without mixtures etp is tp.
struct Case {
    std::string name;
    int tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1;
    int ep = 1, etp = 1;
    int micro_batch = 1;
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> modules{};
    RecomputeMethod method = RecomputeMethod::uniform;
    int recompute_layers = 1;
    bool distributed_optimizer = true;
    bool balanced_routing = false;
    GradientOptions gradients{};
    int group_size = 0;    ///< of the interleaved schedule; 0: pp
    std::string stages{};  ///< a pipeline layout string; empty: the automatic split
    std::string order{};   ///< of the axes; empty: Megatron-LM's default
};

/// One dense layer, then three mixtures with a shared expert; softmax scores.
[[nodiscard]] ModelSpec small_mixture();
/// Sigmoid scores, a gate on the shared expert, plain activation, layer norms, a tied table, dense and mixture layers in turn.
[[nodiscard]] ModelSpec small_sigmoid_mixture();

/// DeepSeek-V3 in small: latent attention with YaRN, expert bias, experts in groups, two depths of multi-token prediction.
[[nodiscard]] ModelSpec small_deepseek_v3();
/// gpt-oss in small: sinks, a window in every other layer, biases of router and experts.
[[nodiscard]] ModelSpec small_gpt_oss();

/// Eight sequences a step.
[[nodiscard]] TrainingTask task_for(const ModelSpec& model, const Case& c, Precision precision, std::int64_t sequence = 16);

/// Every step sees the same eight sequences, so that the loss must fall. Ids below 61.
void tokens_of(std::int64_t sequence, std::span<std::int32_t> tokens);

struct Outcome {
    std::vector<StepReport> steps;
    std::vector<MemoryUse> memory;           ///< by rank
    std::vector<CollectiveCounter> traffic;  ///< by rank, as the transport counted it
    std::vector<RoutingLog> routing;         ///< by rank
};

/// kSteps steps on CPU ranks as threads.
[[nodiscard]] Outcome train(const TrainingTask& task);

struct Prediction {
    MemoryUse memory;
    CollectiveCounter traffic;
};

/// The same steps of one rank on shapes alone. `routing`: a run's log to take counts from, or nothing.
[[nodiscard]] Prediction predict(const TrainingTask& task, int rank, RoutingLog* routing);

/// Bytes by category, each at its most and all of them at the peak, and traffic by group: no difference at all. The
/// prediction gets the run's own routing counts.
void expect_prediction_equals(const TrainingTask& task, int rank, RoutingLog& routing, const MemoryUse& memory,
                              const CollectiveCounter& traffic);
void expect_prediction_equals(const TrainingTask& task, Outcome& outcome, int rank);

/// The run that all layouts are compared with; made once for equal names and sizes. A mixture's auxiliary loss
/// is of a microbatch, so the one rank takes the same microbatches one by one.
[[nodiscard]] const Outcome& one_rank(const ModelSpec& model, int micro_batch, Precision precision = Precision::fp64,
                                      std::int64_t sequence = 16);

/// Losses and auxiliary losses agree to `tolerance`, relative, and so do the gradient norms of the first `norms` steps; and
/// the loss falls.
void expect_equal_steps(const std::vector<StepReport>& steps, const std::vector<StepReport>& expected, double tolerance,
                        std::size_t norms = kSteps);

}  // namespace mgplan::model
