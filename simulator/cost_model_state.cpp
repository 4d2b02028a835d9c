#include "simulator/cost_model_state.hpp"

#include <algorithm>
#include <utility>

#include "plan/layout/layout_schedule.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/price/layout_paths.hpp"
#include "simulator/price/packed_attention.hpp"
#include "simulator/price/recorded_flops.hpp"

namespace mgplan::simulator {
namespace {

/// Layer counts of the chunks of a V-shaped schedule; index = rank · chunks + chunk. Chunk 1 of a rank is chunk 1 of the opposite rank of a
/// plain split; a split that is itself V-shaped stays as it is.
std::vector<ChunkCensus> in_v_shape(const Layout& layout, const PipelineProgram& program, const std::vector<ChunkCensus>& chunks) {
    if (layout.split->v_shaped()) return chunks;
    std::vector<ChunkCensus> turned;
    turned.reserve(chunks.size());
    for (int rank = 0; rank < program.pp; ++rank) {
        for (int chunk = 0; chunk < program.chunks; ++chunk)
            turned.push_back(
                chunks[static_cast<std::size_t>(chunk == 1 ? program.pp - 1 - rank : rank) * static_cast<std::size_t>(program.chunks) +
                       static_cast<std::size_t>(chunk)]);
    }
    return turned;
}

}  // namespace

LinksKey links_key(const Layout& layout, const Workload& workload) {
    const ParallelSizes& sizes = layout.sizes;
    LinksKey key;
    if (!workload.batch.lengths.empty()) key.packed_over = layout.dp();
    if (sizes.order == AxisOrder{}) return key;
    key.pp = sizes.pp;
    key.world = sizes.world;
    key.order = sizes.order.axes();
    return key;
}

CostKey cost_key(const Layout& layout, const Workload& workload) {
    CostKey key{shard_key(layout), links_key(layout, workload), workload.training.overlap_moe, layout.schedule.has_value()};
    key.shard.switches = layer_switches(workload.model, workload.training);
    key.shard.switches.overlap_tp &= layout.sizes.tp > 1;
    return key;
}

CostKey cost_key_without_tail(const Layout& layout, const Workload& workload) {
    CostKey key = cost_key(layout, workload);
    key.shard.modules = {};
    return key;
}

CostModel::ByModel::ByModel(const Workload& workload, const Calibration& calibrated, const ByModel* traces)
    : calibration(calibrated),
      flops(model_flops(workload.model, workload.batch)),
      memos(workload, calibration, traces != nullptr ? traces->memos.schedules() : std::make_shared<SharedSchedules>()),
      shards(traces != nullptr ? ShardLayers(workload, traces->shards) : ShardLayers(workload)),
      recorded(workload, shards, nullptr),
      recorded_by_module(workload, shards, nullptr) {}
CostModel::ByModel::ByModel(const Workload& workload, const ByModel& other)
    : calibration(other.calibration),
      flops(other.flops),
      memos(workload, calibration, other.memos.schedules()),
      shards(workload, other.shards),
      recorded(workload, shards, &other.recorded),
      recorded_by_module(workload, shards, &other.recorded_by_module) {}

CostModel::State::State(const Workload& work, std::shared_ptr<ByModel> by_model, std::shared_ptr<ModelStates> of_types)
    : workload(work),
      calibration(by_model->calibration),
      rates(work.cluster, calibration, work.training),
      shared(std::move(by_model)),
      kinds(shared->memos.kinds()),
      states(std::move(of_types)),
      memory(work, calibration,
             {&shared->shards, states.get(), &shared->memos.stages(), shared->memos.schedules().get(), &shared->memos.replays()}) {
    packed = packed_attention(work.batch);
    if (work.model.moe) routing.emplace(work.model, work.routing);
}

std::vector<double> CostModel::State::orthogonalise_seconds(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    auto [entry, fresh] = orthogonalised.try_emplace(cost_key(layout, workload));
    if (fresh) {
        for (const std::int64_t layer : kinds.first_layer) {
            entry->second.push_back(layout.engine == Engine::megatron ? muon_seconds(workload.model, layer, sizes, rates.storage())
                                                                      : own_muon_seconds(workload.model, layer, sizes, workload.training,
                                                                                         rates.ops(), shared->memos.paths(sizes)));
        }
        entry->second.push_back(entry->second[kinds.of_prediction]);
    }
    const bool divided = workload.training.distributed_optimizer;
    const double dense = divided ? static_cast<double>(layout.dp() * sizes.cp) : 1,
                 expert = divided ? static_cast<double>(layout.edp()) : 1;
    std::vector<double> seconds;
    for (const MuonSeconds& layer : entry->second) seconds.push_back(layer.dense / dense + layer.expert / expert);
    return seconds;
}

const LayerCosts& CostModel::State::costs(const Layout& layout) {
    const CostKey key = cost_key(layout, workload);
    auto [entry, fresh] = shared->layers.try_emplace(key);
    if (fresh) entry->second = shared->recorded.of(key, shard_of(layout, key), shared->shards.sizes(layout));
    return entry->second;
}

const LayerCosts* CostModel::State::known_costs(const CostKey& key) {
    const auto found = shared->layers.find(key);
    return found == shared->layers.end() ? nullptr : &found->second;
}

LayerCosts CostModel::State::costs_now(const Layout& layout) {
    const CostKey key = cost_key(layout, workload);
    return shared->recorded.of(key, shard_of(layout, key), shared->shards.sizes(layout));
}

LayerCosts CostModel::State::costs_by_module(const Layout& layout, std::optional<bool> divided) {
    CostKey key = cost_key(layout, workload);
    key.divided = divided.value_or(key.divided);
    Shard shard = shard_of(layout, key);
    shard.by_module = true;
    return shared->recorded_by_module.of(key, shard, shared->shards.sizes(layout));
}

LayerCosts CostModel::State::least_compute(const Layout& layout) {
    LayerCosts costs = costs_without_mixtures(layout);
    costs.each(costs, [](PieceCost& piece, const PieceCost&) { piece.exposed_forward = piece.exposed_backward = {}; });
    add_expert_products(layout, costs);
    return costs;
}

LayerCosts CostModel::State::costs_without_mixtures(const Layout& layout) {
    const CostKey key = cost_key(layout, workload);
    return shared->recorded.without_mixtures(key, shard_of(layout, key), shared->shards.sizes(layout));
}

void CostModel::State::add_expert_products(const Layout& layout, LayerCosts& costs) const {
    if (!workload.model.moe || workload.model.moe->capacity_factor > 0) return;
    add_to_mixtures(costs, expert_products(layout, workload, rates.products()));
}

Shard CostModel::State::shard_of(const Layout& layout, const CostKey& key) {
    const ParallelSizes& sizes = layout.sizes;
    Shard shard{key.shard};
    shard.workload = &workload;
    shard.calibration = &calibration;
    shard.rates = rates.ops();
    shard.paths = &shared->memos.paths(sizes);
    const std::int64_t rows = layout.micro_batch * workload.batch.sequence / sizes.cp;
    shard.tokens_outside = layout.sequence_parallel ? rows / sizes.tp : rows;
    shard.element = bytes_of(workload.training.compute_dtype());
    shard.packed = packed;
    shard.rates.attention_share = busiest_share(packed, workload.batch, layout.dp());
    shard.rates.attention_length = packed.length;
    if (routing) shard.busiest_experts = routing->busiest(sizes.ep);
    return shard;
}

ParameterCount CostModel::State::count_of(const PieceParameters& pieces, const ChunkCensus& stage, bool has_table) const {
    ParameterCount count;
    for (std::size_t kind = 0; kind < stage.kinds.size(); ++kind) {
        count.dense += stage.kinds[kind] * pieces.layers[kind].dense;
        count.expert += stage.kinds[kind] * pieces.layers[kind].expert;
    }
    const std::int64_t depths = workload.model.mtp_weights(stage.mtp);
    count += {.dense = depths * pieces.mtp.dense, .expert = depths * pieces.mtp.expert};
    if (stage.embedding) count += pieces.embedding;
    if (stage.loss) count += has_table ? pieces.head : pieces.head_with_copy;
    // Multi-token prediction looks tokens up again: a rank without the first stage's table holds a copy of it.
    if (stage.mtp > 0 && !has_table) count += pieces.embedding;
    return count;
}

StepInputs CostModel::State::inputs_of(const Layout& layout, const LayerCosts& layers_of_shard) {
    const SplitCensus& split = shared->memos.census(layout);
    const PieceParameters& pieces = shared->memos.pieces(layout.sizes);
    StepInputs inputs{workload,        layout, calibration, rates.products(),
                      layers_of_shard, kinds,  split,       shared->memos.paths(layout.sizes),
                      shared->flops,   {},     &pieces};
    if (workload.training.megatron.optimizer == OptimizerKind::muon) inputs.orthogonalise_seconds = orthogonalise_seconds(layout);
    if (workload.training.megatron.offloaded_layers > 0) inputs.offloaded_bytes = static_cast<double>(memory.offloaded_bytes(layout));
    if (layout.engine == Engine::megatron && !workload.training.offload.modules.empty())
        inputs.offloaded_by_kind = memory.offloaded_by_kind(layout);
    inputs.graphed = layout.cuda_graphs.contains(CudaGraphScope::full_iteration);
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

TimePrediction CostModel::State::estimate_time(const Layout& layout, const LayerCosts& layers_of_shard) {
    // Split backwards have no closed form.
    if (layout.schedule)
        return timeline(layout, layers_of_shard, shared->memos.program(layout), is_v_shaped(*layout.schedule), false, {}).step.time;
    return step_time(inputs_of(layout, layers_of_shard));
}

std::vector<ParameterCount> CostModel::State::counts_of(const Layout& layout, const PipelineProgram& program,
                                                        const std::vector<ChunkCensus>& chunks) const {
    const PieceParameters& pieces = shared->memos.pieces(layout.sizes);
    std::vector<ParameterCount> counts;
    counts.reserve(chunks.size());
    for (auto first = chunks.begin(); first != chunks.end(); first += program.chunks) {
        const bool has_table = std::any_of(first, first + program.chunks, [](const ChunkCensus& chunk) { return chunk.embedding; });
        for (int chunk = 0; chunk < program.chunks; ++chunk) counts.push_back(count_of(pieces, first[chunk], has_table));
    }
    return counts;
}

LayoutTimeline CostModel::State::timeline(const Layout& layout, const LayerCosts& layers_of_shard,
                                          std::shared_ptr<const PipelineProgram> program, bool v_shaped, bool details,
                                          const std::vector<double>& slowdown) {
    const StepInputs inputs = inputs_of(layout, layers_of_shard);
    const std::vector<ChunkCensus>& as_split = inputs.split.chunks;
    const std::vector<ChunkCensus> turned = v_shaped ? in_v_shape(layout, *program, as_split) : std::vector<ChunkCensus>{};
    const std::vector<ChunkCensus>& chunks = v_shaped ? turned : as_split;
    StepTimeline step = step_timeline(inputs, *program, chunks, counts_of(layout, *program, chunks), details, slowdown);
    return {std::move(program), std::move(step)};
}

double CostModel::State::timeline_seconds(const Layout& layout) {
    const std::shared_ptr<const PipelineProgram> program = shared->memos.program(layout);
    const StepInputs inputs = inputs_of(layout);
    const std::vector<ChunkCensus>& chunks = inputs.split.chunks;
    return step_timeline_seconds(inputs, *program, chunks, counts_of(layout, *program, chunks));
}

CostModel::Switched::Switched(const Workload& base, std::shared_ptr<const LayoutSwitches> choices)
    : switches(std::move(choices)), workload(base) {
    apply_switches(*switches, workload.model, workload.training);
}

}  // namespace mgplan::simulator
