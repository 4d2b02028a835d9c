#include "simulator/memory/layout_memory.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "plan/layout/layout_schedule.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "plan/text/errors.hpp"
#include "simulator/memory/activation_memory.hpp"
#include "simulator/memory/device_overhead.hpp"
#include "simulator/memory/framework_bytes.hpp"
#include "simulator/memory/megatron_replay.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/memory/node_host_memory.hpp"
#include "simulator/memory/offloaded_layers.hpp"
#include "simulator/memory/rank_graphs.hpp"
#include "simulator/memory/replay_memo.hpp"
#include "simulator/memory/routing_load.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/memory/split_stages.hpp"
#include "simulator/memory/stage_timeline.hpp"
#include "simulator/piece/memo_key.hpp"

namespace mgplan::simulator {
namespace {

/// Name of the peak's tensor if the optimizer's update is the peak.
constexpr std::string_view kUpdateCopies = "fp32 copies of gradients or moments", kStateIsBack = "optimizer state back from the host";

/// Fragmentation that a search assumes, as a share of the tensors' bytes: used if a replay is too slow.
constexpr double kAssumedFragmentation = 1.0 / 32;
constexpr double kAnyFragmentation = std::numeric_limits<double>::infinity();

/// Stages that may have the peak once their allocators are replayed: those close to the assumed peak, and their largest number.
constexpr double kNearlyFullest = 0.95;
constexpr std::size_t kMostReplayed = 4;

}  // namespace

struct LayoutMemory::State {
    const Workload& workload;
    const Calibration& calibration;
    SharedByLayouts shared;
    ModelStates& model_states;
    ActivationMemory activations;
    DeviceOverhead overhead;
    std::optional<RoutingLoad> routing;            ///< set for models with experts
    double fragmentation = kAssumedFragmentation;  ///< applies to engine megatron's tensors; mgplan's own runtime plans offsets
    std::unordered_map<MemoKey<4>, std::vector<std::vector<std::int64_t>>, MemoKeyHash> alive;
    RankGraphs rank_graphs;
    // Buffers for the current layout; members, so that they are not allocated for each layout.
    std::vector<std::int64_t> passes;
    std::vector<LiveMixtures> live_mixtures;
    std::vector<FrameworkBytes> stages;
    bool stages_are_graphed = false;
    std::vector<RowFactors> factors;
    std::vector<std::int64_t> routed_passes;

    const LayerCosts* layer_costs = nullptr;  ///< as passed by callers

    State(const Workload& work, const Calibration& rates, SharedByLayouts known)
        : workload(work),
          calibration(rates),
          shared(std::move(known)),
          model_states(*shared.states),
          activations(work, shared.layers, shared.splits),
          overhead(work, rates),
          rank_graphs(work, rates, *shared.schedules, activations) {
        if (work.model.moe) routing.emplace(work.model, work.routing);
    }

    /// Live (microbatch, chunk) pairs per rank and chunk at the rank's peak.
    const std::vector<std::vector<std::int64_t>>& live_counts(const Layout& layout) {
        const int pp = static_cast<int>(layout.sizes.pp);
        auto [entry, fresh] = alive.try_emplace({{pp, layout.vpp, layout.num_microbatches, layout.group_size}});
        if (fresh) {
            for (int rank = 0; rank < pp; ++rank)
                entry->second.push_back(live_at_peak(pp, layout.vpp, layout.num_microbatches, layout.group_size, rank));
        }
        return entry->second;
    }

    [[nodiscard]] std::span<const ChunkCensus> chunks_of(const Layout& layout, int pp_rank) const {
        const auto vpp = static_cast<std::size_t>(layout.vpp);
        return std::span(shared.census(layout).chunks).subspan(static_cast<std::size_t>(pp_rank) * vpp, vpp);
    }

    [[nodiscard]] RankGraphs::Held held_by(const Layout& layout, int pp_rank) {
        return {chunks_of(layout, pp_rank), live_counts(layout)[static_cast<std::size_t>(pp_rank)]};
    }

    GraphTerms graphs(const Layout& layout, int pp_rank) {
        if (layout.cuda_graphs.empty()) return {};
        MGPLAN_ASSERT(layer_costs != nullptr, "the kernels of layers in CUDA graphs are known");
        return rank_graphs.of(layout, pp_rank, *layer_costs, held_by(layout, pp_rank));
    }

    /// Megatron-LM's libraries have workspaces that last. In mgplan's own layers every GEMM's scratch is a tensor of the trace, and only
    /// buffers for losses last: the model's, each depth's of multi-token prediction, and the auxiliary one, in fp64 each
    /// (model/training/rank_trainer.cpp).
    std::int64_t lasting_workspace(const Layout& layout) const {
        if (layout.engine == Engine::megatron) return library_workspace_bytes(workload, layout.engine, calibration);
        const ModelSpec& model = workload.model;
        return 8 * (1 + model.mtp_layers + (model.moe && model.moe->auxiliary_loss != 0 ? 1 : 0));
    }

    [[nodiscard]] std::int64_t spared_by_offloading(const Layout& layout) {
        return simulator::spared_by_offloading(workload, activations, layout);
    }

    [[nodiscard]] std::int64_t fragmentation_bytes(Engine engine, std::int64_t framework) const {
        return engine == Engine::megatron ? std::llround(fragmentation * static_cast<double>(framework)) : 0;
    }

    [[nodiscard]] std::int64_t peak_of(const Layout& layout, const FrameworkBytes& framework) const {
        const std::int64_t allocated = framework.total();
        return allocated + fragmentation_bytes(layout.engine, allocated) + framework.graph.objects + framework.outside;
    }

    /// Memory of a stage under a schedule with split backwards: mgplan's own layers on shapes, each pass played in turn. MoE layers: tokens
    /// are spread evenly.
    RankMemory divided_stage(const Layout& layout, int pp_rank) {
        StageTimelines timelines(workload, layout, kernels_of(workload.cluster), {});
        const auto timeline = timelines.of(pp_rank, false);
        if (!timeline)
            throw ConfigError(
                fmt::format("schedule {} is counted from the layers that run it: {}", schedule_name(layout), timelines.why_none()));
        RankMemory memory;
        memory.breakdown.context = memory.high_water.context = overhead.bytes(layout, pp_rank);
        memory.context_terms = overhead.terms(layout, pp_rank);
        memory.host_bytes = model_states.of(layout, pp_rank).host + activations.host_bytes(layout, pp_rank, timeline->schedule);
        return exact_memory(memory, timeline->memory);
    }

    /// Sets the host memory fields of `prediction`. `of_stage`: bytes that a rank of each stage leaves on the host.
    void sum_over_nodes(const Layout& layout, const std::vector<std::int64_t>& of_stage, MemoryPrediction& prediction) const {
        prediction.host_limit_bytes = workload.cluster.host_memory_bytes;
        prediction.node_host_bytes = fullest_node_host_bytes(layout, of_stage, workload.cluster.gpus_per_node);
    }

    /// Host bytes of a rank, by stage.
    std::vector<std::int64_t> on_host(const Layout& layout) {
        std::vector<std::int64_t> bytes;
        for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank)
            bytes.push_back(model_states.of(layout, rank).host + activations.host_bytes(layout, rank));
        return bytes;
    }

    /// LayoutPeaks::host_missing.
    std::int64_t host_missing(const Layout& layout) {
        if (workload.cluster.host_memory_bytes == 0 || !workload.training.offload.active()) return 0;
        MemoryPrediction prediction;
        sum_over_nodes(layout, on_host(layout), prediction);
        return prediction.host_missing();
    }

    MemoryPrediction predict_divided(const Layout& layout) {
        MemoryPrediction prediction;
        std::vector<std::int64_t> on_host;
        for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank) {
            RankMemory memory = divided_stage(layout, rank);
            on_host.push_back(memory.host_bytes);
            if (rank > 0 && memory.peak_bytes() <= prediction.worst.peak_bytes()) continue;
            prediction.worst = std::move(memory);
            prediction.worst_stage = rank;
        }
        prediction.worst_rank = first_rank_of_stage(layout.sizes, prediction.worst_stage);
        prediction.limit_bytes = workload.memory_limit;
        if (workload.training.offload.active()) sum_over_nodes(layout, on_host, prediction);
        return prediction;
    }

    /// Name of the largest tensors that exist only during the update.
    [[nodiscard]] std::string_view of_update() const { return workload.training.offload.states > 0 ? kStateIsBack : kUpdateCopies; }

    RankMemory stage(const Layout& layout, int pp_rank) {
        PassesPeak peak = activations.peak(layout, pp_rank);
        if (const std::int64_t spared = spared_by_offloading(layout); spared > 0) {
            peak.bytes -= spared;
            for (BytesByCategory* bytes : {&peak.at_peak, &peak.high_water})
                (*bytes)[static_cast<std::size_t>(model::MemoryCategory::activations)] -= spared;
        }
        const auto at_peak = [&](model::MemoryCategory category) { return peak.at_peak[static_cast<std::size_t>(category)]; };
        const FrameworkBytes framework{model_states.of(layout, pp_rank), peak.bytes, lasting_workspace(layout), graphs(layout, pp_rank), 0};
        const GraphTerms& graph = framework.graph;

        RankMemory memory;
        MemoryBreakdown& b = memory.breakdown;
        b.parameters = framework.state.parameters;
        b.gradients = framework.state.gradients;
        b.optimizer = framework.state.optimizer;
        b.activations = at_peak(model::MemoryCategory::activations) + framework.moved();
        b.communication = at_peak(model::MemoryCategory::communication);
        b.workspace = at_peak(model::MemoryCategory::workspace) + framework.lasting_workspace;
        b.graph_static_inputs = graph.static_inputs;
        b.graph_boundary = graph.boundary_bytes;
        memory.high_water = b;
        for (const auto& [category, member] : {std::pair{model::MemoryCategory::activations, &MemoryBreakdown::activations},
                                               std::pair{model::MemoryCategory::communication, &MemoryBreakdown::communication},
                                               std::pair{model::MemoryCategory::workspace, &MemoryBreakdown::workspace}}) {
            memory.high_water.*member += peak.high_water[static_cast<std::size_t>(category)] - at_peak(category);
        }
        memory.high_water.optimizer += framework.state.update;
        if (graph.pool_is_private || framework.peaks_in_update()) b.optimizer += framework.state.update;
        if (framework.peaks_in_update()) {
            b.activations = graph.resident;
            b.communication = 0;
            b.workspace = framework.lasting_workspace;
        }
        if (layout.cuda_graphs.empty())
            memory.peak_at = framework.peaks_in_update() ? PeakInstant{0, of_update()} : PeakInstant{peak.op, peak.tensor};
        const std::int64_t allocated = b.total();
        memory.framework_bytes = allocated - hidden_by_graphs(graph, b);
        b.context = overhead.bytes(layout, pp_rank);
        b.fragmentation = fragmentation_bytes(layout.engine, allocated);
        b.graph_objects = graph.objects;  // the driver's
        memory.high_water.graph_objects = b.graph_objects;
        memory.high_water.context = b.context;
        memory.high_water.fragmentation = b.fragmentation;
        memory.reserved_bytes = allocated + b.fragmentation;
        memory.host_bytes = framework.state.host + activations.host_bytes(layout, pp_rank);
        return memory;
    }

    RankProbe megatron_ops(const Layout& layout, int pp_rank) {
        const ModelStateBytes state = model_states.of(layout, pp_rank);
        const RankPasses passes_of_rank = activations.passes(layout, pp_rank);
        RankProbe probe;
        const auto held = [&](model::MemoryCategory category) -> std::int64_t& { return probe.held[static_cast<std::size_t>(category)]; };
        held(model::MemoryCategory::parameters) = state.parameters;
        held(model::MemoryCategory::gradients) = state.gradients;
        held(model::MemoryCategory::optimizer) = state.optimizer;
        held(model::MemoryCategory::workspace) = lasting_workspace(layout);
        for (const RankPasses::Held& tensor : passes_of_rank.held) {
            probe.before = then(probe.before, change_of(tensor.category, tensor.bytes, tensor.tensor));
            probe.after = then(probe.after, change_of(tensor.category, -tensor.bytes));
        }
        probe.after = then(probe.after, change_of(model::MemoryCategory::optimizer, state.update, of_update()));
        probe.after = then(probe.after, change_of(model::MemoryCategory::optimizer, -state.update));
        for (const PassProfile& chunk : passes_of_rank.chunks) {
            probe.forward.push_back(chunk.forward);
            probe.backward.push_back(chunk.backward);
        }
        // A chunk's profile ends with its messages sent and freed.
        probe.sends_forward.assign(passes_of_rank.chunks.size(), false);
        probe.sends_backward.assign(passes_of_rank.chunks.size(), false);
        return probe;
    }

    /// Sets the fragmentation to the result of the stage's allocator replay, or to the assumed one if there is no replay.
    void replay_fragmentation(const Layout& layout, int pp_rank) {
        fragmentation = kAssumedFragmentation;
        // The blocks of graphs' private pools are not in the traces.
        if (layout.engine != Engine::megatron || !layout.cuda_graphs.empty()) return;
        take_fragmentation(*replay(layout, pp_rank, kAnyFragmentation));
    }

    void take_fragmentation(const ReservedMemory& memory) {
        fragmentation = memory.allocated > 0 ? static_cast<double>(memory.fragmentation()) / static_cast<double>(memory.allocated)
                                             : kAssumedFragmentation;
    }

    std::optional<ReservedMemory> replay(const Layout& layout, int pp_rank, double most_fragmentation) {
        IterationTrace trace = activations.tensors(layout, pp_rank);
        // The libraries' scratch is allocated before everything else in the iteration.
        std::int64_t first = 0;
        for (const Allocation& tensor : trace.tensors) first = std::min(first, tensor.taken);
        trace.tensors.push_back({lasting_workspace(layout), --first, -1});
        // The buffers of gathered weights are allocated first, too, and stay. They depend on switches that are not in the key: as part of
        // the trace they distinguish the replays of different layouts.
        for (const std::int64_t bytes : model_states.gather_buffers(layout, pp_rank)) trace.tensors.push_back({bytes, --first, -1});
        const std::int64_t limit = workload.memory_limit - overhead.bytes(layout, pp_rank) + spared_by_offloading(layout);
        ReplayKey key{layout.sizes,
                      layout.split,
                      layout.vpp,
                      pp_rank,
                      layout.group_size,
                      layout.num_microbatches,
                      &model_states,
                      model_states.of(layout, pp_rank).update,
                      limit,
                      std::move(trace)};
        return shared.replays->of(std::move(key), most_fragmentation, [&](const ReplayKey& one) {
            return simulator::replay_megatron(workload, layout, pp_rank, one.trace, one.update, one.limit, most_fragmentation);
        });
    }

    // Routing

    RoutingLoad::Level routing_level(const Layout& layout, RoutingQuantile quantile) {
        // Buffers of a fixed size hold all tokens, or the step runs again without them (moe/paged_stash.py, PagedStashRunner).
        if (layout.engine == Engine::megatron && workload.training.megatron.expert_buffers.capacity > 0) {
            RoutingLoad::Level even;
            even.even_rows = 1;
            return even;
        }
        const ParallelSizes& sizes = layout.sizes;
        const std::int64_t tokens = layout.micro_batch * workload.batch.sequence / sizes.cp;
        return routing->level({.ep = sizes.ep,
                               .etp = sizes.etp,
                               .pp = sizes.pp,
                               .world = sizes.world,
                               .tokens = layout.sequence_parallel ? tokens / sizes.tp : tokens,
                               .microbatches = layout.num_microbatches},
                              quantile);
    }

    /// Sets `factors` to those of the tokens that experts of the stages [first, end) receive at a quantile.
    void row_factors(const Layout& layout, const RoutingLoad::Level& level, int first, int end) {
        const std::vector<ChunkCensus>& chunks = shared.census(layout).chunks;
        const auto& counts = live_counts(layout);
        const bool predicts_mixtures = workload.model.moe_layers.back();
        factors.clear();
        for (int rank = first; rank < end; ++rank) {
            live_mixtures.clear();
            auto chunk = chunks.begin() + static_cast<std::ptrdiff_t>(rank) * layout.vpp;
            for (const std::int64_t count : counts[static_cast<std::size_t>(rank)]) {
                const std::int64_t layers = chunk->mixture + (predicts_mixtures ? chunk->mtp : 0);
                if (layers > 0) live_mixtures.push_back({chunk->first_mixture, layers, count});
                ++chunk;
            }
            factors.push_back(routing->rows(level, live_mixtures));
        }
    }

    /// Peak at a quantile of the fullest of the stages [first, end), for which weigh_stages() must have been called.
    std::int64_t routed_peak(const Layout& layout, RoutingQuantile quantile, int first, int end) {
        row_factors(layout, routing_level(layout, quantile), first, end);
        activations.routed_peak_bytes(layout, factors, first, routed_passes);
        const std::int64_t spared = spared_by_offloading(layout);
        std::int64_t most = 0;
        for (int rank = first; rank < end; ++rank) {
            FrameworkBytes& framework = stages[static_cast<std::size_t>(rank)];
            const std::int64_t even = framework.passes;
            framework.passes = std::max(even, routed_passes[static_cast<std::size_t>(rank - first)] - spared);
            most = std::max(most, peak_of(layout, framework));
            framework.passes = even;
        }
        return most;
    }

    /// Sets `stages` to the framework bytes of every stage; with Stages::fullest some get those of an equal, fuller stage.
    void weigh_stages(const Layout& layout, ActivationMemory::Stages which = ActivationMemory::Stages::all) {
        const bool graphed_now = !layout.cuda_graphs.empty();
        activations.peak_bytes(layout, graphed_now ? ActivationMemory::Stages::all : which, passes);
        if (!graphed_now && stages_are_graphed) stages.clear();
        stages_are_graphed = graphed_now;
        stages.resize(passes.size());
        const std::int64_t scratch = lasting_workspace(layout), spared = spared_by_offloading(layout);
        const DeviceOverhead::Sums& outside = overhead.sums(layout);
        const std::vector<ModelStateBytes>& states = model_states.stages(layout).of;
        for (std::size_t rank = 0; rank < stages.size(); ++rank) {
            FrameworkBytes& stage = stages[rank];
            stage.state = states[rank];
            stage.passes = passes[rank] - spared;
            stage.lasting_workspace = scratch;
            stage.outside = rank == 0 || rank + 1 == stages.size() ? outside.end : outside.inner;
            if (graphed_now) stage.graph = graphs(layout, static_cast<int>(rank));
        }
    }

    RoutedPeaks routed_peaks(const Layout& layout, int first, int end) {
        weigh_stages(layout);
        return {.skew = to_text(workload.routing),
                .p50 = routed_peak(layout, RoutingQuantile::p50, first, end),
                .p99 = routed_peak(layout, RoutingQuantile::p99, first, end),
                .worst = routed_peak(layout, RoutingQuantile::worst, first, end)};
    }

    /// The fullest stage with tokens spread evenly, and its peak.
    std::pair<int, std::int64_t> fullest_stage(const Layout& layout, ActivationMemory::Stages which = ActivationMemory::Stages::all) {
        weigh_stages(layout, which);
        std::pair<int, std::int64_t> fullest{0, -1};
        for (int rank = 0; rank < static_cast<int>(stages.size()); ++rank) {
            const std::int64_t peak = peak_of(layout, stages[static_cast<std::size_t>(rank)]);
            if (peak > fullest.second) fullest = {rank, peak};
        }
        return fullest;
    }

    LayoutPeaks peaks(const Layout& layout, std::int64_t most) {
        LayoutPeaks peaks;
        if (layout.schedule) {
            const MemoryPrediction memory = predict_divided(layout);
            const MemoryBreakdown& of_fullest = memory.worst.breakdown;
            peaks.parameters = of_fullest.parameters;
            peaks.gradients = of_fullest.gradients;
            peaks.optimizer = of_fullest.optimizer;
            peaks.activations = of_fullest.activations + of_fullest.communication + of_fullest.workspace;
            peaks.even = peaks.deciding = memory.deciding_bytes();
            peaks.host_missing = memory.host_missing();
            return peaks;
        }
        const auto take = [&](const ModelStateBytes& state) {
            peaks.parameters = state.parameters;
            peaks.gradients = state.gradients;
            peaks.optimizer = state.optimizer;
        };
        const ModelStates::Stages& states = model_states.stages(layout);
        if (const ModelStateBytes& state = states.of[static_cast<std::size_t>(states.fullest)]; state.alone() > most) {
            peaks.even = peaks.deciding = state.alone();
            take(state);
            return peaks;
        }
        const auto [stage, even] = fullest_stage(layout, ActivationMemory::Stages::fullest);
        const FrameworkBytes& fullest = stages[static_cast<std::size_t>(stage)];
        take(fullest.state);
        peaks.activations = fullest.peaks_in_update() ? fullest.graph.resident : fullest.passes + fullest.moved();
        peaks.even = peaks.deciding = even;
        if (even > most) return peaks;
        peaks.host_missing = host_missing(layout);
        if (!routing) return peaks;
        peaks.deciding = std::max(even, routed_peak(layout, RoutingQuantile::p99, 0, static_cast<int>(stages.size())));
        return peaks;
    }

    /// Lower bound of a stage's bytes without its passes.
    [[nodiscard]] FrameworkBytes beside_passes(const Layout& layout, int rank, const ModelStateBytes& state) {
        const DeviceOverhead::Sums& outside = overhead.sums(layout);
        FrameworkBytes stage;
        stage.state = state;
        stage.lasting_workspace = lasting_workspace(layout);
        stage.outside = rank == 0 || rank + 1 == static_cast<int>(layout.sizes.pp) ? outside.end : outside.inner;
        return stage;
    }

    std::int64_t least_bytes_of_state(const Layout& layout) {
        if (layout.schedule) return 0;
        std::int64_t most = 0;
        const std::vector<ModelStateBytes>& states = model_states.stages(layout).of;
        for (std::size_t rank = 0; rank < states.size(); ++rank)
            most = std::max(most, peak_of(layout, beside_passes(layout, static_cast<int>(rank), states[rank])));
        return most;
    }

    /// Sets `stages` to the first `number` stages, without graphs' objects, and returns the peak of the fullest.
    std::int64_t least_of_first(const Layout& layout, int number) {
        if (number == 1)
            passes.assign(1, activations.front_peak_bytes(layout));
        else
            activations.peak_bytes(layout, ActivationMemory::Stages::all, passes);
        const bool graphed = !layout.cuda_graphs.empty() && !layout.cuda_graphs.contains(CudaGraphScope::full_iteration);
        stages.clear();
        stages_are_graphed = graphed;
        std::int64_t most = 0;
        for (int rank = 0; rank < number; ++rank) {
            const auto index = static_cast<std::size_t>(rank);
            FrameworkBytes& stage = stages.emplace_back(
                beside_passes(layout, rank, number == 1 ? model_states.of(layout, 0) : model_states.stages(layout).of[index]));
            stage.passes = passes[index] - spared_by_offloading(layout);
            if (graphed) stage.graph = rank_graphs.without_objects(layout, rank, held_by(layout, rank));
            most = std::max(most, peak_of(layout, stage));
        }
        return most;
    }

    std::int64_t least_bytes(const Layout& layout, bool everywhere, std::int64_t enough) {
        if (layout.schedule) return 0;
        if (!everywhere) {
            (void)least_of_first(layout, 1);
            stages.front().state.update = 0;  // workloads with wide gradients need no copies of them
            return peak_of(layout, stages.front());
        }
        const int number = static_cast<int>(layout.sizes.pp);
        std::int64_t most = least_of_first(layout, 1);
        if (number > 1 && most <= enough) most = least_of_first(layout, number);
        if (!routing || most > enough) return most;
        return std::max(most, routed_peak(layout, RoutingQuantile::p99, 0, number));
    }

    /// The fullest stage after allocator replays of those that are nearly the fullest. Leaves its fragmentation set. Nothing if a replayed
    /// stage exceeds `limit`.
    std::optional<int> fullest_replayed(const Layout& layout, std::int64_t limit) {
        const auto [fullest, most] = fullest_stage(layout);
        std::vector<std::pair<std::int64_t, int>> near;
        for (int rank = 0; rank < static_cast<int>(stages.size()); ++rank) {
            const std::int64_t peak = peak_of(layout, stages[static_cast<std::size_t>(rank)]);
            if (rank != fullest && static_cast<double>(peak) >= kNearlyFullest * static_cast<double>(most)) near.emplace_back(-peak, rank);
        }
        std::sort(near.begin(), near.end());
        near.insert(near.begin(), {-most, fullest});
        near.resize(std::min(near.size(), kMostReplayed));
        int result = fullest;
        std::int64_t largest = -1;
        double of_result = kAssumedFragmentation;
        for (const auto& [peak, rank] : near) {
            const FrameworkBytes& framework = stages[static_cast<std::size_t>(rank)];
            const bool limited = limit < std::numeric_limits<std::int64_t>::max();
            const auto memory = replay(layout, rank, limited ? framework.fragmentation_within(limit) : kAnyFragmentation);
            if (!memory) return std::nullopt;
            take_fragmentation(*memory);
            const std::int64_t replayed = peak_of(layout, framework);
            if (replayed > limit) return std::nullopt;
            if (replayed <= largest) continue;
            result = rank;
            largest = replayed;
            of_result = fragmentation;
        }
        fragmentation = of_result;
        return result;
    }

    /// Nothing if the replay of a stage exceeds `limit`.
    std::optional<MemoryPrediction> predict(const Layout& layout, bool replayed, std::int64_t limit) {
        if (layout.schedule) return predict_divided(layout);
        const bool replays = replayed && layout.engine == Engine::megatron && layout.cuda_graphs.empty();
        const std::optional<int> fullest = replays ? fullest_replayed(layout, limit) : fullest_stage(layout).first;
        if (!fullest) {
            fragmentation = kAssumedFragmentation;
            return std::nullopt;
        }
        MemoryPrediction prediction;
        prediction.worst_stage = *fullest;
        prediction.worst = stage(layout, prediction.worst_stage);
        prediction.worst.context_terms = overhead.terms(layout, prediction.worst_stage);
        if (routing) prediction.worst.routing = routed_peaks(layout, 0, static_cast<int>(layout.sizes.pp));
        prediction.worst_rank = first_rank_of_stage(layout.sizes, prediction.worst_stage);
        prediction.limit_bytes = workload.memory_limit;
        if (workload.training.offload.active()) sum_over_nodes(layout, on_host(layout), prediction);
        fragmentation = kAssumedFragmentation;
        return prediction;
    }
};

LayoutMemory::LayoutMemory(const Workload& workload, const Calibration& calibration, SharedByLayouts shared)
    : state_(std::make_unique<State>(workload, calibration, std::move(shared))) {}
LayoutMemory::~LayoutMemory() = default;

MemoryPrediction LayoutMemory::predict(const Layout& layout, bool replayed, const LayerCosts* layers) {
    state_->layer_costs = layers;
    return *state_->predict(layout, replayed, std::numeric_limits<std::int64_t>::max());
}

std::optional<MemoryPrediction> LayoutMemory::predict_replayed(const Layout& layout, std::int64_t limit, const LayerCosts* layers) {
    state_->layer_costs = layers;
    return state_->predict(layout, true, limit);
}

LayoutPeaks LayoutMemory::peaks(const Layout& layout, std::int64_t most, const LayerCosts* layers) {
    state_->layer_costs = layers;
    return state_->peaks(layout, most);
}

bool LayoutMemory::state_exceeds(const Layout& layout, std::int64_t most) {
    for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank) {
        const ModelStateBytes& state = state_->model_states.of(layout, rank);
        if (state.parameters + state.gradients + state.optimizer > most) return true;
    }
    return false;
}

std::int64_t LayoutMemory::least_bytes_of_state(const Layout& layout) {
    return state_->least_bytes_of_state(layout);
}

std::int64_t LayoutMemory::least_bytes(const Layout& layout, bool everywhere, std::int64_t enough) {
    return state_->least_bytes(layout, everywhere, enough);
}

RankMemory LayoutMemory::stage(const Layout& layout, int pp_rank, const LayerCosts* layers) {
    state_->layer_costs = layers;
    if (layout.schedule) return state_->divided_stage(layout, pp_rank);
    state_->replay_fragmentation(layout, pp_rank);
    RankMemory memory = state_->stage(layout, pp_rank);
    memory.context_terms = state_->overhead.terms(layout, pp_rank);
    if (state_->routing) memory.routing = state_->routed_peaks(layout, pp_rank, pp_rank + 1);
    state_->fragmentation = kAssumedFragmentation;
    return memory;
}

RankProbe LayoutMemory::megatron_ops(const Layout& layout, int pp_rank) {
    return state_->megatron_ops(layout, pp_rank);
}

ReservedMemory LayoutMemory::replay_megatron(const Layout& layout, int pp_rank) {
    return *state_->replay(layout, pp_rank, kAnyFragmentation);
}

std::int64_t LayoutMemory::offloaded_bytes(const Layout& layout) {
    return kept_by_first_layers(state_->workload, state_->activations, layout, offloaded_layers(state_->workload, layout));
}

const std::vector<std::int64_t>& LayoutMemory::offloaded_by_kind(const Layout& layout) {
    return state_->activations.offloaded_by_kind(layout);
}

GraphTerms LayoutMemory::graphs(const Layout& layout, int pp_rank, const LayerCosts* layers) {
    state_->layer_costs = layers;
    return state_->graphs(layout, pp_rank);
}

}  // namespace mgplan::simulator
