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

/// A layout whose memory is computed.
struct Query {
    const Layout& layout;
    const LayerCosts* layers = nullptr;            ///< as passed by callers
    double fragmentation = kAssumedFragmentation;  ///< of engine megatron's tensors; mgplan's own runtime plans offsets

    [[nodiscard]] std::int64_t fragmentation_bytes(std::int64_t framework) const {
        return layout.engine == Engine::megatron ? std::llround(fragmentation * static_cast<double>(framework)) : 0;
    }
    [[nodiscard]] std::int64_t peak_of(const FrameworkBytes& framework) const {
        const std::int64_t allocated = framework.total();
        return allocated + fragmentation_bytes(allocated) + framework.graph.objects + framework.outside;
    }
};

/// Bytes of a layout's stages: the passes, and with them everything else.
struct Weighed {
    WeighedPasses passes;
    std::vector<FrameworkBytes> stages;
    int fullest = 0;         ///< with tokens spread evenly
    std::int64_t peak = -1;  ///< of the fullest

    /// Adds a stage.
    void add(const Query& query, FrameworkBytes stage) {
        if (const std::int64_t bytes = query.peak_of(stage); bytes > peak) {
            fullest = static_cast<int>(stages.size());
            peak = bytes;
        }
        stages.push_back(std::move(stage));
    }
};

}  // namespace

struct LayoutMemory::State {
    const Workload& workload;
    const Calibration& calibration;
    SharedByLayouts shared;
    ModelStates& model_states;
    ActivationMemory activations;
    DeviceOverhead overhead;
    std::optional<RoutingLoad> routing;  ///< set for models with experts
    std::unordered_map<MemoKey<4>, std::vector<std::vector<std::int64_t>>, MemoKeyHash> alive;
    RankGraphs rank_graphs;

    State(const Workload& work, const Calibration& rates, const SharedByLayouts& known)
        : workload(work),
          calibration(rates),
          shared(known),
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
        return std::span(shared.splits->census(layout).chunks).subspan(static_cast<std::size_t>(pp_rank) * vpp, vpp);
    }

    [[nodiscard]] RankGraphs::Held held_by(const Layout& layout, int pp_rank) {
        return {chunks_of(layout, pp_rank), live_counts(layout)[static_cast<std::size_t>(pp_rank)]};
    }

    GraphTerms graphs(const Query& query, int pp_rank) {
        if (query.layout.cuda_graphs.empty()) return {};
        MGPLAN_ASSERT(query.layers != nullptr, "the kernels of layers in CUDA graphs are known");
        return rank_graphs.of(query.layout, pp_rank, *query.layers, held_by(query.layout, pp_rank));
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

    RankMemory stage(const Query& query, int pp_rank) {
        const Layout& layout = query.layout;
        PassesPeak peak = activations.peak(layout, pp_rank);
        if (const std::int64_t spared = spared_by_offloading(layout); spared > 0) {
            peak.bytes -= spared;
            for (BytesByCategory* bytes : {&peak.at_peak, &peak.high_water})
                (*bytes)[static_cast<std::size_t>(model::MemoryCategory::activations)] -= spared;
        }
        const auto at_peak = [&](model::MemoryCategory category) { return peak.at_peak[static_cast<std::size_t>(category)]; };
        const FrameworkBytes framework{model_states.of(layout, pp_rank), peak.bytes, lasting_workspace(layout), graphs(query, pp_rank), 0};
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
        b.fragmentation = query.fragmentation_bytes(allocated);
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

    /// The fragmentation by the stage's allocator replay, or the assumed one if there is no replay.
    double replayed_fragmentation(const Layout& layout, int pp_rank) {
        // The blocks of graphs' private pools are not in the traces.
        if (layout.engine != Engine::megatron || !layout.cuda_graphs.empty()) return kAssumedFragmentation;
        return fragmentation_of(*replay(layout, pp_rank, kAnyFragmentation));
    }

    static double fragmentation_of(const ReservedMemory& memory) {
        return memory.allocated > 0 ? static_cast<double>(memory.fragmentation()) / static_cast<double>(memory.allocated)
                                    : kAssumedFragmentation;
    }

    /// Allocations of a stage's passes, and what lasts besides them. `named`: with names. `further_state`: bytes of model state that the
    /// setup does not allocate.
    IterationTrace rank_trace(const Layout& layout, int pp_rank, bool named, std::int64_t further_state) {
        IterationTrace trace = activations.tensors(layout, pp_rank, named);
        std::int64_t first = 0;
        for (const Allocation& tensor : trace.tensors) first = std::min(first, tensor.taken);
        const auto take_first = [&](std::int64_t bytes, std::string_view tensor) {
            trace.tensors.push_back({bytes, --first, -1});
            if (named) trace.names.push_back({tensor, "held throughout"});
        };
        // The libraries' scratch is allocated before everything else in the iteration.
        take_first(lasting_workspace(layout), "workspace of libraries");
        // The buffers of gathered weights are allocated first, too, and stay. They depend on switches that are not in the key: as part of
        // the trace they distinguish the replays of different layouts.
        for (const std::int64_t bytes : model_states.gather_buffers(layout, pp_rank)) take_first(bytes, "gathered weights");
        if (further_state > 0) take_first(further_state, quantised(workload.training.precision) ? "quantised weights" : "optimizer state");
        return trace;
    }

    /// Bytes of the device available for the allocator's segments.
    std::int64_t segments_limit(const Layout& layout, int pp_rank) {
        return workload.memory_limit - overhead.bytes(layout, pp_rank) + spared_by_offloading(layout);
    }

    AllocatorHistory record(const Layout& layout, int pp_rank) {
        const ModelStateBytes& state = model_states.of(layout, pp_rank);
        // Padding of the optimizer's shards is predicted, and no tensor: up to 64 elements of 4 bytes in each of four buffers.
        constexpr std::int64_t kPadding = std::int64_t{64} * 4 * 4;
        std::int64_t replayed = 0, padding = state.alone() / 1000;
        for (const auto& list : {megatron_setup(workload, layout, pp_rank), megatron_moments(workload, layout, pp_rank, 0)}) {
            for (const Allocation& tensor : list) replayed += tensor.returned < 0 ? tensor.bytes : 0;
            padding += kPadding * std::ssize(list);
        }
        for (const std::int64_t buffer : model_states.gather_buffers(layout, pp_rank)) replayed += buffer;
        const std::int64_t further = state.alone() - replayed > padding ? state.alone() - replayed : 0;
        AllocatorHistory history = simulator::record_megatron(workload, layout, pp_rank, rank_trace(layout, pp_rank, true, further),
                                                              state.update, segments_limit(layout, pp_rank));
        history.offloaded_bytes = spared_by_offloading(layout);
        history.predicted_state = state.alone();
        history.replayed_state = replayed;
        history.as_predicted = replayed - state.alone() <= padding;
        return history;
    }

    std::optional<ReservedMemory> replay(const Layout& layout, int pp_rank, double most_fragmentation) {
        ReplayKey key{layout.sizes,
                      layout.split,
                      layout.vpp,
                      pp_rank,
                      layout.group_size,
                      layout.num_microbatches,
                      &model_states,
                      model_states.of(layout, pp_rank).update,
                      segments_limit(layout, pp_rank),
                      rank_trace(layout, pp_rank, false, 0)};
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

    /// Factors of the tokens that experts of the stages [first, end) receive at a quantile.
    std::vector<RowFactors> row_factors(const Layout& layout, const RoutingLoad::Level& level, int first, int end) {
        const std::vector<ChunkCensus>& chunks = shared.splits->census(layout).chunks;
        const auto& counts = live_counts(layout);
        const bool predicts_mixtures = workload.model.is_moe_layer(workload.model.layers);
        std::vector<RowFactors> factors;
        std::vector<LiveMixtures> live_mixtures;
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
        return factors;
    }

    /// Peak at a quantile of the fullest of the stages [first, end).
    std::int64_t routed_peak(const Query& query, Weighed& weighed, RoutingQuantile quantile, int first, int end) {
        const Layout& layout = query.layout;
        const std::vector<RowFactors> factors = row_factors(layout, routing_level(layout, quantile), first, end);
        const std::vector<std::int64_t> routed = activations.routed_peaks(layout, weighed.passes, factors, first);
        const std::int64_t spared = spared_by_offloading(layout);
        std::int64_t most = 0;
        for (int rank = first; rank < end; ++rank) {
            FrameworkBytes framework = weighed.stages[static_cast<std::size_t>(rank)];
            framework.passes = std::max(framework.passes, routed[static_cast<std::size_t>(rank - first)] - spared);
            most = std::max(most, query.peak_of(framework));
        }
        return most;
    }

    /// All stages; with Stages::fullest some get the passes of an equal, fuller stage.
    Weighed weigh_stages(const Query& query, ActivationMemory::Stages which = ActivationMemory::Stages::all) {
        const Layout& layout = query.layout;
        const bool graphed = !layout.cuda_graphs.empty();
        Weighed weighed{activations.weigh(layout, graphed ? ActivationMemory::Stages::all : which), {}};
        const std::vector<std::int64_t>& passes = weighed.passes.peaks;
        weighed.stages.reserve(passes.size());
        const std::int64_t scratch = lasting_workspace(layout), spared = spared_by_offloading(layout);
        const DeviceOverhead::Sums& outside = overhead.sums(layout);
        const std::vector<ModelStateBytes>& states = model_states.stages(layout).of;
        for (std::size_t rank = 0; rank < passes.size(); ++rank) {
            const bool end = rank == 0 || rank + 1 == passes.size();
            FrameworkBytes stage{states[rank], passes[rank] - spared, scratch, {}, end ? outside.end : outside.inner};
            if (graphed) stage.graph = graphs(query, static_cast<int>(rank));
            weighed.add(query, std::move(stage));
        }
        return weighed;
    }

    RoutedPeaks routed_peaks(const Query& query, int first, int end) {
        Weighed weighed = weigh_stages(query);
        return {.skew = to_text(workload.routing),
                .p50 = routed_peak(query, weighed, RoutingQuantile::p50, first, end),
                .p99 = routed_peak(query, weighed, RoutingQuantile::p99, first, end),
                .worst = routed_peak(query, weighed, RoutingQuantile::worst, first, end)};
    }

    LayoutPeaks peaks(const Query& query, std::int64_t most) {
        const Layout& layout = query.layout;
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
        Weighed weighed = weigh_stages(query, ActivationMemory::Stages::fullest);
        const FrameworkBytes& fullest = weighed.stages[static_cast<std::size_t>(weighed.fullest)];
        take(fullest.state);
        peaks.activations = fullest.peaks_in_update() ? fullest.graph.resident : fullest.passes + fullest.moved();
        peaks.even = peaks.deciding = weighed.peak;
        if (weighed.peak > most) return peaks;
        peaks.host_missing = host_missing(layout);
        if (!routing) return peaks;
        peaks.deciding = std::max(weighed.peak, routed_peak(query, weighed, RoutingQuantile::p99, 0, static_cast<int>(layout.sizes.pp)));
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
            most = std::max(most, Query{layout}.peak_of(beside_passes(layout, static_cast<int>(rank), states[rank])));
        return most;
    }

    /// A stage without graphs' objects. `passes`: bytes of its passes.
    FrameworkBytes least_of_stage(const Layout& layout, int rank, const ModelStateBytes& state, std::int64_t passes) {
        FrameworkBytes stage = beside_passes(layout, rank, state);
        stage.passes = passes - spared_by_offloading(layout);
        if (!layout.cuda_graphs.empty() && !layout.cuda_graphs.contains(CudaGraphScope::full_iteration))
            stage.graph = rank_graphs.without_objects(layout, rank, held_by(layout, rank));
        return stage;
    }

    std::int64_t least_bytes(const Layout& layout, bool everywhere, std::int64_t enough) {
        if (layout.schedule) return 0;
        const Query query{layout};
        const int number = static_cast<int>(layout.sizes.pp);
        FrameworkBytes front = least_of_stage(layout, 0, model_states.of(layout, 0), activations.front_peak_bytes(layout));
        if (!everywhere) front.state.update = 0;  // workloads with wide gradients need no copies of them
        const std::int64_t least = query.peak_of(front);
        if (!everywhere || least > enough || (number == 1 && !routing)) return least;
        Weighed weighed{activations.weigh(layout, ActivationMemory::Stages::all), {}};
        for (int rank = 0; rank < number; ++rank) {
            const auto index = static_cast<std::size_t>(rank);
            weighed.add(query, least_of_stage(layout, rank, model_states.stages(layout).of[index], weighed.passes.peaks[index]));
        }
        if (!routing || weighed.peak > enough) return weighed.peak;
        return std::max(weighed.peak, routed_peak(query, weighed, RoutingQuantile::p99, 0, number));
    }

    /// The fullest stage after allocator replays of those that are nearly the fullest; sets the query's fragmentation to that of this
    /// stage. Nothing if a replayed stage exceeds `limit`.
    std::optional<int> fullest_replayed(Query& query, std::int64_t limit) {
        const Weighed weighed = weigh_stages(query);
        std::vector<std::pair<std::int64_t, int>> near;
        for (int rank = 0; rank < static_cast<int>(weighed.stages.size()); ++rank) {
            const std::int64_t peak = query.peak_of(weighed.stages[static_cast<std::size_t>(rank)]);
            if (rank != weighed.fullest && static_cast<double>(peak) >= kNearlyFullest * static_cast<double>(weighed.peak))
                near.emplace_back(-peak, rank);
        }
        std::sort(near.begin(), near.end());
        near.insert(near.begin(), {-weighed.peak, weighed.fullest});
        near.resize(std::min(near.size(), kMostReplayed));
        int result = weighed.fullest;
        std::int64_t largest = -1;
        for (const auto& [peak, rank] : near) {
            const FrameworkBytes& framework = weighed.stages[static_cast<std::size_t>(rank)];
            const bool limited = limit < std::numeric_limits<std::int64_t>::max();
            const auto memory = replay(query.layout, rank, limited ? framework.fragmentation_within(limit) : kAnyFragmentation);
            if (!memory) return std::nullopt;
            const Query replayed{query.layout, query.layers, fragmentation_of(*memory)};
            const std::int64_t bytes = replayed.peak_of(framework);
            if (bytes > limit) return std::nullopt;
            if (bytes <= largest) continue;
            result = rank;
            largest = bytes;
            query.fragmentation = replayed.fragmentation;
        }
        return result;
    }

    /// Nothing if the replay of a stage exceeds `limit`.
    std::optional<MemoryPrediction> predict(Query query, bool replayed, std::int64_t limit) {
        const Layout& layout = query.layout;
        if (layout.schedule) return predict_divided(layout);
        const bool replays = replayed && layout.engine == Engine::megatron && layout.cuda_graphs.empty();
        const std::optional<int> fullest = replays ? fullest_replayed(query, limit) : weigh_stages(query).fullest;
        if (!fullest) return std::nullopt;
        MemoryPrediction prediction;
        prediction.worst_stage = *fullest;
        prediction.worst = stage(query, prediction.worst_stage);
        prediction.worst.context_terms = overhead.terms(layout, prediction.worst_stage);
        if (routing) prediction.worst.routing = routed_peaks(query, 0, static_cast<int>(layout.sizes.pp));
        prediction.worst_rank = first_rank_of_stage(layout.sizes, prediction.worst_stage);
        prediction.limit_bytes = workload.memory_limit;
        if (workload.training.offload.active()) sum_over_nodes(layout, on_host(layout), prediction);
        return prediction;
    }
};

LayoutMemory::LayoutMemory(const Workload& workload, const Calibration& calibration, const SharedByLayouts& shared)
    : state_(std::make_unique<State>(workload, calibration, shared)) {}
LayoutMemory::~LayoutMemory() = default;

MemoryPrediction LayoutMemory::predict(const Layout& layout, bool replayed, const LayerCosts* layers) {
    return *state_->predict({layout, layers}, replayed, std::numeric_limits<std::int64_t>::max());
}

std::optional<MemoryPrediction> LayoutMemory::predict_replayed(const Layout& layout, std::int64_t limit, const LayerCosts* layers) {
    return state_->predict({layout, layers}, true, limit);
}

LayoutPeaks LayoutMemory::peaks(const Layout& layout, std::int64_t most, const LayerCosts* layers) {
    return state_->peaks({layout, layers}, most);
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
    if (layout.schedule) return state_->divided_stage(layout, pp_rank);
    const Query query{layout, layers, state_->replayed_fragmentation(layout, pp_rank)};
    RankMemory memory = state_->stage(query, pp_rank);
    memory.context_terms = state_->overhead.terms(layout, pp_rank);
    if (state_->routing) memory.routing = state_->routed_peaks(query, pp_rank, pp_rank + 1);
    return memory;
}

RankProbe LayoutMemory::megatron_ops(const Layout& layout, int pp_rank) {
    return state_->megatron_ops(layout, pp_rank);
}

ReservedMemory LayoutMemory::replay_megatron(const Layout& layout, int pp_rank) {
    return *state_->replay(layout, pp_rank, kAnyFragmentation);
}

AllocatorHistory LayoutMemory::record_megatron(const Layout& layout, int pp_rank) {
    return state_->record(layout, pp_rank);
}

std::int64_t LayoutMemory::offloaded_bytes(const Layout& layout) {
    return kept_by_first_layers(state_->workload, state_->activations, layout, offloaded_layers(state_->workload, layout));
}

const std::vector<std::int64_t>& LayoutMemory::offloaded_by_kind(const Layout& layout) {
    return state_->activations.offloaded_by_kind(layout);
}

GraphTerms LayoutMemory::graphs(const Layout& layout, int pp_rank, const LayerCosts* layers) {
    return state_->graphs({layout, layers}, pp_rank);
}

}  // namespace mgplan::simulator
