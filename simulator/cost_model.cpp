#include "simulator/cost_model.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "plan/schedule.hpp"
#include "simulator/layers/layer_costs.hpp"
#include "simulator/memory/activation_memory.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/stage_census.hpp"
#include "simulator/step_time.hpp"

namespace mgplan::simulator {
namespace {

/// What a memo is looked up by; each memo uses as many fields as it needs.
struct Key {
    std::array<std::int64_t, 12> fields{};
    bool operator==(const Key&) const = default;
};

struct KeyHash {
    std::size_t operator()(const Key& key) const {
        std::uint64_t hash = 1469598103934665603ULL;
        for (const auto field : key.fields) {
            hash ^= static_cast<std::uint64_t>(field);
            hash *= 1099511628211ULL;
            hash ^= hash >> 29U;
        }
        return static_cast<std::size_t>(hash);
    }
};

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
    std::unordered_map<Key, LayerCosts, KeyHash> layers;
    std::unordered_map<Key, PieceParameters, KeyHash> parameters;
    std::unordered_map<const StageSplit*, SplitCensus> splits;
    ActivationMemory activations;
    std::vector<std::int64_t> passes;  // by stage, of the layout at hand

    State(const Workload& work, const Calibration& rates)
        : workload(work),
          calibration(rates),
          kernels(work.cluster, calibration, work.training.precision),
          storage_kernels(work.cluster, calibration, work.training.precision == Precision::fp8 ? Precision::bf16 : work.training.precision),
          flops(model_flops(work.model, work.batch)),
          activations(work) {}

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

    /// Scratch that matrix products hold on to. PyTorch keeps one cuBLAS workspace for each handle and stream: the forward
    /// and the autograd thread have one each (ATen/cuda/CublasHandlePool.cpp). Transformer Engine has its own beside them,
    /// and four more for grouped products, which run on four streams (transformer_engine/pytorch/module/base.py).
    [[nodiscard]] std::int64_t gemm_workspaces(const Layout& layout) const {
        if (layout.engine != Engine::megatron) return 0;  // in the trace
        const MegatronSwitches& megatron = workload.training.megatron;
        // Reproducible products need CUBLAS_WORKSPACE_CONFIG, which Megatron-LM's tests set to :4096:8, 32 MiB.
        const std::int64_t each = megatron.deterministic ? std::int64_t{32} << 20 : calibration.gemm_workspace_bytes;
        const bool grouped = workload.model.moe && workload.model.moe->grouped_gemm;
        return 2 * each + (megatron.transformer_engine ? (grouped ? 5 : 1) * calibration.engine_workspace_bytes : 0);
    }

    RankMemory rank_memory(const Layout& layout, const SplitCensus& split, int rank) {
        const TrainingSpec& training = workload.training;
        const ParameterCount count = stage_count(layout, split, rank);
        const ModelStateBytes states = model_state_bytes(count, layout, training);
        const PassesPeak fullest_pass = activations.peak(layout, rank);
        const auto at_peak = [&](model::MemoryCategory category) { return fullest_pass.at_peak[static_cast<std::size_t>(category)]; };

        RankMemory memory;
        MemoryBreakdown& b = memory.breakdown;
        b.parameters = states.parameters;
        b.gradients = states.gradients;
        b.optimizer = states.optimizer;
        b.activations = at_peak(model::MemoryCategory::activations);
        b.communication = at_peak(model::MemoryCategory::communication);
        const std::int64_t workspace = at_peak(model::MemoryCategory::workspace);
        b.workspace = workspace + gemm_workspaces(layout);
        memory.high_water = b;
        memory.high_water.optimizer += states.update;
        // The update needs fp32 copies of narrower gradients, but no activations; the larger of the two instants counts.
        if (states.update > b.activations + workspace + b.communication) {
            b.optimizer += states.update;
            b.activations = b.communication = 0;
            b.workspace -= workspace;
        }
        memory.framework_bytes = b.total();
        b.context = context_bytes(layout);
        b.fragmentation = fragmentation_bytes(layout, memory.framework_bytes);
        memory.high_water.context = b.context;
        memory.high_water.fragmentation = b.fragmentation;
        memory.reserved_bytes = memory.framework_bytes + b.fragmentation;
        return memory;
    }

    /// Driver, modules and network of a rank: not the framework's own.
    [[nodiscard]] std::int64_t context_bytes(const Layout& layout) const {
        const ParallelSizes& s = layout.sizes;
        const bool moe = workload.model.moe.has_value();
        // NCCL, one communicator for the world and one per kind of group with more than one rank.
        const std::int64_t communicators = (s.world > 1) + (s.tp > 1) + (s.cp > 1) + (s.pp > 1) + (layout.dp() * s.cp > 1) +
                                           (moe && s.ep > 1) + (moe && s.etp > 1) + (moe && layout.edp() > 1);
        return calibration.context_bytes + communicators * calibration.communicator_bytes;
    }

    /// A caching allocator holds segments that no tensor fills; a thirty-second of the peak is an assumption, to be replaced
    /// by a replay of the allocator. mgplan's own runtime plans offsets.
    [[nodiscard]] static std::int64_t fragmentation_bytes(const Layout& layout, std::int64_t framework) {
        return layout.engine == Engine::megatron ? framework / 32 : 0;
    }

    /// The fullest stage and its peak_bytes(): what memory() says, without the terms.
    std::pair<int, std::int64_t> fullest(const Layout& layout) {
        const SplitCensus& split = census(layout);
        activations.peak_bytes(layout, passes);
        const std::int64_t workspaces = gemm_workspaces(layout), context = context_bytes(layout);
        std::pair<int, std::int64_t> fullest{0, -1};
        for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank) {
            const ModelStateBytes states = model_state_bytes(stage_count(layout, split, rank), layout, workload.training);
            const std::int64_t beside = std::max(passes[static_cast<std::size_t>(rank)], states.update);
            const std::int64_t framework = states.parameters + states.gradients + states.optimizer + beside + workspaces;
            const std::int64_t peak = framework + fragmentation_bytes(layout, framework) + context;
            if (peak > fullest.second) fullest = {rank, peak};
        }
        return fullest;
    }

    MemoryPrediction memory(const Layout& layout) {
        MemoryPrediction prediction;
        prediction.worst_stage = fullest(layout).first;
        prediction.worst = rank_memory(layout, census(layout), prediction.worst_stage);
        std::int64_t stride = 1;
        for (const auto& axis : dense_grid(layout.sizes)) {
            if (axis.axis == Axis::pp) stride = axis.stride;
        }
        prediction.worst_rank = prediction.worst_stage * stride;
        prediction.limit_bytes = workload.memory_limit;
        return prediction;
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
    return state_->fullest(layout).second;
}

MemoryPrediction CostModel::memory(const Layout& layout) {
    return state_->memory(layout);
}

double CostModel::iteration_seconds(const Layout& layout) {
    return state_->time(layout).iteration_seconds;
}

Prediction CostModel::predict(const Layout& layout) {
    return {state_->time(layout), state_->memory(layout)};
}

RankMemory CostModel::stage_memory(const Layout& layout, int pp_rank) {
    return state_->rank_memory(layout, state_->census(layout), pp_rank);
}

const Calibration& CostModel::calibration() const {
    return state_->calibration;
}

}  // namespace mgplan::simulator
