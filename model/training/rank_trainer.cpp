#include "model/training/rank_trainer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "plan/rank_groups.hpp"

namespace mgplan::model {
namespace {

/// The group of this name that holds the rank; empty where none does.
std::vector<std::int32_t> group_with(const RankGroups& groups, std::string_view name, int rank) {
    const NamedGroups& named = groups.at(name);
    for (std::size_t i = 0; i < named.count(); ++i) {
        const auto ranks = named[i];
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return {ranks.begin(), ranks.end()};
    }
    return {};
}

BufferOptions buffer_options(const TrainingTask& task, int pp_rank, int chunk) {
    BufferOptions options;
    const std::int64_t instances = std::max(1, task.training.distributed_optimizer_instances);
    options.dp = task.layout.dp() * task.layout.sizes.cp / instances;
    options.edp = task.layout.edp() / instances;
    if (task.training.overlap_grad_reduce) options.bucket_size = default_bucket_size(options.dp);
    options.distributed_optimizer = task.training.distributed_optimizer;
    options.grad_dtype = task.training.precision == Precision::fp64 ? Dtype::fp64 : task.training.grad_dtype;
    options.pp_rank = pp_rank;
    options.disable_bucketing = chunk > 0;
    return options;
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

std::vector<std::string> features_not_executed(const TrainingTask& task) {
    std::vector<std::string> features = features_not_computed(task.model);
    const ModelSpec& model = task.model;
    const Layout& layout = task.layout;
    if (model.moe) features.emplace_back("mixture of experts");
    if (model.mla) features.emplace_back("multi-latent attention");
    if (model.mtp_layers > 0) features.emplace_back("multi-token prediction");
    if (model.qk_norm_full_width) features.emplace_back("QK-norm over the whole width");
    if (model.token_types > 0) features.emplace_back("token-type embeddings");
    if (model.attention_dropout > 0) features.emplace_back("dropout inside attention");
    if (task.training.precision == Precision::fp8) features.emplace_back("fp8");
    if (task.training.precision == Precision::fp16) features.emplace_back("fp16 with loss scaling");
    if (task.training.attention == AttentionBackend::unfused) features.emplace_back("unfused attention");
    if (task.training.distributed_optimizer_instances > 1) features.emplace_back("several distributed-optimizer instances");
    if (model.kv_heads % layout.sizes.tp != 0)
        features.push_back(fmt::format("tp = {} beyond kv heads = {}", layout.sizes.tp, model.kv_heads));
    if (layout.sizes.cp > 1 && layout.cp_comm_type == CpCommType::a2a_p2p) features.emplace_back("hierarchical context parallelism");
    if (!layout.cuda_graphs.empty()) features.emplace_back("CUDA graphs");
    if (task.batch.sequence % (2 * layout.sizes.cp) != 0)
        features.push_back(
            fmt::format("a sequence of {} tokens, which 2·cp = {} does not divide", task.batch.sequence, 2 * layout.sizes.cp));
    return features;
}

RankTrainer::RankTrainer(const TrainingTask& task, Device& device, const World& world) : task_(task), device_(device) {
    if (const auto features = features_not_executed(task); !features.empty()) {
        throw ConfigError(fmt::format("{} cannot be trained by this version: {}; choose a model and layout without", task.model.name,
                                      fmt::join(features, ", ")));
    }
    if (world.size != task.layout.sizes.world) {
        throw ConfigError(fmt::format("the plan is for {} ranks, but {} were started; start {} or make a plan for {}",
                                      task.layout.sizes.world, world.size, task.layout.sizes.world, world.size));
    }
    const RankGroups groups(task.layout.sizes);
    const auto join = [&](std::string_view list, const std::string& name) {
        const auto ranks = group_with(groups, list, world.rank);
        MGPLAN_ASSERT(!ranks.empty(), "every rank is in a group of each kind");
        return world.join(name, ranks);
    };
    groups_.tp = join("tp", "tp");
    groups_.cp = join("cp", "cp");
    groups_.ep = join("expert:ep", "expert:ep");
    groups_.etp = join("expert:tp", "expert:tp");
    groups_.dp_cp = join("dp-cp", "dp-cp");
    groups_.expert_dp = join("expert:dp", "expert:dp");
    groups_.tp_pp = join("tp-pp", "tp-pp");
    groups_.pp_forward = join("pp", "pp");
    groups_.pp_backward = join("pp", "pp");
    const auto ends = group_with(groups, "embedding", world.rank);
    // Every rank takes part in every join; those between the ends have a group of their own, in which nothing happens.
    const std::vector<std::int32_t> alone{world.rank};
    if (task.model.tied_embeddings && task.layout.sizes.pp > 1) groups_.embedding = world.join("embedding", ends.empty() ? alone : ends);

    context_.device = &device;
    context_.tp = groups_.tp.get();
    context_.cp = groups_.cp.get();
    context_.ep = groups_.ep.get();
    context_.etp = groups_.etp.get();
    context_.sequence_parallel = task.layout.sequence_parallel && groups_.tp->size() > 1;
    context_.cp_comm_type = task.layout.cp_comm_type;
    context_.dtype = task.training.compute_dtype();
    pp_rank_ = groups_.pp_forward->rank();
    const auto dp_ranks = group_with(groups, "dp", world.rank);
    dp_rank_ = std::find(dp_ranks.begin(), dp_ranks.end(), world.rank) - dp_ranks.begin();

    const auto parameters = stage_parameters(task.model, task.layout, pp_rank_);
    std::vector<ChunkBuffers*> buffers;
    std::vector<ModelChunk*> chunks;
    for (int c = 0; c < task.layout.vpp; ++c) {
        buffers_.push_back(std::make_unique<ChunkBuffers>(device, parameters[static_cast<std::size_t>(c)], context_.dtype,
                                                          buffer_options(task, pp_rank_, c)));
        initialize_weights(task.model, buffers_.back()->parameters(), buffers_.back()->weights(), {groups_.tp->rank(), groups_.tp->size()},
                           task.initialization);
        chunks_.push_back(std::make_unique<ModelChunk>(task.model, task.layout.split->chunk(pp_rank_, c), buffers_.back()->weights(),
                                                       recompute_of(task.layout)));
        buffers.push_back(buffers_.back().get());
        chunks.push_back(chunks_.back().get());
    }
    OptimizerOptions options = task.optimizer;
    options.distributed = task.training.distributed_optimizer;
    options.main_dtype = task.training.precision == Precision::fp64 ? Dtype::fp64 : Dtype::fp32;
    optimizer_ = std::make_unique<Optimizer>(
        device, buffers,
        OptimizerGroups{groups_.dp_cp.get(), groups_.expert_dp.get(), groups_.tp_pp.get(), groups_.tp.get(), groups_.embedding.get()},
        options, context_.sequence_parallel);
    executor_ = std::make_unique<PipelineExecutor>(task.model, context_, chunks,
                                                   PipelineChannels{groups_.pp_forward.get(), groups_.pp_backward.get()});
    ScheduleRequest request;
    request.pp = static_cast<int>(task.layout.sizes.pp);
    request.vpp = task.layout.vpp;
    request.microbatches = task.layout.num_microbatches;
    if (task.layout.vpp > 1) request.group_size = task.layout.group_size;
    schedule_ = Schedule(request).rank(pp_rank_);
}

void RankTrainer::set_listener(CollectiveListener* listener) {
    for (auto* group : {&groups_.tp, &groups_.cp, &groups_.ep, &groups_.etp, &groups_.dp_cp, &groups_.expert_dp, &groups_.tp_pp,
                        &groups_.pp_forward, &groups_.pp_backward, &groups_.embedding}) {
        if (*group) (*group)->set_listener(listener);
    }
}

Microbatch RankTrainer::microbatch(std::int64_t index, const SequenceSource& source) const {
    const std::int64_t batch = task_.layout.micro_batch, sequence = task_.batch.sequence;
    Microbatch result;
    result.context.batch = batch;
    result.context.sequence = sequence;
    result.context.first_sequence = (index * task_.layout.dp() + dp_rank_) * batch;
    result.context.dropout_seed = task_.dropout_seed + static_cast<std::uint64_t>(steps_);
    const Positions positions = zigzag_positions(sequence, batch, groups_.cp->size(), groups_.cp->rank());
    result.ids = device_.empty({positions.rows()}, Dtype::int32, MemoryCategory::activations, "token ids");
    result.targets = device_.empty({positions.rows()}, Dtype::int32, MemoryCategory::activations, "target ids");
    if (!device_.computes()) return result;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence + 1));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(positions.rows())), targets(ids.size());
    for (std::int64_t b = 0; b < batch; ++b) {
        source((steps_ - 1) * task_.batch.global_batch + result.context.first_sequence + b, tokens);
        for (std::int64_t place = 0; place * batch < positions.rows(); ++place) {
            const auto row = static_cast<std::size_t>(place * batch + b);
            const auto at = static_cast<std::size_t>(positions.at(place));
            ids[row] = tokens[at];
            targets[row] = tokens[at + 1];
        }
    }
    for (const auto id : ids) {
        if (id < 0 || id >= task_.model.vocab) {
            throw ConfigError(fmt::format("token id {} lies outside the vocabulary of {}; check that data and model belong together", id,
                                          task_.model.vocab));
        }
    }
    device_.write(result.ids, ids.data());
    device_.write(result.targets, targets.data());
    return result;
}

double RankTrainer::mean_loss(double sum) const {
    const Tensor total = device_.empty({1}, Dtype::fp64, MemoryCategory::communication, "loss");
    device_.write(total, &sum);
    groups_.dp_cp->all_reduce(total, Reduction::sum);
    groups_.pp_forward->all_reduce(total, Reduction::sum);  // 0 on all stages but the last
    device_.read(total, &sum);
    return sum / static_cast<double>(task_.batch.global_batch * task_.batch.sequence);
}

StepReport RankTrainer::step(const SequenceSource& source, double learning_rate) {
    ++steps_;
    for (auto& buffers : buffers_) buffers->zero_gradients();
    const std::int64_t rows = task_.layout.micro_batch * task_.batch.sequence / task_.layout.sizes.cp;
    const double d_loss = 1 / static_cast<double>(rows * task_.layout.num_microbatches);
    const double sum = executor_->run(
        schedule_, [&](std::int64_t index) { return microbatch(index, source); }, d_loss);
    StepReport report;
    report.loss = mean_loss(sum);
    optimizer_->reduce_gradients(1 / static_cast<double>(task_.layout.dp() * task_.layout.sizes.cp));
    report.result = optimizer_->step(learning_rate, updates_ + 1);
    if (report.result.updated) ++updates_;
    return report;
}

}  // namespace mgplan::model
