#include "simulator/cost_model.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "plan/layout_schedule.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/layout_memory.hpp"
#include "simulator/memory/routing_load.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/muon.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece_parameters.hpp"
#include "simulator/price/recorded_costs.hpp"
#include "simulator/stage_census.hpp"
#include "simulator/step_time.hpp"

namespace mgplan::simulator {
namespace {

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

LinksKey links_key(const ParallelSizes& sizes) {
    if (sizes.order == AxisOrder{}) return {};
    return {sizes.pp, sizes.world, sizes.order.axes()};
}

CostKey cost_key(const Layout& layout) {
    return {shard_key(layout), links_key(layout.sizes)};
}

/// The dp axis of a grid cut into `instances`: the parts inside one, and those across.
std::vector<GridAxis> axes_of_instances(const std::vector<GridAxis>& grid, std::int64_t instances, bool across) {
    std::vector<GridAxis> cut;
    for (GridAxis axis : grid) {
        const bool data = axis.axis == Axis::dp, context = axis.axis == Axis::cp;
        if (data && axis.size % instances == 0)
            cut.push_back(across ? GridAxis{axis.axis, instances, axis.stride * (axis.size / instances)}
                                 : GridAxis{axis.axis, axis.size / instances, axis.stride});
        else if (data || (context && !across))
            cut.push_back(axis);
    }
    return cut;
}

GroupPath path_of(const std::vector<GridAxis>& grid, std::initializer_list<Axis> wanted, const ClusterSpec& cluster,
                  const Calibration& calibration) {
    std::array<GridAxis, 5> axes{};
    std::size_t count = 0;
    for (const auto& axis : grid) {
        if (std::find(wanted.begin(), wanted.end(), axis.axis) != wanted.end()) axes[count++] = axis;
    }
    return group_path(std::span(axes.data(), count), cluster, calibration);
}

LayoutPaths paths_of(const ParallelSizes& sizes, const ClusterSpec& cluster, const Calibration& calibration) {
    const auto dense = dense_grid(sizes);
    const auto expert = expert_grid(sizes);
    LayoutPaths paths;
    paths.tp = path_of(dense, {Axis::tp}, cluster, calibration);
    paths.cp = path_of(dense, {Axis::cp}, cluster, calibration);
    paths.dp_cp = path_of(dense, {Axis::dp, Axis::cp}, cluster, calibration);
    paths.pp = path_of(dense, {Axis::pp}, cluster, calibration);
    paths.ep = path_of(expert, {Axis::ep}, cluster, calibration);
    paths.etp = path_of(expert, {Axis::tp}, cluster, calibration);
    paths.edp = path_of(expert, {Axis::dp}, cluster, calibration);
    return paths;
}

void add_instances(LayoutPaths& paths, const ParallelSizes& sizes, std::int64_t instances, const ClusterSpec& cluster,
                   const Calibration& calibration) {
    const auto dense = dense_grid(sizes), expert = expert_grid(sizes);
    paths.dp_inner = group_path(axes_of_instances(dense, instances, false), cluster, calibration);
    paths.edp_inner = group_path(axes_of_instances(expert, instances, false), cluster, calibration);
    if (instances == 1) return;
    paths.dp_outer = group_path(axes_of_instances(dense, instances, true), cluster, calibration);
    paths.edp_outer = group_path(axes_of_instances(expert, instances, true), cluster, calibration);
}

}  // namespace

struct CostModel::State {
    const Workload& workload;
    LayerKinds kinds;
    Calibration calibration;
    KernelTimes kernels, storage_kernels;
    double flops;
    std::unordered_map<CostKey, LayerCosts, MemoKeyHash> layers;
    std::unordered_map<MemoKey<3>, PieceParameters, MemoKeyHash> parameters;
    std::unordered_map<MemoKey<3>, std::vector<MuonSeconds>, MemoKeyHash> orthogonalised;
    std::unordered_map<const StageSplit*, SplitCensus> splits;
    std::unordered_map<MemoKey<5>, std::shared_ptr<const PipelineProgram>, MemoKeyHash> programs;
    std::size_t kept_passes = 0;   ///< of all of them
    ParallelSizes sizes_of_paths;  ///< of the layout before
    LayoutPaths last_paths;
    ShardLayers shards;
    RecordedCosts recorded;
    LayoutMemory memory;
    std::optional<RoutingLoad> routing;  ///< of models with experts

    State(const Workload& work, const Calibration& rates)
        : workload(work),
          kinds(layer_kinds(work.model)),
          calibration(rates),
          kernels(work.cluster, calibration, work.training.precision, bytes_of(work.training.grad_dtype)),
          storage_kernels(work.cluster, calibration, quantised(work.training.precision) ? Precision::bf16 : work.training.precision,
                          bytes_of(work.training.grad_dtype)),
          flops(model_flops(work.model, work.batch)),
          last_paths(paths_of(sizes_of_paths, work.cluster, calibration)),
          shards(work),
          recorded(work, {[this](const PieceSizes& sizes, std::size_t plain_layer) { return shards.dense_steps(sizes, plain_layer); },
                          [this](const PieceSizes& sizes, std::size_t plain_layer) {
                              return shards.dense_steps(sizes, plain_layer, ShardLayers::RingParts::two);
                          },
                          [this](const PieceSizes& sizes) { return shards.prediction_steps(sizes); },
                          [this](const PieceSizes& sizes, double received) { return shards.mixture_steps(sizes, received); }}),
          memory(work, calibration,
                 {[this](const Layout& layout) -> const SplitCensus& { return census(layout); },
                  [this](const Layout& layout) -> const LayerCosts& { return costs(layout); }, &shards}) {
        if (work.model.moe) routing.emplace(work.model, work.routing);
    }

    const SplitCensus& census(const Layout& layout) {
        auto [entry, fresh] = splits.try_emplace(layout.split.get());
        if (fresh) entry->second = take_census(kinds, layout.split);
        return entry->second;
    }

    const PieceParameters& piece_counts(const Layout& layout) {
        const MemoKey<3> key{{layout.sizes.tp, layout.sizes.ep, layout.sizes.etp}};
        auto [entry, fresh] = parameters.try_emplace(key);
        if (fresh) entry->second = piece_parameters(workload.model, kinds, layout.sizes);
        return entry->second;
    }

    /// By index of a layer's kind, and behind them of a layer of multi-token prediction.
    std::vector<double> orthogonalise_seconds(const Layout& layout) {
        const ParallelSizes& sizes = layout.sizes;
        auto [entry, fresh] = orthogonalised.try_emplace(MemoKey<3>{{sizes.tp, sizes.ep, sizes.etp}});
        if (fresh) {
            for (const std::int64_t layer : kinds.first_layer)
                entry->second.push_back(muon_seconds(workload.model, layer, sizes, storage_kernels));
            entry->second.push_back(entry->second[kinds.of_prediction]);
        }
        const bool divided = workload.training.distributed_optimizer;
        const double dense = divided ? static_cast<double>(layout.dp() * sizes.cp) : 1,
                     expert = divided ? static_cast<double>(layout.edp()) : 1;
        std::vector<double> seconds;
        for (const MuonSeconds& layer : entry->second) seconds.push_back(layer.dense / dense + layer.expert / expert);
        return seconds;
    }

    const LayoutPaths& paths(const ParallelSizes& sizes) {
        // A search varies what follows from the sizes before it turns to others.
        if (!(sizes == sizes_of_paths)) {
            last_paths = paths_of(sizes, workload.cluster, calibration);
            if (workload.training.megatron.fully_sharded.active())
                add_instances(last_paths, sizes, std::max(1, workload.training.distributed_optimizer_instances), workload.cluster,
                              calibration);
            sizes_of_paths = sizes;
        }
        return last_paths;
    }

    const LayerCosts& costs(const Layout& layout) {
        auto [entry, fresh] = layers.try_emplace(cost_key(layout));
        if (fresh) entry->second = recorded.of(shard_of(layout), shards.sizes(layout), links_key(layout.sizes));
        return entry->second;
    }

    Shard shard_of(const Layout& layout) {
        const ParallelSizes& sizes = layout.sizes;
        Shard shard{shard_key(layout)};
        shard.workload = &workload;
        shard.calibration = &calibration;
        shard.kernels = &kernels;
        shard.storage_kernels = &storage_kernels;
        shard.paths = &paths(sizes);
        const std::int64_t rows = layout.micro_batch * workload.batch.sequence / sizes.cp;
        shard.tokens_outside = layout.sequence_parallel ? rows / sizes.tp : rows;
        shard.element = bytes_of(workload.training.compute_dtype());
        if (routing) shard.busiest_experts = routing->busiest(sizes.ep);
        return shard;
    }

    /// Parameters of the pieces in `stage`, on a rank that holds the embedding's table or not.
    static ParameterCount count_of(const PieceParameters& pieces, const ChunkCensus& stage, bool has_table) {
        ParameterCount count;
        for (std::size_t kind = 0; kind < stage.kinds.size(); ++kind) {
            count.dense += stage.kinds[kind] * pieces.layers[kind].dense;
            count.expert += stage.kinds[kind] * pieces.layers[kind].expert;
        }
        count += {.dense = stage.mtp * pieces.mtp.dense, .expert = stage.mtp * pieces.mtp.expert};
        if (stage.embedding) count += pieces.embedding;
        if (stage.loss) count += has_table ? pieces.head : pieces.head_with_copy;
        // MTP looks tokens up again: without the first stage's table at hand its rank holds a copy.
        if (stage.mtp > 0 && !has_table) count += pieces.embedding;
        return count;
    }

    StepInputs inputs_of(const Layout& layout) {
        const SplitCensus& split = census(layout);
        const PieceParameters& pieces = piece_counts(layout);
        StepInputs inputs{workload, layout, calibration, kernels, costs(layout), split, paths(layout.sizes), flops, {}, &pieces};
        if (layout.engine == Engine::megatron && workload.training.megatron.optimizer == OptimizerKind::muon)
            inputs.orthogonalise_seconds = orthogonalise_seconds(layout);
        if (workload.training.megatron.offloaded_layers > 0) inputs.offloaded_bytes = static_cast<double>(memory.offloaded_bytes(layout));
        inputs.stage_parameters.reserve(static_cast<std::size_t>(layout.sizes.pp));
        for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank) {
            const int like = split.alike[static_cast<std::size_t>(rank)];
            if (like < rank) {
                inputs.stage_parameters.push_back(inputs.stage_parameters[static_cast<std::size_t>(like)]);
            } else {
                const ChunkCensus& stage = split.stages[static_cast<std::size_t>(rank)];
                inputs.stage_parameters.push_back(count_of(pieces, stage, stage.embedding));
            }
        }
        return inputs;
    }

    TimePrediction time(const Layout& layout) {
        // There is no closed form of divided backwards.
        if (layout.schedule) return timeline(layout, program_of(layout), is_v_shaped(*layout.schedule), false, {}).step.time;
        return step_time(inputs_of(layout));
    }

    /// The layout's own schedule; programs are shared by layouts of equal schedule, pp, vpp, group size and microbatches.
    std::shared_ptr<const PipelineProgram> program_of(const Layout& layout) {
        const std::int64_t divided = layout.schedule ? 1 + static_cast<std::int64_t>(*layout.schedule) : 0;
        const MemoKey<5> key{
            {layout.sizes.pp, layout.vpp, layout.num_microbatches, layout.vpp > 1 && !layout.schedule ? layout.group_size : 0, divided}};
        if (const auto found = programs.find(key); found != programs.end()) return found->second;
        auto program = std::make_shared<const PipelineProgram>(make_program(LayoutSchedule(layout).order()));
        if (kept_passes + program->ops.size() > static_cast<std::size_t>(kMostReplayedPasses)) {
            programs.clear();
            kept_passes = 0;
        }
        kept_passes += program->ops.size();
        return programs.emplace(key, std::move(program)).first->second;
    }

    LayoutTimeline timeline(const Layout& layout, std::shared_ptr<const PipelineProgram> program, bool v_shaped, bool details,
                            const std::vector<double>& slowdown) {
        const StepInputs inputs = inputs_of(layout);
        const PieceParameters& pieces = piece_counts(layout);
        std::vector<ChunkCensus> chunks;
        std::vector<ParameterCount> held;
        const int pp = program->pp;
        const auto own = [&](int rank, int chunk) {
            // In a V chunk 1 of a rank is what chunk 1 of the opposite rank is otherwise; a layout of its own V has it there.
            const int holder = v_shaped && !layout.split->v_shaped() && chunk == 1 ? pp - 1 - rank : rank;
            return inputs.split
                .chunks[static_cast<std::size_t>(holder) * static_cast<std::size_t>(program->chunks) + static_cast<std::size_t>(chunk)];
        };
        for (int rank = 0; rank < pp; ++rank) {
            bool has_table = false;
            for (int chunk = 0; chunk < program->chunks; ++chunk) has_table = has_table || own(rank, chunk).embedding;
            for (int chunk = 0; chunk < program->chunks; ++chunk) {
                chunks.push_back(own(rank, chunk));
                held.push_back(count_of(pieces, chunks.back(), has_table));
            }
        }
        StepTimeline step = step_timeline(inputs, *program, chunks, held, details, slowdown);
        return {std::move(program), std::move(step)};
    }
};

CostModel::CostModel(const Workload& workload) : CostModel(workload, calibration_of(workload.cluster, workload.training.software)) {}
CostModel::CostModel(const Workload& workload, const Calibration& calibration) : state_(std::make_unique<State>(workload, calibration)) {}
CostModel::~CostModel() = default;

LayoutPeaks CostModel::peaks(const Layout& layout, std::int64_t most) {
    return state_->memory.peaks(layout, most);
}

MemoryPrediction CostModel::memory(const Layout& layout) {
    return state_->memory.predict(layout, false);
}

MemoryPrediction CostModel::replayed_memory(const Layout& layout) {
    return state_->memory.predict(layout, true);
}

double CostModel::iteration_seconds(const Layout& layout) {
    return state_->time(layout).iteration_seconds;
}

TimePrediction CostModel::time(const Layout& layout) {
    return state_->time(layout);
}

Prediction CostModel::predict(const Layout& layout) {
    return {state_->time(layout), state_->memory.predict(layout, true)};
}

std::int64_t CostModel::passes(const Layout& layout) {
    return (layout.schedule ? 3 : 2) * layout.sizes.pp * layout.vpp * layout.num_microbatches;
}

Prediction CostModel::predict_exactly(const Layout& layout) {
    return {exact_time(layout), state_->memory.predict(layout, true)};
}

TimePrediction CostModel::exact_time(const Layout& layout) {
    return passes(layout) <= kMostReplayedPasses ? timeline(layout, false).step.time : time(layout);
}

double CostModel::exact_seconds(const Layout& layout) {
    return passes(layout) <= kMostReplayedPasses ? timeline(layout, false).step.time.iteration_seconds : iteration_seconds(layout);
}

LayoutTimeline CostModel::timeline(const Layout& layout, bool details, const std::vector<double>& slowdown) {
    return state_->timeline(layout, state_->program_of(layout), false, details, slowdown);
}

LayoutTimeline CostModel::timeline(const Layout& layout, const PipelineOrder& order, bool details, const std::vector<double>& slowdown) {
    return state_->timeline(layout, std::make_shared<const PipelineProgram>(make_program(order)), order.v_shaped, details, slowdown);
}

RankMemory CostModel::stage_memory(const Layout& layout, int pp_rank) {
    return state_->memory.stage(layout, pp_rank);
}

RankProbe CostModel::megatron_ops(const Layout& layout, int pp_rank) {
    return state_->memory.megatron_ops(layout, pp_rank);
}

GraphTerms CostModel::graphs(const Layout& layout, int pp_rank) {
    return state_->memory.graphs(layout, pp_rank);
}

double CostModel::chunk_seconds(const Layout& layout, const StageChunk& chunk) {
    const StepInputs inputs = state_->inputs_of(layout);
    const double seconds = chunk_time(inputs, launched_costs(inputs), census_of(state_->kinds, chunk)).total();
    if (layout.vpp > 1 && state_->workload.training.overlap_p2p) return seconds;
    return seconds + transfer_seconds(inputs) * ((chunk.loss ? 0 : 1) + (chunk.embedding ? 0 : 1));
}

const LayerCosts& CostModel::costs(const Layout& layout) {
    return state_->costs(layout);
}

std::optional<ReservedMemory> CostModel::replay_allocator(const Layout& layout, int pp_rank) {
    if (layout.engine != Engine::megatron) return std::nullopt;
    return state_->memory.replay_megatron(layout, pp_rank);
}

const Calibration& CostModel::calibration() const {
    return state_->calibration;
}

}  // namespace mgplan::simulator
