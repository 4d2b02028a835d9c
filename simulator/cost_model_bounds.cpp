// Lower bounds of memory and time over all recompute, graph and switch settings.

#include <algorithm>

#include "simulator/cost_model_state.hpp"

namespace mgplan::simulator {
namespace {

double least_of(const TimePrediction& time) {
    return std::min(time.at_least_seconds, time.iteration_seconds);
}

/// Lower bound in seconds of an iteration in which a microbatch takes `whole` device seconds in all layers and ends: the slowest stage
/// takes at least the mean of all stages.
double seconds_of_mean_stage(const Layout& layout, double whole) {
    // Slightly less, because the closed form adds in another order.
    return whole / static_cast<double>(layout.sizes.pp) * static_cast<double>(layout.num_microbatches) * (1 - 1e-9);
}

/// True if one of the choices hides expert exchanges and otherwise equals `switches`.
bool hides_more(const BoundedChoices& choices, const std::shared_ptr<const LayoutSwitches>& switches) {
    const LayoutSwitches none;
    const LayoutSwitches& asked = switches ? *switches : none;
    return std::any_of(choices.switches.begin(), choices.switches.end(), [&](const auto& one) {
        return one && one->overlap_moe && !asked.overlap_moe && one->dispatcher == asked.dispatcher &&
               one->overlap_tp == asked.overlap_tp && one->bf16_gradients == asked.bf16_gradients &&
               one->bf16_moments == asked.bf16_moments;
    });
}

}  // namespace

const CostModel::Bounded& CostModel::least_layers(const Layout& layout, const BoundedChoices& choices) {
    return least_->shared->all.of(cost_key_without_tail(layout, state_->workload), [&] {
        LayerCosts least;
        Layout plain = without_tail(layout);
        std::vector<CostKey> taken;
        for (const auto& switches : choices.switches) {
            // A layer with hidden exchanges is never slower than one with exposed exchanges, except for launches and unpaired passes.
            if (choices.graphs && hides_more(choices, switches)) continue;
            plain.switches = switches;
            State& state = state_of(plain);
            const CostKey key = cost_key(plain, state.workload);
            if (std::find(taken.begin(), taken.end(), key) != taken.end()) continue;
            take_least(least, state.costs_now(plain));
            taken.push_back(key);
        }
        const DeviceSeconds seconds = device_seconds(least);
        return Bounded{std::move(least), seconds};
    });
}

double CostModel::seconds_of_stages(const Layout& layout, bool repeats, const PieceSeconds& pieces) const {
    const Workload& workload = state_->workload;
    return simulator::seconds_of_stages(layout, repeats, state_->shared->memos.census(layout), pieces, workload.model.mtp_layers,
                                        workload.training.megatron.fully_sharded.active());
}

double CostModel::whole_model(const LayerCosts& costs) const {
    return seconds_of_model(costs, state_->kinds, state_->workload.model.mtp_layers);
}

CostModel::DeviceSeconds CostModel::device_seconds(const LayerCosts& costs) const {
    return {whole_model(costs), seconds_of_pieces(costs)};
}

double CostModel::least_compute(const Layout& layout, const BoundedChoices& choices) {
    Layout plain = without_tail(layout);
    plain.switches = choices.narrowest;  // narrow gradients cost least to accumulate
    return whole_model(state_of(plain).least_compute(plain));
}

double CostModel::least_without_exchanges(const Layout& layout, const BoundedChoices& choices) {
    Layout plain = without_tail(layout);
    LayerCosts least;
    std::vector<std::pair<bool, Dtype>> taken;  // the only settings that change the cost outside MoE layers
    for (const auto& switches : choices.switches) {
        plain.switches = switches;
        State& state = state_of(plain);
        const std::pair seen(state.workload.training.overlap_tp, state.workload.training.grad_dtype);
        if (std::find(taken.begin(), taken.end(), seen) != taken.end()) continue;
        take_least(least, state.costs_without_mixtures(plain));
        taken.push_back(seen);
    }
    plain.switches = choices.narrowest;
    state_of(plain).add_expert_products(plain, least);
    return whole_model(least);
}

double CostModel::least_seconds_unsplit(const Layout& layout, const BoundedChoices& choices, double enough) {
    // The slowest stage takes at least the mean of all: these two cheap bounds already decide about most layouts.
    if (std::isfinite(enough)) {
        const CostKey key = cost_key_without_tail(layout, state_->workload);
        SharedLeast& shared = *least_->shared;
        double mean = seconds_of_mean_stage(layout, shared.compute.of(key, [&] { return least_compute(layout, choices); }));
        if (mean > enough) return mean;
        if (state_->workload.model.moe) {
            const double whole = shared.without_exchanges.of(key, [&] { return least_without_exchanges(layout, choices); });
            mean = seconds_of_mean_stage(layout, whole);
            if (mean > enough) return mean;
        }
    }
    return seconds_of_mean_stage(layout, least_layers(layout, choices).seconds.whole);
}

double CostModel::least_seconds(const Layout& layout, const BoundedChoices& choices, double enough) {
    if (const double mean = least_seconds_unsplit(layout, choices, enough); mean > enough) return mean;
    const Bounded& least = least_layers(layout, choices);
    if (const double slowest = seconds_of_stages(layout, false, least.seconds.pieces); slowest > enough) return slowest;
    Layout plain = without_tail(layout);
    plain.switches = choices.narrowest;
    StepInputs inputs = state_of(plain).inputs_of(plain, least.layers);
    inputs.graphed = choices.graphs;
    return least_of(step_time(inputs));
}

double CostModel::least_seconds_repeated(const Layout& layout, const BoundedChoices& choices) {
    return seconds_of_stages(layout, true, least_layers(layout, choices).seconds.pieces);
}

double CostModel::least_seconds(const Layout& layout, bool graphs, double enough) {
    State& state = state_of(layout);
    // The lookup by key avoids a copy of the layout in most calls.
    const LayerCosts* known = state.known_costs(cost_key_without_tail(layout, state.workload));
    const LayerCosts& costs = known != nullptr ? *known : state.costs(without_tail(layout));
    auto [entry, fresh] = least_->seconds.try_emplace(&costs);
    if (fresh) entry->second = device_seconds(costs);
    if (const double mean = seconds_of_mean_stage(layout, entry->second.whole); mean > enough) return mean;
    if (const double slowest = seconds_of_stages(layout, false, entry->second.pieces); slowest > enough) return slowest;
    const Layout plain = without_tail(layout);
    StepInputs inputs = state.inputs_of(plain, costs);
    inputs.graphed = graphs;  // graphs may remove all launches
    return least_of(step_time(inputs));
}

std::int64_t CostModel::least_bytes(const Layout& layout, const BoundedChoices& choices) {
    // Full recompute keeps more gathered weights (memory/model_state.cpp).
    Layout narrow = without_tail(layout);
    narrow.switches = choices.narrowest;
    // With a limit of 0 bytes peaks() returns the model state alone.
    return state_of(narrow).memory.peaks(narrow, 0, nullptr).even;
}

std::int64_t CostModel::least_bytes_switched(const Layout& layout) {
    return state_of(layout).memory.least_bytes_of_state(without_tail(layout));  // full recompute keeps more gathered weights
}

std::int64_t CostModel::least_bytes_of_tail(const Layout& layout, const BoundedChoices& choices, bool everywhere, std::int64_t enough) {
    const auto [entry, fresh] = (everywhere ? least_->without_overlaps : least_->narrowest).try_emplace(layout.switches.get());
    if (fresh) {
        // Dtypes of `narrowest`, or the layout's own, with the layout's dispatcher; overlaps take no memory.
        LayoutSwitches narrow = choices.narrowest ? *choices.narrowest : LayoutSwitches{};
        if (everywhere) narrow = layout.switches ? *layout.switches : LayoutSwitches{};
        narrow.dispatcher = layout.switches ? layout.switches->dispatcher : std::nullopt;
        narrow.overlap_tp = narrow.overlap_moe = false;
        if (!(narrow == LayoutSwitches{})) entry->second = std::make_shared<const LayoutSwitches>(narrow);
    }
    // The layout's own switches stay: they do not change the memory of its passes.
    return state_of(entry->second).memory.least_bytes(layout, everywhere, enough);
}

}  // namespace mgplan::simulator
