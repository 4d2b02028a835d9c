#include "simulator/cost_model.hpp"

#include <algorithm>
#include <unordered_map>

#include "simulator/layers/layer_costs.hpp"
#include "simulator/memo_key.hpp"
#include "simulator/memory/layout_memory.hpp"
#include "simulator/stage_census.hpp"
#include "simulator/step_time.hpp"

namespace mgplan::simulator {
namespace {

using Key = MemoKey<12>;

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

}  // namespace

struct CostModel::State {
    const Workload& workload;
    Calibration calibration;
    KernelTimes kernels, storage_kernels;
    double flops;
    std::unordered_map<Key, LayerCosts, MemoKeyHash> layers;
    std::unordered_map<Key, PieceParameters, MemoKeyHash> parameters;
    std::unordered_map<const StageSplit*, SplitCensus> splits;
    LayoutMemory memory;

    State(const Workload& work, const Calibration& rates)
        : workload(work),
          calibration(rates),
          kernels(work.cluster, calibration, work.training.precision),
          storage_kernels(work.cluster, calibration, work.training.precision == Precision::fp8 ? Precision::bf16 : work.training.precision),
          flops(model_flops(work.model, work.batch)),
          memory(work, calibration,
                 {[this](const Layout& layout) -> const SplitCensus& { return census(layout); },
                  [this](const Layout& layout) -> const LayerCosts& { return costs(layout); }}) {}

    const SplitCensus& census(const Layout& layout) {
        auto [entry, fresh] = splits.try_emplace(layout.split.get());
        if (fresh) entry->second = take_census(workload.model, layout.split);
        return entry->second;
    }

    const PieceParameters& piece_counts(const Layout& layout) {
        const Key key{{layout.sizes.tp, layout.sizes.ep, layout.sizes.etp}};
        auto [entry, fresh] = parameters.try_emplace(key);
        if (fresh) entry->second = piece_parameters(workload.model, layout.sizes.tp, layout.sizes.ep, layout.sizes.etp);
        return entry->second;
    }

    const LayerCosts& costs(const Layout& layout) {
        const ParallelSizes& sizes = layout.sizes;
        std::int64_t modules = 0;
        for (unsigned bit = 0; bit < 7; ++bit)
            modules |= std::int64_t{layout.recompute_modules.contains(static_cast<RecomputeModule>(bit))} << bit;
        // In the default order the strides of tp, cp, ep and etp follow from their sizes; other orders need all of it.
        const bool usual = sizes.order == AxisOrder{};
        std::int64_t order = 0;
        for (const Axis axis : sizes.order.axes()) order = order * 8 + static_cast<std::int64_t>(axis);
        const Key key{{sizes.tp, sizes.cp, sizes.ep, sizes.etp, layout.micro_batch, layout.sequence_parallel,
                       static_cast<std::int64_t>(layout.cp_comm_type), layout.recompute == Recompute::selective ? modules + 1 : 0,
                       usual ? 0 : sizes.pp, usual ? 0 : sizes.world, usual ? 0 : order, static_cast<std::int64_t>(layout.engine)}};
        auto [entry, fresh] = layers.try_emplace(key);
        if (fresh) {
            const LayoutPaths paths = paths_of(sizes, workload.cluster, calibration);
            Shard shard;
            shard.workload = &workload;
            shard.calibration = &calibration;
            shard.kernels = &kernels;
            shard.storage_kernels = &storage_kernels;
            shard.paths = &paths;
            shard.tp = sizes.tp;
            shard.cp = sizes.cp;
            shard.ep = sizes.ep;
            shard.etp = sizes.etp;
            shard.micro_batch = layout.micro_batch;
            shard.sequence_parallel = layout.sequence_parallel;
            shard.cp_comm_type = layout.cp_comm_type;
            shard.selective = layout.recompute == Recompute::selective;
            shard.modules = layout.recompute_modules;
            shard.engine = layout.engine;
            shard.tokens = layout.micro_batch * workload.batch.sequence / sizes.cp;
            shard.tokens_outside = layout.sequence_parallel ? shard.tokens / sizes.tp : shard.tokens;
            shard.element = bytes_of(workload.training.compute_dtype());
            entry->second = layer_costs(shard);
        }
        return entry->second;
    }

    ParameterCount stage_count(const Layout& layout, const SplitCensus& split, int rank) {
        const PieceParameters& pieces = piece_counts(layout);
        const ChunkCensus& stage = split.stages[static_cast<std::size_t>(rank)];
        ParameterCount count;
        count.dense = stage.dense * pieces.dense.dense + stage.mixture * pieces.mixture.dense + stage.mtp * pieces.mtp.dense;
        count.expert = stage.dense * pieces.dense.expert + stage.mixture * pieces.mixture.expert + stage.mtp * pieces.mtp.expert;
        if (stage.embedding) count += pieces.embedding;
        if (stage.loss) count += stage.embedding ? pieces.head : pieces.head_with_copy;
        // MTP looks tokens up again: without the first stage's table at hand its rank holds a copy.
        if (stage.mtp > 0 && !stage.embedding) count += pieces.embedding;
        return count;
    }

    TimePrediction time(const Layout& layout) {
        const SplitCensus& split = census(layout);
        StepInputs inputs{
            workload, layout, calibration, kernels, costs(layout), split, paths_of(layout.sizes, workload.cluster, calibration), flops, {}};
        for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank)
            inputs.stage_parameters.push_back(stage_count(layout, split, rank));
        return step_time(inputs);
    }
};

CostModel::CostModel(const Workload& workload) : CostModel(workload, default_calibration(workload.cluster)) {}
CostModel::CostModel(const Workload& workload, const Calibration& calibration) : state_(std::make_unique<State>(workload, calibration)) {}
CostModel::~CostModel() = default;

std::int64_t CostModel::peak_bytes(const Layout& layout) {
    return state_->memory.peaks(layout).even;
}

LayoutPeaks CostModel::peaks(const Layout& layout, std::int64_t most) {
    return state_->memory.peaks(layout, most);
}

MemoryPrediction CostModel::memory(const Layout& layout) {
    return state_->memory.predict(layout, false);
}

double CostModel::iteration_seconds(const Layout& layout) {
    return state_->time(layout).iteration_seconds;
}

Prediction CostModel::predict(const Layout& layout) {
    return {state_->time(layout), state_->memory.predict(layout, true)};
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
