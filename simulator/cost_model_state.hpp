#pragma once
// What a cost model keeps of the workloads that it prices: for simulator/cost_model*.cpp alone.

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

/// What layer costs depend on.
struct CostKey {
    ShardKey shard;
    LinksKey links;

    bool operator==(const CostKey&) const = default;
    [[nodiscard]] std::size_t hash() const {
        const auto& [shard_, links_] = *this;
        return hash_of(shard_, links_);
    }
};

/// The groups of ranks that layers exchange over, as far as what they cost depends on them.
[[nodiscard]] LinksKey links_key(const Layout& layout, const Workload& workload);
[[nodiscard]] CostKey cost_key(const Layout& layout, const Workload& workload);
/// The key of the same layout without recompute.
[[nodiscard]] CostKey cost_key_without_tail(const Layout& layout, const Workload& workload);

struct CostModel::State {
    const Workload& workload;
    Calibration calibration;
    TrainingRates rates;
    double flops;
    std::unordered_map<CostKey, LayerCosts, MemoKeyHash> layers;
    std::unordered_map<CostKey, std::vector<MuonSeconds>, MemoKeyHash> orthogonalised;
    std::shared_ptr<ModelMemos> memos;  ///< of this thread
    const LayerKinds& kinds;
    std::shared_ptr<ShardLayers> shards;
    std::shared_ptr<ShardLayers> kept;    ///< what layers keep and take, which fewer switches change than what they cost
    std::shared_ptr<ModelStates> states;  ///< which most switches do not change
    State* with_equal_costs = nullptr;    ///< another of the same model, which has priced the layers
    RecordedCosts recorded;
    LayoutMemory memory;
    std::optional<RoutingLoad> routing;  ///< of models with experts
    PackedAttention packed;
    // Layers whose products stay in 16 bits beside quantised ones; null without.
    std::unique_ptr<const Workload> workload_in_bf16;
    std::unique_ptr<State> others_in_bf16;

    /// What is known of a workload that differs in nothing but what switches change.
    struct Known {
        std::shared_ptr<ShardLayers> layers, kept;
        std::shared_ptr<ModelStates> states;
        std::shared_ptr<ModelMemos> memos;  ///< null: for another thread
        const State* others = nullptr;      ///< null: nothing
    };

    State(const Workload& work, const Calibration& calibrated, Known known);

    /// The layers whose products stay in 16 bits cost what they cost where all do.
    void replace_in_bf16(LayerCosts& costs, const LayerCosts& others) const;

    /// By index of a layer's kind, and behind them of a layer of multi-token prediction.
    std::vector<double> orthogonalise_seconds(const Layout& layout);

    /// The state that has the layers' costs.
    [[nodiscard]] State& priced_by() { return with_equal_costs != nullptr ? *with_equal_costs : *this; }

    /// What layers cost, priced when first asked for.
    const LayerCosts& costs(const Layout& layout);
    /// What LayoutMemory wants: costs() of a layout with CUDA graphs, else null.
    const LayerCosts* graphed_costs(const Layout& layout) { return layout.cuda_graphs.empty() ? nullptr : &costs(layout); }
    /// costs() by their key; null where nobody has asked for them.
    [[nodiscard]] const LayerCosts* known_costs(const CostKey& key);
    /// costs() that are not kept: of the many whose least alone counts.
    LayerCosts costs_now(const Layout& layout);

    /// What layers cost at least, whatever a dispatcher, an overlap or the host do: the compute of what is no mixture and the products of
    /// experts on a rank that gets its even share.
    LayerCosts least_compute(const Layout& layout);

    /// costs_now() but for mixtures of experts, which cost nothing.
    LayerCosts costs_without_mixtures(const Layout& layout);
    /// Adds the products of experts on a rank that gets its even share; none with a capacity.
    void add_expert_products(const Layout& layout, LayerCosts& costs) const;

    /// A rank's part of each layer, as prices take it.
    Shard shard_of(const Layout& layout);

    /// Parameters of the pieces in `stage`, on a rank that holds the embedding's table or not.
    [[nodiscard]] ParameterCount count_of(const PieceParameters& pieces, const ChunkCensus& stage, bool has_table) const;

    /// What step_time() and step_timeline() take; `layers_of_shard` outlives it.
    StepInputs inputs_of(const Layout& layout) { return inputs_of(layout, costs(layout)); }
    StepInputs inputs_of(const Layout& layout, const LayerCosts& layers_of_shard);

    /// In closed form, but for divided backwards, whose events are replayed.
    TimePrediction estimate_time(const Layout& layout);

    /// Parameters of a program's chunks, by rank · chunks + chunk.
    [[nodiscard]] std::vector<ParameterCount> counts_of(const Layout& layout, const PipelineProgram& program,
                                                        const std::vector<ChunkCensus>& chunks) const;

    /// The events of a step. `v_shaped`: each rank's second chunk comes back up; `details`, `slowdown`: of step_timeline().
    LayoutTimeline timeline(const Layout& layout, std::shared_ptr<const PipelineProgram> program, bool v_shaped, bool details,
                            const std::vector<double>& slowdown);
    /// The iteration_seconds of timeline() alone.
    double timeline_seconds(const Layout& layout);
};

/// A workload with switches, and what is known of it.
struct CostModel::Switched {
    std::shared_ptr<const LayoutSwitches> switches;
    Workload workload;
    std::optional<State> state;

    Switched(const Workload& base, std::shared_ptr<const LayoutSwitches> choices);

    /// Whether layers keep and take the same bytes under both: overlaps and the types of gradients and moments change none of them.
    [[nodiscard]] bool keeps_as(const Workload& other) const;
    /// Whether parameters, gradients and optimizer state take the same bytes under both.
    [[nodiscard]] bool has_types_of(const Workload& other) const;
    /// Whether layers cost the same under both.
    [[nodiscard]] bool prices_layers_as(const Workload& other) const;
    /// Whether layers do the same under both. The type of moments is the optimizer's, and what another microbatch hides is taken off the
    /// price of the layers.
    [[nodiscard]] bool has_layers_of(const Workload& other) const;
};

/// What layers cost, and seconds of the device for a microbatch in all of them and in each.
struct CostModel::Bounded {
    LayerCosts layers;
    double whole = 0;
    PieceSeconds pieces;

    /// Sets the seconds of `layers`.
    void take_seconds(const State& model);
};

/// What bounds have found out, by what layers cost for the fastest of the choices; for all threads.
struct CostModel::SharedLeast {
    SharedMemo<CostKey, Bounded> all;
    SharedMemo<CostKey, double> compute, without_exchanges;  ///< such seconds, or less
};

/// The same of one model.
struct CostModel::Least {
    std::shared_ptr<SharedLeast> shared;
    std::unordered_map<const LayerCosts*, Bounded> launched;  ///< without launches where graphs may have none, by the costs with them
    /// What least_bytes_of_tail() asks for, by a layout's switches, which the choices keep alive.
    std::unordered_map<const LayoutSwitches*, std::shared_ptr<const LayoutSwitches>> narrowest, without_overlaps;
};

}  // namespace mgplan::simulator
