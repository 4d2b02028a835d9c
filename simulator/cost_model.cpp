#include "simulator/cost_model.hpp"

#include <algorithm>

#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model_state.hpp"

namespace mgplan::simulator {

CostModel::CostModel(const Workload& workload) : CostModel(workload, calibration_of(workload.cluster, workload.training.software)) {}
CostModel::CostModel(const Workload& workload, const Calibration& calibration) {
    state_ = std::make_unique<State>(workload, std::make_shared<ByModel>(workload, calibration, nullptr),
                                     std::make_shared<ModelStates>(workload));
    least_ = std::make_unique<Least>(Least{std::make_shared<SharedLeast>(), {}, {}, {}});
}
CostModel::CostModel(const Workload& workload, const CostModel& other) {
    state_ = std::make_unique<State>(workload, std::make_shared<ByModel>(workload, *other.state_->shared),
                                     std::make_shared<ModelStates>(workload));
    least_ = std::make_unique<Least>(Least{other.least_->shared, {}, {}, {}});
}
CostModel::CostModel(const Workload& workload, const Calibration& calibration, const CostModel& other) {
    state_ = std::make_unique<State>(workload, std::make_shared<ByModel>(workload, calibration, other.state_->shared.get()),
                                     std::make_shared<ModelStates>(workload));
}
CostModel::~CostModel() = default;

namespace {

Workload in_adverse_conditions(Workload workload) {
    const AdverseConditions conditions = workload.adverse.value_or(published_adverse_conditions());
    workload.cluster.network.bandwidth *= conditions.network;
    workload.cluster.network.latency /= conditions.network;
    if (workload.routing.kind == RoutingKind::uniform && !workload.training.megatron.forced_routing) {
        workload.routing.kind = RoutingKind::zipf;
        workload.routing.exponent = conditions.routing;
    }
    return workload;
}

Calibration with_adverse_host(Calibration calibration, const Workload& workload) {
    const double factor = workload.adverse.value_or(published_adverse_conditions()).host;
    for (double* seconds : {&calibration.host_kernel_seconds, &calibration.checkpoint_host_seconds, &calibration.issue_seconds})
        *seconds *= factor;
    return calibration;
}

}  // namespace

CostModel::Adverse::Adverse(const CostModel& usual)
    : workload(in_adverse_conditions(usual.workload())), model(workload, with_adverse_host(usual.calibration(), usual.workload()), usual) {}

CostModel::State& CostModel::state_of(const Layout& layout) {
    return state_of(layout.switches);
}

CostModel::State& CostModel::state_of(const std::shared_ptr<const LayoutSwitches>& switches) {
    if (!switches) return *state_;
    if (last_ == nullptr || last_->switches != switches) {
        auto found = std::find_if(switched_.begin(), switched_.end(), [&](const auto& one) { return one->switches == switches; });
        if (found == switched_.end())
            found = std::find_if(switched_.begin(), switched_.end(), [&](const auto& one) { return *one->switches == *switches; });
        last_ = found == switched_.end() ? add_switched(switches) : found->get();
    }
    return *last_->state;
}

CostModel::Switched* CostModel::add_switched(const std::shared_ptr<const LayoutSwitches>& switches) {
    // Only these switches change parameters, gradients and optimizer state.
    LayoutSwitches types;
    types.sharding = switches->sharding;
    types.bf16_gradients = switches->bf16_gradients;
    types.bf16_moments = switches->bf16_moments;
    auto added = std::make_unique<Switched>(state_->workload, switches);
    if (types != *switches) {
        const State& alike = types == LayoutSwitches{} ? *state_ : state_of(std::make_shared<const LayoutSwitches>(types));
        added->state.emplace(added->workload, alike.shared, alike.states);
    } else {
        // Chunks and replays are of one sharding; layers are not.
        auto shared = switches->sharding ? std::make_shared<ByModel>(added->workload, *state_->shared) : state_->shared;
        added->state.emplace(added->workload, std::move(shared), std::make_shared<ModelStates>(added->workload));
    }
    return switched_.emplace_back(std::move(added)).get();
}

const Workload& CostModel::workload() const {
    return state_->workload;
}

LayoutPeaks CostModel::peaks(const Layout& layout, std::int64_t most) {
    State& state = state_of(layout);
    const bool graphed = !layout.cuda_graphs.empty() && !state.memory.state_exceeds(layout, most);
    return state.memory.peaks(layout, most, graphed ? state.graphed_costs(layout) : nullptr);
}

MemoryPrediction CostModel::memory(const Layout& layout) {
    State& state = state_of(layout);
    return state.memory.predict(layout, false, state.graphed_costs(layout));
}

MemoryPrediction CostModel::replayed_memory(const Layout& layout) {
    State& state = state_of(layout);
    return state.memory.predict(layout, true, state.graphed_costs(layout));
}

std::optional<MemoryPrediction> CostModel::replayed_memory(const Layout& layout, std::int64_t limit) {
    State& state = state_of(layout);
    return state.memory.predict_replayed(layout, limit, state.graphed_costs(layout));
}

double CostModel::estimate_seconds(const Layout& layout) {
    return state_of(layout).estimate_time(layout).iteration_seconds;
}

TimePrediction CostModel::estimate_time(const Layout& layout) {
    return state_of(layout).estimate_time(layout);
}

Prediction CostModel::estimate(const Layout& layout) {
    return {state_of(layout).estimate_time(layout), replayed_memory(layout)};
}

std::int64_t CostModel::passes(const Layout& layout) {
    return (layout.schedule ? 3 : 2) * layout.sizes.pp * layout.vpp * layout.num_microbatches;
}

Prediction CostModel::predict_exactly(const Layout& layout) {
    return {exact_time(layout), replayed_memory(layout)};
}

TimePrediction CostModel::exact_time(const Layout& layout) {
    TimePrediction time = passes(layout) <= kMostReplayedPasses
                              ? timeline(layout, false).step.time
                              : state_of(layout).estimate_time(layout, state_of(layout).costs_by_module(layout));
    if (!adverse_) adverse_ = std::make_unique<Adverse>(*this);
    time.adverse_seconds = std::max(time.iteration_seconds, adverse_->model.exact_seconds(layout));
    return time;
}

double CostModel::exact_seconds(const Layout& layout) {
    return passes(layout) <= kMostReplayedPasses ? state_of(layout).timeline_seconds(layout) : estimate_seconds(layout);
}

LayoutTimeline CostModel::timeline(const Layout& layout, bool details, const std::vector<double>& slowdown) {
    State& state = state_of(layout);
    return state.timeline(layout, state.costs_by_module(layout), state.shared->memos.program(layout), false, details, slowdown);
}

LayoutTimeline CostModel::timeline(const Layout& layout, const PipelineOrder& order, bool details, const std::vector<double>& slowdown) {
    State& state = state_of(layout);
    auto program = std::make_shared<const PipelineProgram>(make_program(order));
    const LayerCosts costs = state.costs_by_module(layout, program->divides_backwards());
    return state.timeline(layout, costs, std::move(program), order.v_shaped, details, slowdown);
}

RankMemory CostModel::stage_memory(const Layout& layout, int pp_rank) {
    State& state = state_of(layout);
    return state.memory.stage(layout, pp_rank, state.graphed_costs(layout));
}

RankProbe CostModel::megatron_ops(const Layout& layout, int pp_rank) {
    return state_of(layout).memory.megatron_ops(layout, pp_rank);
}

GraphTerms CostModel::graphs(const Layout& layout, int pp_rank) {
    State& state = state_of(layout);
    return state.memory.graphs(layout, pp_rank, state.graphed_costs(layout));
}

double CostModel::chunk_seconds(const Layout& layout, const StageChunk& chunk) {
    const StepInputs inputs = state_of(layout).inputs_of(layout);
    const double seconds = chunk_time(inputs, census_of(state_of(layout).kinds, chunk)).total();
    if (layout.vpp > 1 && state_of(layout).workload.training.overlap_p2p) return seconds;
    return seconds + transfer_seconds(inputs) * ((chunk.loss ? 0 : 1) + (chunk.embedding ? 0 : 1));
}

const LayerCosts& CostModel::costs(const Layout& layout) {
    return state_of(layout).costs(layout);
}

std::optional<ReservedMemory> CostModel::replay_allocator(const Layout& layout, int pp_rank) {
    if (layout.engine != Engine::megatron) return std::nullopt;
    return state_of(layout).memory.replay_megatron(layout, pp_rank);
}

AllocatorHistory CostModel::record_allocator(const Layout& layout, int pp_rank) {
    return state_of(layout).memory.record_megatron(layout, pp_rank);
}

const Calibration& CostModel::calibration() const {
    return state_->calibration;
}

}  // namespace mgplan::simulator
