// Parts of a RankTrainer: its groups, and its chunks with their buffers and traffic.

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "model/layers/chunk_sections.hpp"
#include "model/layers/initialization.hpp"
#include "model/ops/elementwise.hpp"
#include "model/optimizer/bucket_traffic.hpp"
#include "model/optimizer/unit_traffic.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/own_fp8.hpp"

namespace mgplan::model {
namespace {

BufferOptions buffers_of(const TrainingTask& task, int pp_rank, int chunk) {
    BufferOptions options = buffer_options(task.layout, task.training, pp_rank, chunk);
    options.matrices_apart = task.training.megatron.optimizer == OptimizerKind::muon;
    if (options.bucket_size && task.gradients.bucket_size) options.bucket_size = task.gradients.bucket_size;
    return options;
}

BucketTrafficOptions traffic_options(const TrainingTask& task) {
    BucketTrafficOptions options = gradient_weights(task.layout.dp() * task.layout.sizes.cp, task.layout.edp(),
                                                    task.gradients.average_in_collective, task.gradients.per_token_loss);
    options.distributed = task.training.distributed_optimizer;
    options.overlap_reduce = task.training.overlap_grad_reduce;
    options.overlap_gather = task.training.overlap_param_gather;
    return options;
}

/// Returns the parts of the chunk whose parameters are gathered and freed together; none if only the optimizer's state is sharded.
ChunkSharding sharding_of(const TrainingTask& task, std::span<const Parameter> parameters, const StageChunk& contents) {
    ChunkSharding sharding;
    const FullyShardedSpec& spec = task.training.megatron.fully_sharded;
    if (!spec.shards_gradients()) return sharding;
    sharding.units = sections_of(contents);
    sharding.parameters = spec.shards_parameters();
    for (const Parameter& parameter : parameters) sharding.unit_of.push_back(section_of(contents, parameter.name));
    return sharding;
}

RecomputeChoice recompute_of(const Layout& layout) {
    RecomputeChoice choice;
    if (layout.recompute == Recompute::selective) choice.modules = layout.recompute_modules;
    if (layout.recompute == Recompute::full) {
        choice.full = layout.recompute_method.value_or(RecomputeMethod::uniform);
        choice.layers = layout.recompute_num_layers;
    }
    return choice;
}

}  // namespace

void RankTrainer::join_groups(const World& world) {
    const ModelSpec& model = task_.model;
    const auto group_with = [&](std::string_view list) { return group_of(task_.layout.sizes, list, world.rank); };
    const auto join = [&](std::string_view list, const std::string& name) {
        const auto ranks = group_with(list);
        MGPLAN_ASSERT(!ranks.empty(), "every rank is in a group of each kind");
        return world.join(name, ranks);
    };
    groups_.tp = join("tp", "tp");
    groups_.cp = join("cp", "cp");
    groups_.ep = join("expert:ep", "expert:ep");
    groups_.etp = join("expert:tp", "expert:tp");
    groups_.dp_cp = join("dp-cp", "dp-cp");
    groups_.expert_dp = join("expert:dp", "expert:dp");
    // One of several equal parts of dp·cp (edp), and one rank of each part.
    const auto join_replicas = [&](std::string_view list, std::unique_ptr<Communicator>& shard, std::unique_ptr<Communicator>& replicas) {
        const auto ranks = group_with(list);
        const std::ptrdiff_t parts = task_.training.distributed_optimizer_instances, size = std::ssize(ranks) / parts;
        const std::ptrdiff_t place = std::find(ranks.begin(), ranks.end(), world.rank) - ranks.begin(), part = place / size;
        std::vector<std::int32_t> across;
        for (std::ptrdiff_t i = 0; i < parts; ++i) across.push_back(ranks[static_cast<std::size_t>(i * size + place % size)]);
        const std::string name(list);
        shard = world.join("intra_partial:" + name, std::span(ranks).subspan(static_cast<std::size_t>(part * size), size));
        replicas = world.join("inter_partial:" + name, across);
    };
    if (task_.training.distributed_optimizer_instances > 1) {
        join_replicas("dp-cp", groups_.shard, groups_.replicas);
        join_replicas("expert:dp", groups_.expert_shard, groups_.expert_replicas);
    }
    groups_.tp_pp = join("tp-pp", "tp-pp");
    groups_.pp_forward = join("pp", "pp");
    groups_.pp_backward = join("pp", "pp-backward");
    if ((model.moe && model.moe->expert_bias) || own_fp8(model, task_.training) == OwnFp8::delayed)
        groups_.tp_dp_cp = join("tp-dp-cp", "tp-dp-cp");
    if (model.moe) {
        groups_.tp_cp = join("tp-cp", "tp-cp");
        groups_.expert_model = join("expert:tp-ep-pp", "expert:tp-ep-pp");
    }
    const auto ends = group_with("embedding");
    // Every rank takes part in every join; those between the ends have a group of their own, without traffic.
    const std::vector<std::int32_t> alone{world.rank};
    if ((model.tied_embeddings || model.mtp_layers > 0) && task_.layout.sizes.pp > 1)
        groups_.embedding = world.join("embedding", ends.empty() ? alone : ends);
}

void RankTrainer::set_listener(CollectiveListener* listener) {
    for (auto* group : {&groups_.tp, &groups_.cp, &groups_.ep, &groups_.etp, &groups_.dp_cp, &groups_.expert_dp, &groups_.tp_pp,
                        &groups_.pp_forward, &groups_.pp_backward, &groups_.embedding, &groups_.tp_cp, &groups_.expert_model,
                        &groups_.tp_dp_cp, &groups_.shard, &groups_.replicas, &groups_.expert_shard, &groups_.expert_replicas}) {
        if (*group) (*group)->set_listener(listener);
    }
}

void RankTrainer::make_chunks(TokenShare& share) {
    const auto parameters = stage_parameters(task_.model, task_.layout, pp_rank_);
    for (int c = 0; c < task_.layout.vpp; ++c) {
        const std::vector<Parameter>& own = parameters[static_cast<std::size_t>(c)];
        buffers_.push_back(std::make_unique<ChunkBuffers>(
            device_, own, context_.dtype, buffers_of(task_, pp_rank_, c), sharding_of(task_, own, task_.layout.split->chunk(pp_rank_, c)),
            own_fp8(task_.model, task_.training), stores_own_fp8(task_.model, task_.training)));
        chunks_.push_back(std::make_unique<ModelChunk>(task_.model, task_.layout.split->chunk(pp_rank_, c), buffers_.back()->weights(),
                                                       recompute_of(task_.layout)));
        const StageChunk& contents = chunks_.back()->contents();
        share.embedding |= contents.embedding;
        share.loss |= contents.loss;
        if (contents.mtp > 0) share.mtp_depths = task_.model.mtp_layers;
        traffic_.push_back(make_traffic(*buffers_.back(), *chunks_.back()));
        chunks_.back()->set_events(traffic_.back().get());
        chunks_.back()->set_number(c);
    }
}

void RankTrainer::make_fp8_delayed() {
    for (const bool experts : {false, true}) {
        std::vector<Weight> weights;
        FollowedLayers layers;
        layers.experts = experts;
        for (const auto& buffers : buffers_) {
            for (const Parameter& parameter : buffers->parameters()) {
                const Weight& weight = buffers->weights().at(parameter.name);
                if (weight.fp8 == nullptr || parameter.expert != experts) continue;
                weights.push_back(weight);
                layers.names.push_back(whole_name(task_.model, parameter, place_));
            }
        }
        if (weights.empty()) continue;
        layers.scaling = std::make_unique<Fp8Delayed>(device_, weights, loss_gradient(task_.layout.num_microbatches));
        fp8_delayed_.push_back(std::move(layers));
    }
}

void RankTrainer::update_fp8_scales() {
    for (FollowedLayers& layers : fp8_delayed_) {
        if (layers.experts)
            layers.scaling->update({groups_.etp.get(), groups_.expert_dp.get()});
        else
            layers.scaling->update({groups_.tp_dp_cp.get()});
    }
}

void RankTrainer::make_fp8_parameters() {
    for (const bool experts : {false, true}) {
        std::vector<Fp8Parameters::Named> weights;
        for (const auto& buffers : buffers_) {
            for (const Parameter& parameter : buffers->parameters()) {
                const Weight& weight = buffers->weights().at(parameter.name);
                if (weight.fp8 != nullptr && parameter.expert == experts) weights.emplace_back(&parameter, weight);
            }
        }
        if (!weights.empty()) fp8_parameters_.emplace_back(device_, std::move(weights), shards_of(experts));
    }
}

void RankTrainer::begin_fp8_parameters() {
    if (fp8_parameters_.empty()) return;
    std::map<const Parameter*, std::vector<Optimizer::Owned>> parts;
    for (const Optimizer::Owned& part : optimizer_->owned()) parts[part.description].push_back(part);
    for (const Fp8Parameters& parameters : fp8_parameters_) {
        for (std::size_t i = 0; i < parameters.weights().size(); ++i) {
            const auto& [parameter, weight] = parameters.weights()[i];
            weight.value.storage()->take();
            WeightTable table;
            table.add(parameter->name, weight);
            initialize_weights(task_.model, std::span(parameter, 1), table, place_, task_.initialization);
            parameters.begin(i);
            const Tensor flat = weight.value.view({weight.value.elements()});
            for (const Optimizer::Owned& part : parts[parameter])
                copy(flat.slice(part.in_parameter, part.in_parameter + part.main.elements()), part.main);
            weight.value.storage()->give_back();
        }
    }
}

void RankTrainer::cast_fp8_parameters() {
    if (fp8_parameters_.empty()) return;
    const std::vector<Optimizer::Owned> owned = optimizer_->owned();
    for (const Fp8Parameters& parameters : fp8_parameters_) parameters.cast(owned);
}

void RankTrainer::add_fp8_histories(std::vector<StatePiece>& pieces) const {
    for (const FollowedLayers& layers : fp8_delayed_) {
        const Communicator &etp = *groups_.etp, &edp = *groups_.expert_dp, &all = *groups_.tp_dp_cp;
        const std::int64_t copy = layers.experts ? edp.rank() * etp.size() + etp.rank() : all.rank();
        const std::int64_t copies = layers.experts ? edp.size() * etp.size() : all.size();
        for (std::size_t i = 0; i < layers.names.size(); ++i) {
            for (const Fp8Delayed::History& history : layers.scaling->histories(static_cast<std::int64_t>(i))) {
                ShardOfWhole whole;
                whole.rows = whole.whole_rows = history.values.elements();
                pieces.push_back({StateKind::history, layers.names[i] + "/" + history.name, whole, 0, history.values,
                                  share_of_copies(history.values.elements(), copy, copies)});
            }
        }
    }
}

Communicator& RankTrainer::shards_of(bool expert) const {
    if (groups_.shard) return expert ? *groups_.expert_shard : *groups_.shard;
    return expert ? *groups_.expert_dp : *groups_.dp_cp;
}

std::unique_ptr<ChunkTraffic> RankTrainer::make_traffic(ChunkBuffers& buffers, const ModelChunk& chunk) const {
    const auto initialize = [&](std::span<const Parameter> parameters) {
        initialize_weights(task_.model, parameters, buffers.weights(), place_, task_.initialization);
    };
    if (buffers.units() > 0) {
        auto traffic = std::make_unique<UnitTraffic>(
            buffers, ShardGroups{&shards_of(false), &shards_of(true), groups_.replicas.get(), groups_.expert_replicas.get()},
            traffic_options(task_));
        traffic->initialize_units(initialize);
        return traffic;
    }
    std::vector<Parameter> wide = buffers.frozen();  // of what is stored in fp8 begin_fp8_parameters() takes care
    for (const Parameter& parameter : buffers.parameters()) {
        const auto& copies = buffers.weights().at(parameter.name).fp8;
        if (copies == nullptr || !copies->stored) wide.push_back(parameter);
    }
    initialize(wide);
    std::vector<int> units;
    for (const Parameter& parameter : buffers.parameters()) units.push_back(chunk.unit_of(parameter.name));
    return std::make_unique<BucketTraffic>(buffers, units, chunk.units(), *groups_.dp_cp, *groups_.expert_dp, traffic_options(task_));
}

}  // namespace mgplan::model
