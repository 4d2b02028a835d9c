#include "simulator/cost_model.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "plan/schedule.hpp"
#include "simulator/layers/layer_costs.hpp"
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
    std::unordered_map<Key, std::int64_t, KeyHash> dummies;
    std::unordered_map<Key, std::vector<std::vector<std::int64_t>>, KeyHash> live;
    std::unordered_map<const StageSplit*, SplitCensus> splits;

    State(const Workload& work, const Calibration& rates)
        : workload(work),
          calibration(rates),
          kernels(work.cluster, calibration, work.training.precision),
          storage_kernels(work.cluster, calibration, work.training.precision == Precision::fp8 ? Precision::bf16 : work.training.precision),
          flops(model_flops(work.model, work.batch)) {}

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

    /// Live (microbatch, chunk) pairs per rank and chunk at the rank's peak.
    const std::vector<std::vector<std::int64_t>>& live_counts(const Layout& layout) {
        const int pp = static_cast<int>(layout.sizes.pp);
        const Key key{{pp, layout.vpp, layout.num_microbatches, layout.group_size}};
        auto [entry, fresh] = live.try_emplace(key);
        if (fresh) {
            for (int rank = 0; rank < pp; ++rank) {
                entry->second.push_back(live_at_peak(pp, layout.vpp, layout.num_microbatches, layout.group_size, rank));
            }
        }
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
        if (layout.engine != Engine::megatron) return calibration.gemm_workspace_bytes;
        const MegatronSwitches& megatron = workload.training.megatron;
        // Reproducible products need CUBLAS_WORKSPACE_CONFIG, which Megatron-LM's tests set to :4096:8, 32 MiB.
        const std::int64_t each = megatron.deterministic ? std::int64_t{32} << 20 : calibration.gemm_workspace_bytes;
        const bool grouped = workload.model.moe && workload.model.moe->grouped_gemm;
        return 2 * each + (megatron.transformer_engine ? (grouped ? 5 : 1) * calibration.engine_workspace_bytes : 0);
    }

    /// With gradient accumulation fusion the GEMM adds to the main gradient, and autograd gets an empty tensor instead.
    /// Transformer Engine keeps one of each weight's shape for good (get_dummy_wgrad in transformer_engine/pytorch/module).
    std::int64_t dummy_weight_gradients(const Layout& layout, const ChunkCensus& stage) {
        const MegatronSwitches& megatron = workload.training.megatron;
        if (layout.engine != Engine::megatron || !megatron.transformer_engine || !megatron.gradient_accumulation_fusion) return 0;
        const ParallelSizes& sizes = layout.sizes;
        auto [entry, fresh] = dummies.try_emplace(Key{{sizes.tp, sizes.ep, sizes.etp, stage.dense > 0, stage.mixture > 0}});
        if (fresh) {
            std::set<std::vector<std::int64_t>> shapes;
            for (const auto& [kind, held] : {std::pair{LayerKind::dense, stage.dense}, std::pair{LayerKind::moe, stage.mixture}}) {
                if (held == 0) continue;
                for (const Parameter& p : layer_parameters(workload.model, kind, sizes.tp, sizes.ep, sizes.etp, "")) {
                    if (p.shape.size() == 2 && p.name.find("linear") != std::string::npos) shapes.insert(p.shape);
                }
            }
            for (const auto& shape : shapes) entry->second += shape[0] * shape[1] * bytes_of(workload.training.compute_dtype());
        }
        return entry->second;
    }

    RankMemory rank_memory(const Layout& layout, const SplitCensus& split, const LayerCosts& layer, int rank) {
        const TrainingSpec& training = workload.training;
        const ParameterCount count = stage_count(layout, split, rank);
        const ModelStateBytes states = model_state_bytes(count, layout, training);
        const auto& alive = live_counts(layout)[static_cast<std::size_t>(rank)];

        std::int64_t activations = 0, transient = 0, workspace = 0, first_chunk = 0;
        for (int c = 0; c < layout.vpp; ++c) {
            const ChunkCensus& chunk =
                split.chunks[static_cast<std::size_t>(rank) * static_cast<std::size_t>(layout.vpp) + static_cast<std::size_t>(c)];
            std::int64_t saved = 0;
            const std::int64_t whole = chunk.dense * layer.dense.saved + chunk.mixture * layer.mixture.saved;
            const std::int64_t one = std::max(chunk.dense > 0 ? layer.dense.saved : 0, chunk.mixture > 0 ? layer.mixture.saved : 0);
            if (layout.recompute == Recompute::full) {
                const std::int64_t n = std::max<std::int64_t>(1, layout.recompute_num_layers);
                if (layout.recompute_method == RecomputeMethod::block) {
                    const std::int64_t recomputed = std::min(layout.recompute_num_layers, chunk.layers());
                    saved = chunk.layers() > 0 ? whole * (chunk.layers() - recomputed) / chunk.layers() + recomputed * layer.boundary : 0;
                    transient = std::max(transient, recomputed > 0 ? one : 0);
                } else {
                    // One input is kept for every n layers; n layers are alive again while their backward runs.
                    saved = (chunk.layers() + n - 1) / n * layer.boundary;
                    transient = std::max(transient, one * std::min(n, chunk.layers()));
                }
            } else {
                saved = whole;
            }
            if (layout.recompute == Recompute::full) {
                saved += chunk.mtp * 2 * layer.boundary;  // the hidden state and the embedded tokens
                if (chunk.mtp > 0) transient = std::max(transient, layer.mtp.saved);
            } else {
                saved += chunk.mtp * layer.mtp.saved;
            }
            saved += (chunk.mtp + (chunk.embedding ? 1 : 0)) * layer.embedding.saved;
            if (chunk.loss) saved += (1 + workload.model.mtp_layers) * layer.head.saved;
            if (chunk.embedding) first_chunk = saved;
            activations += saved * alive[static_cast<std::size_t>(c)];
        }
        const ChunkCensus& stage = split.stages[static_cast<std::size_t>(rank)];
        std::int64_t backward = 0;
        for (const auto& [piece, held] :
             {std::pair{&layer.dense, stage.dense}, std::pair{&layer.mixture, stage.mixture}, std::pair{&layer.mtp, stage.mtp}}) {
            if (held == 0) continue;
            backward = std::max(backward, piece->transient);
            workspace = std::max(workspace, piece->workspace);
        }
        std::int64_t peak_extra = transient + backward;
        // While the loss runs no layer is in its backward. The embedding's gradient comes last, when its microbatch's layers
        // are gone.
        if (stage.loss) peak_extra = std::max(peak_extra, layer.head.transient);
        if (stage.embedding) peak_extra = std::max(peak_extra, layer.embedding.transient - first_chunk);

        peak_extra += dummy_weight_gradients(layout, stage);

        RankMemory memory;
        MemoryBreakdown& b = memory.breakdown;
        b.parameters = states.parameters;
        b.gradients = states.gradients;
        b.optimizer = states.optimizer;
        b.activations = activations + peak_extra;
        b.workspace = workspace + gemm_workspaces(layout);
        // Receive buffers of both directions between stages, and the sequence-parallel gather buffer.
        if (layout.sizes.pp > 1) b.communication += 2 * layer.boundary;
        if (layout.sequence_parallel) b.communication += layer.boundary * layout.sizes.tp;
        memory.high_water = b;
        memory.high_water.optimizer += states.update;
        // The update needs fp32 copies of narrower gradients, but no activations; the larger of the two instants counts.
        if (states.update > b.activations + workspace + b.communication) {
            b.optimizer += states.update;
            b.activations = b.communication = 0;
            b.workspace -= workspace;
        }
        memory.framework_bytes = b.total();
        const ParallelSizes& s = layout.sizes;
        const bool moe = workload.model.moe.has_value();
        // NCCL, one communicator for the world and one per kind of group with more than one rank; not the framework's own.
        const std::int64_t communicators = (s.world > 1) + (s.tp > 1) + (s.cp > 1) + (s.pp > 1) + (layout.dp() * s.cp > 1) +
                                           (moe && s.ep > 1) + (moe && s.etp > 1) + (moe && layout.edp() > 1);
        b.context = calibration.context_bytes + communicators * calibration.communicator_bytes;
        // A caching allocator holds segments that no tensor fills; a thirty-second of the peak is an assumption, to be replaced
        // by a replay of the allocator. mgplan's own runtime plans offsets.
        if (layout.engine == Engine::megatron) b.fragmentation = memory.framework_bytes / 32;
        memory.high_water.context = b.context;
        memory.high_water.fragmentation = b.fragmentation;
        memory.reserved_bytes = memory.framework_bytes + b.fragmentation;
        return memory;
    }

    MemoryPrediction memory(const Layout& layout) {
        const SplitCensus& split = census(layout);
        const LayerCosts& layer = costs(layout);
        MemoryPrediction prediction;
        std::int64_t peak = -1;
        for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank) {
            const RankMemory candidate = rank_memory(layout, split, layer, rank);
            if (candidate.peak_bytes() > peak) {
                peak = candidate.peak_bytes();
                prediction.worst = candidate;
                prediction.worst_stage = rank;
            }
        }
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
    return state_->memory(layout).worst.peak_bytes();
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
    return state_->rank_memory(layout, state_->census(layout), state_->costs(layout), pp_rank);
}

const Calibration& CostModel::calibration() const {
    return state_->calibration;
}

}  // namespace mgplan::simulator
