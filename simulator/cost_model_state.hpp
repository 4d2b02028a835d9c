#pragma once
// Internal state of a cost model for each workload it predicts. Only simulator/cost_model*.cpp includes it.

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plan/layout/layout_switches.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/least_costs.hpp"
#include "simulator/memory/layout_memory.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/memory/routing_load.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/model_memos.hpp"
#include "simulator/muon.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece/shared_memo.hpp"
#include "simulator/piece/stage_census.hpp"
#include "simulator/piece_parameters.hpp"
#include "simulator/price/recorded_costs.hpp"
#include "simulator/price/training_rates.hpp"
#include "simulator/step_time.hpp"

namespace mgplan::simulator {

/// The properties of the layout's communication groups that layer costs depend on.
[[nodiscard]] LinksKey links_key(const Layout& layout, const Workload& workload);
/// `workload`: with the layout's switches.
[[nodiscard]] CostKey cost_key(const Layout& layout, const Workload& workload);
/// The key of the same layout without recompute.
[[nodiscard]] CostKey cost_key_without_tail(const Layout& layout, const Workload& workload);

/// Results that all sets of switches share.
struct CostModel::ByModel {
    Calibration calibration;
    double flops;  ///< model_flops()
    ModelMemos memos;
    ShardLayers shards;
    RecordedCosts recorded;
    RecordedCosts recorded_by_module;  ///< the same costs, with PieceCost::modules
    std::unordered_map<CostKey, LayerCosts, MemoKeyHash> layers{};

    /// `traces`: not null: shares the recordings of its layers.
    ByModel(const Workload& workload, const Calibration& calibrated, const ByModel* traces);
    /// `other`: of another thread, with an equal workload.
    ByModel(const Workload& workload, const ByModel& other);
};

struct CostModel::State {
    const Workload& workload;
    const Calibration& calibration;
    TrainingRates rates;
    std::unordered_map<CostKey, std::vector<MuonSeconds>, MemoKeyHash> orthogonalised;
    std::shared_ptr<ByModel> shared;
    const LayerKinds& kinds;
    std::shared_ptr<ModelStates> states;  ///< parameter, gradient and optimizer bytes: most switches leave them unchanged
    LayoutMemory memory;
    std::optional<RoutingLoad> routing;  ///< set for models with experts
    PackedAttention packed;

    State(const Workload& work, std::shared_ptr<ByModel> by_model, std::shared_ptr<ModelStates> of_types);

    /// Seconds of Muon's orthogonalisation by index of a layer's kind; the last entry is a multi-token prediction layer.
    std::vector<double> orthogonalise_seconds(const Layout& layout);

    /// Costs of the layers, computed at the first call for each key.
    const LayerCosts& costs(const Layout& layout);
    /// costs() with PieceCost::modules, used by reports. `divided`: as in CostKey, in place of the layout's.
    LayerCosts costs_by_module(const Layout& layout, std::optional<bool> divided = {});
    /// Costs for LayoutMemory: costs() if the layout has CUDA graphs, else null.
    const LayerCosts* graphed_costs(const Layout& layout) { return layout.cuda_graphs.empty() ? nullptr : &costs(layout); }
    /// The result of costs() for this key; null if not computed yet.
    [[nodiscard]] const LayerCosts* known_costs(const CostKey& key);
    /// costs() without storing the result: used where only the minimum over many is needed.
    LayerCosts costs_now(const Layout& layout);

    /// Lower bound of layer costs over all dispatchers, overlaps and launches: compute outside MoE layers, plus the experts' GEMMs on a
    /// rank with an even share of the tokens.
    LayerCosts least_compute(const Layout& layout);

    /// costs_now() with MoE layers at zero cost.
    LayerCosts costs_without_mixtures(const Layout& layout);
    /// Adds the experts' GEMMs on a rank with an even share of the tokens; adds nothing if the model has a capacity factor.
    void add_expert_products(const Layout& layout, LayerCosts& costs) const;

    /// The rank's shard of the layers, as the cost functions take it.
    Shard shard_of(const Layout& layout, const CostKey& key);

    /// Parameters of `stage` on one rank. `has_table`: the rank holds the embedding table.
    [[nodiscard]] ParameterCount count_of(const PieceParameters& pieces, const ChunkCensus& stage, bool has_table) const;

    /// Inputs of step_time() and step_timeline(). `layers_of_shard` must outlive the result.
    StepInputs inputs_of(const Layout& layout) { return inputs_of(layout, costs(layout)); }
    StepInputs inputs_of(const Layout& layout, const LayerCosts& layers_of_shard);

    /// Closed form; for schedules with split backwards the event simulation.
    TimePrediction estimate_time(const Layout& layout, const LayerCosts& layers_of_shard);
    TimePrediction estimate_time(const Layout& layout) { return estimate_time(layout, costs(layout)); }

    /// Parameters of a program's chunks; index = rank · chunks + chunk.
    [[nodiscard]] std::vector<ParameterCount> counts_of(const Layout& layout, const PipelineProgram& program,
                                                        const std::vector<ChunkCensus>& chunks) const;

    /// Event simulation of a step. `v_shaped`: chunk 1 runs from the last rank to the first. `details`, `slowdown`: see step_timeline().
    LayoutTimeline timeline(const Layout& layout, const LayerCosts& layers_of_shard, std::shared_ptr<const PipelineProgram> program,
                            bool v_shaped, bool details, const std::vector<double>& slowdown);
    /// timeline().step.time.iteration_seconds alone.
    double timeline_seconds(const Layout& layout);
};

/// A workload with switches applied, and its state.
struct CostModel::Switched {
    std::shared_ptr<const LayoutSwitches> switches;
    Workload workload;
    std::optional<State> state;

    Switched(const Workload& base, std::shared_ptr<const LayoutSwitches> choices);
};

/// A workload in adverse conditions, and its model.
struct CostModel::Adverse {
    Workload workload;
    CostModel model;

    explicit Adverse(const CostModel& usual);
};

/// Device seconds of one microbatch in all layers and in each piece.
struct CostModel::DeviceSeconds {
    double whole = 0;
    PieceSeconds pieces;
};

/// Lower bound of layer costs over all choices.
struct CostModel::Bounded {
    LayerCosts layers;
    DeviceSeconds seconds;
};

/// Results of the bounds, by the key of the layout without recompute. Shared by all threads.
struct CostModel::SharedLeast {
    SharedMemo<CostKey, Bounded> all;
    SharedMemo<CostKey, double> compute, without_exchanges;  ///< lower bounds of the whole model's seconds
};

/// Results of the bounds of one model.
struct CostModel::Least {
    std::shared_ptr<SharedLeast> shared;
    std::unordered_map<const LayerCosts*, DeviceSeconds> seconds;  ///< of layers with known switches
    /// Switches that least_bytes_of_tail() uses, by the layout's switches, which BoundedChoices keeps alive.
    std::unordered_map<const LayoutSwitches*, std::shared_ptr<const LayoutSwitches>> narrowest, without_overlaps;
};

}  // namespace mgplan::simulator
