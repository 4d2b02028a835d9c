#pragma once
// Small models that train in a moment, layouts of them as one line, and ways to run them: ranks as threads on any device,
// or one rank on shapes.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/layers/routing_log.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::tests {

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
    model::GradientOptions gradients{};
    int group_size = 0;    ///< of the interleaved schedule; 0: pp
    std::string stages{};  ///< a pipeline layout string; empty: the automatic split
    std::string order{};   ///< of the axes; empty: Megatron-LM's default
    std::optional<SplitSchedule> schedule{};
    OffloadSpec offload{};
};

/// Eight sequences a step.
[[nodiscard]] inline model::TrainingTask task_for(const ModelSpec& model, const Case& c, Precision precision, std::int64_t sequence = 16) {
    model::TrainingTask task;
    task.model = model;
    task.batch = {8, sequence};
    task.training.precision = precision;
    task.training.distributed_optimizer = c.distributed_optimizer;
    task.training.offload = c.offload;
    task.balanced_routing = c.balanced_routing;
    task.gradients = c.gradients;
    Layout& layout = task.layout;
    layout.sizes = {c.tp * c.cp * c.pp * c.dp, c.tp, c.cp, c.ep, model.moe ? c.etp : c.tp, c.pp, AxisOrder{}, 1};
    if (!c.order.empty()) layout.sizes.order = AxisOrder::parse(c.order);
    layout.vpp = c.vpp;
    layout.schedule = c.schedule;
    const bool v_shaped = c.schedule && is_v_shaped(*c.schedule);
    layout.group_size = c.group_size > 0 ? c.group_size : c.pp;
    layout.micro_batch = c.micro_batch;
    layout.num_microbatches = task.batch.global_batch / (c.dp * c.micro_batch);
    layout.sequence_parallel = c.sequence_parallel;
    layout.cp_comm_type = c.cp_comm_type;
    layout.recompute = c.recompute;
    layout.recompute_modules = c.modules;
    if (c.recompute == Recompute::full) {
        layout.recompute_method = c.method;
        layout.recompute_num_layers = c.recompute_layers;
    }
    StageSplitRequest request;
    request.layers = model.layers;
    request.mtp_layers = model.mtp_layers;
    request.pp = c.pp;
    request.vpp = c.vpp;
    request.v_shaped = v_shaped;
    request.pipeline_layout = c.stages;
    layout.split = std::make_shared<const StageSplit>(
        c.stages.empty() ? automatic_stage_split(model.layers, model.mtp_layers, c.pp, c.vpp, v_shaped).value()
                         : make_stage_split(request));
    return task;
}

/// Every step sees the same eight sequences, so that the loss must fall. Ids below 61.
inline void tokens_of(std::int64_t sequence, std::span<std::int32_t> tokens) {
    std::uint64_t state = static_cast<std::uint64_t>(sequence % 8) * 7919 + 17;
    for (auto& token : tokens) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        token = static_cast<std::int32_t>((state >> 33U) % 61);
    }
}

struct Outcome {
    std::vector<model::StepReport> steps;           ///< of rank 0
    std::vector<model::MemoryUse> memory;           ///< by rank
    std::vector<std::int64_t> host;                 ///< by rank: most bytes that waited in the host's memory
    std::vector<model::CollectiveCounter> traffic;  ///< by rank, as the transport counted it
    std::vector<model::RoutingLog> routing;         ///< by rank
};

/// make(rank) makes a rank's device on its thread: one with memory() and restart_high_water().
template <class Make>
[[nodiscard]] Outcome train_ranks(const model::TrainingTask& task, int steps, Make make, bool watch_margins = false) {
    const int ranks = static_cast<int>(task.layout.sizes.world);
    Outcome outcome;
    outcome.memory.resize(static_cast<std::size_t>(ranks));
    outcome.host.resize(static_cast<std::size_t>(ranks));
    outcome.routing.resize(static_cast<std::size_t>(ranks));
    runtime::InProcessWorld world(ranks);
    std::mutex mutex;
    runtime::run_ranks(world, [&](int rank) {
        const auto device = make(rank);
        model::RoutingLog routing;
        if (watch_margins) routing.watch_margins();
        model::RankTrainer trainer(task, *device, world.view(rank), &routing);
        device->restart_high_water();
        std::vector<model::StepReport> reports;
        for (int step = 0; step < steps; ++step) reports.push_back(trainer.step(tokens_of, 1e-2));
        const std::scoped_lock lock(mutex);
        outcome.memory[static_cast<std::size_t>(rank)] = device->memory();
        outcome.host[static_cast<std::size_t>(rank)] = device->host_peak();
        outcome.routing[static_cast<std::size_t>(rank)] = std::move(routing);
        if (rank == 0) outcome.steps = std::move(reports);
    });
    for (int rank = 0; rank < ranks; ++rank) outcome.traffic.push_back(world.traffic(rank));
    return outcome;
}

struct Prediction {
    model::MemoryUse memory;
    std::int64_t host = 0;
    model::CollectiveCounter traffic;
};

/// The same steps of one rank on shapes alone, which stand for a device of `traits`. `routing`: a run's log to take counts
/// from, or nothing.
[[nodiscard]] inline Prediction predict_rank(const model::TrainingTask& task, int rank, int steps, const model::KernelTraits& traits = {},
                                             model::RoutingLog* routing = nullptr) {
    model::MetaDevice device({.keep_allocations = false, .keep_ops = false, .stands_for = traits});
    Prediction prediction;
    model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world), &prediction.traffic),
                               routing);
    device.restart_high_water();
    for (int step = 0; step < steps; ++step) (void)trainer.step(tokens_of, 1e-2);
    prediction.memory = device.memory();
    prediction.host = device.host_peak();
    return prediction;
}

}  // namespace mgplan::tests
