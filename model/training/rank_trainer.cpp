#include "model/training/rank_trainer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "model/ops/checks.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/errors.hpp"
#include "plan/graph_scopes.hpp"
#include "plan/rank_groups.hpp"

namespace mgplan::model {
namespace {

BufferOptions buffers_of(const TrainingTask& task, int pp_rank, int chunk) {
    BufferOptions options = buffer_options(task.layout, task.training, pp_rank, chunk);
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

/// Types of gradients and optimizer state that are not computed with, each in words.
void add_unsupported_types(const TrainingSpec& training, std::vector<std::string>& features) {
    if (training.precision == Precision::fp64) return;  // all state is fp64
    if (training.grad_dtype != Dtype::fp32 && training.grad_dtype != training.compute_dtype())
        features.push_back(fmt::format("grad_dtype = {} (use fp32, or {} as the parameters)", to_string(training.grad_dtype),
                                       to_string(training.compute_dtype())));
    if (training.compute_dtype() != Dtype::fp32 && training.main_param_dtype != Dtype::fp32)
        features.push_back(fmt::format("main_param_dtype = {} (use fp32)", to_string(training.main_param_dtype)));
    for (const auto& [name, dtype] :
         {std::pair("exp_avg_dtype", training.exp_avg_dtype), std::pair("exp_avg_sq_dtype", training.exp_avg_sq_dtype)}) {
        if (dtype != Dtype::fp32 && dtype != Dtype::bf16)
            features.push_back(fmt::format("{} = {} (use fp32 or bf16)", name, to_string(dtype)));
    }
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

/// What of the model's mixtures, or of mixtures under this layout, is not computed.
void add_mixture_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    const MoeSpec& moe = *model.moe;
    const ParallelSizes& sizes = layout.sizes;
    if (moe.dispatcher == TokenDispatcher::all_gather) features.emplace_back("the all-gather token dispatcher");
    if (moe.dispatcher == TokenDispatcher::deep_ep) features.emplace_back("the DeepEP token dispatcher");
    if (moe.dispatcher == TokenDispatcher::hybrid_ep) features.emplace_back("the HybridEP token dispatcher");
    // Megatron-LM arguments.py has this rule too: the ranks of a tp group would all route the same rows.
    if (sizes.tp > 1 && !layout.sequence_parallel)
        features.push_back(fmt::format("experts with tp = {} and without sequence parallelism", sizes.tp));
    if (moe.experts % sizes.ep != 0)
        features.push_back(fmt::format("experts = {} divided over ep = {}, which does not divide them", moe.experts, sizes.ep));
    if (moe.expert_ffn % sizes.etp != 0)
        features.push_back(fmt::format("expert ffn size = {} divided over etp = {}, which does not divide it", moe.expert_ffn, sizes.etp));
    if (moe.shared_ffn % sizes.tp != 0)
        features.push_back(
            fmt::format("shared expert ffn size = {} divided over tp = {}, which does not divide it", moe.shared_ffn, sizes.tp));
}

/// What of the model's layers changes values alone and is not computed.
void add_values_not_computed(std::vector<std::string>& features, const TrainingTask& task) {
    const ModelSpec& model = task.model;
    // Megatron-LM has it for sigmoid scores alone (transformer_config.py).
    if (model.moe && model.moe->expert_bias && model.moe->score == RouterScore::softmax)
        features.emplace_back("expert bias (balancing without an auxiliary loss) with softmax scores");
    if (model.moe && model.moe->groups > ExpertChoice::most_groups)
        features.push_back(fmt::format("routing limited to groups of experts with more than {} groups", ExpertChoice::most_groups));
    if ((model.position == PositionEmbedding::rope || model.mla) && !model.rotary_scaling.empty()) {
        const bool known = model.rotary_scaling == "linear" || model.rotary_scaling == "llama3" || model.rotary_scaling == "yarn";
        if (!known) features.push_back(fmt::format("rotary scaling '{}' (linear, llama3 and yarn are)", model.rotary_scaling));
        if (known && model.rotary_scaling_values.factor == 1)
            features.push_back(fmt::format("rotary scaling '{}' whose factor is not given", model.rotary_scaling));
    }
    if (model.attention_dropout > 0) features.emplace_back("dropout inside attention");
    if (task.training.precision == Precision::fp16) features.emplace_back("fp16 with loss scaling");
}

/// What CUDA graphs do not hold. Which scopes exclude each other, or the model, is said elsewhere (plan/graph_scopes.hpp).
void add_graph_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    const EnumSet<CudaGraphScope> scopes = layout.cuda_graphs;
    if (scopes.empty()) return;
    using Scope = CudaGraphScope;
    const std::string asked = fmt::format("--cuda-graphs = {}", fmt::join(names_in(scopes), ","));
    const std::string instead = fmt::format("use --cuda-graphs {} or none", fmt::join(names_in(usual_graph_scopes(model)), ","));
    if (scopes.contains(Scope::full_iteration))
        features.push_back(fmt::format(
            "{}: CUDA graphs hold parts of layers, no step, in which the host writes the tokens of each microbatch and reads the "
            "loss of each ({})",
            asked, instead));
    const bool padded = model.moe && model.moe->pad_to_capacity;
    if (model.moe && !padded && (scopes.contains(Scope::moe) || scopes.contains(Scope::layer)))
        features.push_back(fmt::format(
            "{}: CUDA graphs hold no experts that are not padded to capacity, whose products take row counts from the host ({})", asked,
            instead));
    if (model.moe && !padded && model.moe->capacity_factor > 0 && scopes.contains(Scope::moe_preprocess))
        features.push_back(
            fmt::format("{}: moe_preprocess in CUDA graphs with a capacity that is not padded to, of which the host reads how many copies "
                        "are left ({})",
                        asked, instead));
    if (model.mtp_layers > 0)
        features.push_back(fmt::format("{}: CUDA graphs with multi-token prediction (use --cuda-graphs none)", asked));
    if (layout.recompute == Recompute::full)
        features.push_back(
            fmt::format("{}: CUDA graphs of layers with full recompute, which runs across them (use --recompute selective or none, or "
                        "--cuda-graphs none)",
                        asked));
}

/// What multi-token prediction is not computed with; Megatron-LM too has it with rotary positions or none (arguments.py).
void add_mtp_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    if (model.position == PositionEmbedding::learned) features.emplace_back("multi-token prediction with learned positions");
    if (model.token_types > 0) features.emplace_back("multi-token prediction with token types");
    // Its stage would hold the tied table twice, as embedding and as output layer.
    if (model.tied_embeddings && layout.sizes.pp > 1)
        features.push_back(fmt::format("multi-token prediction with tied embeddings over pp = {}", layout.sizes.pp));
    for (int pp = 0; pp < layout.split->pp(); ++pp) {
        for (int vpp = 0; vpp < layout.split->vpp(); ++vpp) {
            const StageChunk& chunk = layout.split->chunk(pp, vpp);
            if (chunk.mtp > 0 && !chunk.loss) features.emplace_back("multi-token prediction on another stage than the loss");
        }
    }
}

/// Every token is an input, a target, or both; all ranks that share a sequence see all of it and refuse it alike.
void check_ids(std::span<const std::int32_t> tokens, std::int64_t vocab, std::int64_t sequence) {
    const auto outside = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t id) { return id < 0 || id >= vocab; });
    if (outside == tokens.end()) return;
    const auto place = outside - tokens.begin();
    const std::string_view use = place == 0 ? "an input" : place + 1 == std::ssize(tokens) ? "a target" : "an input and a target";
    throw ConfigError(
        fmt::format("token {} of sequence {}, {}, has the id {}, outside the vocabulary of {}; check that data and model "
                    "belong together",
                    place, sequence, use, *outside, vocab));
}

}  // namespace

std::vector<std::string> features_not_executed(const TrainingTask& task, bool computes) {
    std::vector<std::string> features;
    const ModelSpec& model = task.model;
    const Layout& layout = task.layout;
    if (computes) add_values_not_computed(features, task);
    if (model.moe) add_mixture_features(features, model, layout);
    if (model.mtp_layers > 0) add_mtp_features(features, model, layout);
    // A rank would hold a part of a head's weights, and all of the head.
    if (model.qk_norm_full_width && layout.sizes.tp > model.kv_heads)
        features.push_back(fmt::format("QK-norm over the whole width with tp = {} above {} kv heads", layout.sizes.tp, model.kv_heads));
    if (model.mla && model.mla->qk_rope_head_dim % 2 != 0)
        features.push_back(fmt::format("rotary embedding of {} values of a head, an odd number", model.mla->qk_rope_head_dim));
    if (task.training.precision == Precision::fp8) features.emplace_back("fp8");
    add_unsupported_types(task.training, features);
    if (task.training.attention == AttentionBackend::unfused) features.emplace_back("unfused attention");
    if (task.training.distributed_optimizer_instances > 1) features.emplace_back("several distributed-optimizer instances");
    if (model.heads % layout.sizes.tp != 0 || !packed_heads_divide(model, layout.sizes.tp))
        features.push_back(fmt::format("tp = {} over {} heads with {} kv heads", layout.sizes.tp, model.heads, model.kv_heads));
    if (layout.sizes.cp > 1 && layout.cp_comm_type == CpCommType::a2a_p2p) features.emplace_back("hierarchical context parallelism");
    add_graph_features(features, model, layout);
    const std::int64_t sequence = task.batch.sequence;
    if (layout.sizes.cp > 1 && sequence % (2 * layout.sizes.cp) != 0)
        features.push_back(fmt::format("a sequence of {} tokens, which 2·cp = {} does not divide", sequence, 2 * layout.sizes.cp));
    else if (layout.sequence_parallel && sequence / layout.sizes.cp % layout.sizes.tp != 0)
        features.push_back(fmt::format("sequence parallelism over {} tokens a rank, which tp = {} does not divide",
                                       sequence / layout.sizes.cp, layout.sizes.tp));
    if (model.position == PositionEmbedding::learned && sequence > model.max_positions)
        features.push_back(fmt::format("a sequence of {} tokens with {} learned positions", sequence, model.max_positions));
    return features;
}

void check_features(const TrainingTask& task, bool computes) {
    if (const auto features = features_not_executed(task, computes); !features.empty()) {
        throw ConfigError(fmt::format("{} cannot be trained by this version: {}; choose a model and layout without", task.model.name,
                                      fmt::join(features, ", ")));
    }
}

RankTrainer::RankTrainer(const TrainingTask& task, Device& device, const World& world, RoutingLog* routing_log)
    : task_(task), device_(device) {
    check_features(task, device.computes());
    if (task.gradients.average_in_collective && task.gradients.per_token_loss) {
        throw ConfigError(
            "average_in_collective = true and per_token_loss = true exclude each other: a mean over ranks is not one over tokens; switch "
            "one off");
    }
    if (world.size != task.layout.sizes.world) {
        throw ConfigError(fmt::format("the plan is for {} ranks, but {} were started; start {} or make a plan for {}",
                                      task.layout.sizes.world, world.size, task.layout.sizes.world, world.size));
    }
    const auto group_with = [&](std::string_view list) { return group_of(task.layout.sizes, list, world.rank); };
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
    groups_.tp_pp = join("tp-pp", "tp-pp");
    groups_.pp_forward = join("pp", "pp");
    groups_.pp_backward = join("pp", "pp-backward");
    if (task.model.moe && task.model.moe->expert_bias) groups_.tp_dp_cp = join("tp-dp-cp", "tp-dp-cp");
    if (task.model.moe) {
        groups_.tp_cp = join("tp-cp", "tp-cp");
        groups_.expert_model = join("expert:tp-ep-pp", "expert:tp-ep-pp");
    }
    const auto ends = group_with("embedding");
    // Every rank takes part in every join; those between the ends have a group of their own, in which nothing happens.
    const std::vector<std::int32_t> alone{world.rank};
    if ((task.model.tied_embeddings || task.model.mtp_layers > 0) && task.layout.sizes.pp > 1)
        groups_.embedding = world.join("embedding", ends.empty() ? alone : ends);

    context_.device = &device;
    context_.tp = groups_.tp.get();
    context_.cp = groups_.cp.get();
    context_.ep = groups_.ep.get();
    context_.etp = groups_.etp.get();
    context_.tp_cp = groups_.tp_cp.get();
    context_.balanced_routing = task.balanced_routing;
    context_.routing_log = routing_log;
    context_.mtp_losses = &mtp_losses_;
    mtp_losses_.assign(static_cast<std::size_t>(task.model.mtp_layers), 0);
    context_.sequence_parallel = task.layout.sequence_parallel && groups_.tp->size() > 1;
    context_.cp_comm_type = task.layout.cp_comm_type;
    context_.dtype = task.training.compute_dtype();
    context_.norm_epsilon = task.model.norm_epsilon;
    rank_ = world.rank;
    pp_rank_ = groups_.pp_forward->rank();
    place_ = {groups_.tp->rank(), groups_.tp->size(),  pp_rank_,           groups_.ep->rank(),
              groups_.ep->size(), groups_.etp->rank(), groups_.etp->size()};
    const auto dp_ranks = group_with("dp");
    dp_rank_ = std::find(dp_ranks.begin(), dp_ranks.end(), world.rank) - dp_ranks.begin();

    const auto parameters = stage_parameters(task.model, task.layout, pp_rank_);
    std::vector<ChunkBuffers*> buffers;
    std::vector<ModelChunk*> chunks;
    for (int c = 0; c < task.layout.vpp; ++c) {
        buffers_.push_back(
            std::make_unique<ChunkBuffers>(device, parameters[static_cast<std::size_t>(c)], context_.dtype, buffers_of(task, pp_rank_, c)));
        initialize_weights(task.model, buffers_.back()->parameters(), buffers_.back()->weights(), place_, task.initialization);
        chunks_.push_back(std::make_unique<ModelChunk>(task.model, task.layout.split->chunk(pp_rank_, c), buffers_.back()->weights(),
                                                       recompute_of(task.layout)));
        predicts_further_ = predicts_further_ || chunks_.back()->contents().mtp > 0;
        std::vector<int> units;
        for (const Parameter& parameter : buffers_.back()->parameters()) units.push_back(chunks_.back()->unit_of(parameter.name));
        traffic_.push_back(std::make_unique<BucketTraffic>(*buffers_.back(), units, chunks_.back()->units(), *groups_.dp_cp,
                                                           *groups_.expert_dp, traffic_options(task)));
        chunks_.back()->set_events(traffic_.back().get());
        chunks_.back()->set_number(c);
        buffers.push_back(buffers_.back().get());
        chunks.push_back(chunks_.back().get());
    }
    if (groups_.tp_dp_cp) {
        std::vector<std::int64_t> mixtures;
        for (const auto& chunk : chunks_) {
            const StageChunk& contents = chunk->contents();
            for (std::int64_t i = 0; i < contents.decoders + contents.mtp; ++i) {
                const bool further = i >= contents.decoders;
                const std::int64_t layer = further ? task.model.layers + i - contents.decoders : contents.first_decoder + i;
                if (task.model.is_moe_layer(further ? task.model.layers - 1 : layer)) mixtures.push_back(layer);
            }
        }
        expert_biases_ = std::make_unique<ExpertBiases>(device, mixtures, task.model.moe->experts, statistics_dtype(context_.dtype));
        context_.expert_biases = expert_biases_.get();
    }
    if (task.model.moe && task.model.moe->auxiliary_loss != 0)
        context_.auxiliary_loss = device.empty({1}, Dtype::fp64, MemoryCategory::workspace, "sum of auxiliary losses");
    if (!task.layout.cuda_graphs.empty()) {
        graphs_ = std::make_unique<LayerGraphs>(device, task.layout.cuda_graphs, task.model.hidden_dropout > 0);
        context_.graphs = graphs_.get();
    }
    OptimizerOptions options = task.optimizer;
    options.distributed = task.training.distributed_optimizer;
    const bool wide = task.training.precision == Precision::fp64;
    options.main_dtype = wide ? Dtype::fp64 : Dtype::fp32;
    options.exp_avg_dtype = wide ? Dtype::fp64 : task.training.exp_avg_dtype;
    options.exp_avg_sq_dtype = wide ? Dtype::fp64 : task.training.exp_avg_sq_dtype;
    optimizer_ = std::make_unique<Optimizer>(device, buffers,
                                             OptimizerGroups{.dp_cp = groups_.dp_cp.get(),
                                                             .expert_dp = groups_.expert_dp.get(),
                                                             .model = groups_.tp_pp.get(),
                                                             .tp = groups_.tp.get(),
                                                             .embedding = groups_.embedding.get(),
                                                             .expert_model = groups_.expert_model.get(),
                                                             .etp = groups_.etp.get()},
                                             options, context_.sequence_parallel);
    executor_ = std::make_unique<PipelineExecutor>(
        task.model, context_, chunks, PipelineChannels{groups_.pp_forward.get(), groups_.pp_backward.get()},
        send_depth(static_cast<int>(task.layout.sizes.pp), task.layout.vpp, task.layout.group_size, pp_rank_));
    ScheduleRequest request;
    request.pp = static_cast<int>(task.layout.sizes.pp);
    request.vpp = task.layout.vpp;
    request.microbatches = task.layout.num_microbatches;
    if (task.layout.vpp > 1) request.group_size = task.layout.group_size;
    schedule_ = Schedule(request).rank(pp_rank_);
}

void RankTrainer::set_listener(CollectiveListener* listener) {
    for (auto* group :
         {&groups_.tp, &groups_.cp, &groups_.ep, &groups_.etp, &groups_.dp_cp, &groups_.expert_dp, &groups_.tp_pp, &groups_.pp_forward,
          &groups_.pp_backward, &groups_.embedding, &groups_.tp_cp, &groups_.expert_model, &groups_.tp_dp_cp}) {
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
    result.context.step = steps_;
    result.context.index = index;
    const Positions positions = zigzag_positions(sequence, batch, groups_.cp->size(), groups_.cp->rank());
    result.ids = device_.empty({positions.rows()}, Dtype::int32, MemoryCategory::activations, "token ids");
    result.targets = device_.empty({positions.rows()}, Dtype::int32, MemoryCategory::activations, "target ids");
    // targets[0] are those of the next token.
    std::vector<Tensor> targets{result.targets};
    for (std::int64_t depth = 1; depth <= (predicts_further_ ? task_.model.mtp_layers : 0); ++depth)
        targets.push_back(device_.empty({positions.rows()}, Dtype::int32, MemoryCategory::activations, "further target ids"));
    result.context.mtp_targets.assign(targets.begin() + 1, targets.end());
    if (!device_.computes()) return result;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence + 1));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(positions.rows()));
    std::vector<std::vector<std::int32_t>> by_depth(targets.size(), ids);
    for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t number = (steps_ - 1) * task_.batch.global_batch + result.context.first_sequence + b;
        source(number, tokens);
        check_ids(tokens, task_.model.vocab, number);
        for (std::int64_t place = 0; place * batch < positions.rows(); ++place) {
            const auto row = static_cast<std::size_t>(place * batch + b);
            const auto at = static_cast<std::size_t>(positions.at(place));
            ids[row] = tokens[at];
            for (std::size_t depth = 0; depth < targets.size(); ++depth)
                by_depth[depth][row] = at + 1 + depth < tokens.size() ? tokens[at + 1 + depth] : -1;
        }
    }
    device_.write(result.ids, ids.data());
    for (std::size_t depth = 0; depth < targets.size(); ++depth) device_.write(targets[depth], by_depth[depth].data());
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

double RankTrainer::d_auxiliary(std::int64_t microbatches) const {
    // Each mixture's loss counts 1 / (dp · microbatches) in the end. Gradients are divided by dp·cp, or by the tokens of the
    // global batch (Megatron-LM schedules.py; router.py, attach_and_log_load_balancing_loss, for per-token loss).
    if (task_.gradients.per_token_loss) return static_cast<double>(task_.layout.micro_batch * task_.batch.sequence);
    return static_cast<double>(task_.layout.sizes.cp) / static_cast<double>(microbatches);
}

double RankTrainer::mean_auxiliary_loss() const {
    const ModelSpec& model = task_.model;
    if (!model.moe || model.moe->auxiliary_loss == 0) return 0;
    // Each rank of tp·cp has its rows' part, each stage its own mixtures, each rank of dp other microbatches.
    const Tensor total = device_.empty({1}, Dtype::fp64, MemoryCategory::communication, "auxiliary loss");
    double sum = 0;
    copy(context_.auxiliary_loss, total);
    groups_.dp_cp->all_reduce(total, Reduction::sum);
    groups_.tp_pp->all_reduce(total, Reduction::sum);
    device_.read(total, &sum);
    // Layers of multi-token prediction are of the last one's kind.
    const auto mixtures =
        std::count(model.moe_layers.begin(), model.moe_layers.end(), true) + (model.moe_layers.back() ? model.mtp_layers : 0);
    return sum / static_cast<double>(mixtures * task_.layout.num_microbatches * task_.layout.dp());
}

std::vector<double> RankTrainer::mean_mtp_losses() const {
    if (mtp_losses_.empty()) return {};
    const Tensor total = device_.empty({std::ssize(mtp_losses_)}, Dtype::fp64, MemoryCategory::communication, "mtp losses");
    std::vector<double> sums = mtp_losses_;
    device_.write(total, sums.data());
    groups_.dp_cp->all_reduce(total, Reduction::sum);
    groups_.pp_forward->all_reduce(total, Reduction::sum);  // 0 on all stages but the last
    device_.read(total, sums.data());
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::int64_t with_target = std::max<std::int64_t>(task_.batch.sequence - 1 - static_cast<std::int64_t>(i), 1);
        sums[i] /= static_cast<double>(task_.batch.global_batch * with_target);
    }
    return sums;
}

double RankTrainer::count_tokens(std::int64_t rows) const {
    auto tokens = static_cast<double>(rows);
    const Tensor total = device_.empty({1}, Dtype::fp64, MemoryCategory::communication, "number of tokens");
    device_.write(total, &tokens);
    groups_.dp_cp->all_reduce(total, Reduction::sum);
    device_.read(total, &tokens);
    return tokens;
}

void RankTrainer::stop_or_note(StepResult& result) const {
    result.updated = false;
    if (task_.gradients.on_non_finite == OnNonFinite::skip) return;
    throw RunError(
        fmt::format("rank {}, step {}: {}; lower the learning rate, look at the data, or skip such steps", rank_, steps_, result.problem));
}

const std::vector<std::unique_ptr<ChunkBuffers>>& RankTrainer::parameters() {
    for (auto& traffic : traffic_) traffic->finish_gathers();
    return buffers_;
}

std::vector<StatePiece> RankTrainer::state() const {
    std::vector<StatePiece> pieces;
    for (const Optimizer::Owned& owned : optimizer_->owned()) {
        const Parameter& parameter = *owned.description;
        // Who holds the same values: without shards all data-parallel ranks, and of what is not divided all ranks of tp (etp).
        const Communicator& data = parameter.expert ? *groups_.expert_dp : *groups_.dp_cp;
        const Communicator& divided = parameter.expert ? *groups_.etp : *groups_.tp;
        std::int64_t copy = 0, copies = 1;
        if (!task_.training.distributed_optimizer) {
            copy = data.rank();
            copies = data.size();
        }
        if (replicated_over_tp(parameter)) {
            copy = copy * divided.size() + divided.rank();
            copies *= divided.size();
        }
        const std::string name = whole_name(task_.model, parameter, place_);
        const ShardOfWhole shard = shard_of_whole(task_.model, parameter, place_);
        const ElementShare saves = parameter.embedding_copy ? ElementShare{} : share_of_copies(owned.main.elements(), copy, copies);
        pieces.push_back({name + "/main", shard, owned.in_parameter, owned.main, saves});
        pieces.push_back({name + "/exp_avg", shard, owned.in_parameter, owned.exp_avg, saves});
        pieces.push_back({name + "/exp_avg_sq", shard, owned.in_parameter, owned.exp_avg_sq, saves});
    }
    if (expert_biases_) {
        for (const std::int64_t layer : expert_biases_->layers()) {
            const Tensor& bias = expert_biases_->of(layer);
            ShardOfWhole whole;
            whole.rows = whole.whole_rows = bias.elements();
            pieces.push_back({fmt::format("decoder.layers.{}.mlp.router.expert_bias", layer), whole, 0, bias,
                              share_of_copies(bias.elements(), groups_.tp_dp_cp->rank(), groups_.tp_dp_cp->size())});
        }
    }
    return pieces;
}

void RankTrainer::go_on_from(const TrainingPosition& position) {
    MGPLAN_ASSERT(steps_ == 0 && position.updates <= position.steps, "a position to begin at");
    steps_ = position.steps;
    updates_ = position.updates;
    optimizer_->take_over();
    for (auto& traffic : traffic_) traffic->start_gathers();
}

void RankTrainer::meet_all() {
    // Whoever is past the second barrier knows that everybody of its tp·pp has passed the first, each with all of its dp·cp.
    groups_.dp_cp->barrier();
    groups_.tp_pp->barrier();
}

StepReport RankTrainer::step(const SequenceSource& source, double learning_rate) {
    return step(source, learning_rate, schedule_, task_.layout.num_microbatches);
}

StepReport RankTrainer::step(const SequenceSource& source, double learning_rate, const RankSchedule& schedule, std::int64_t microbatches) {
    ++steps_;
    if (graphs_) graphs_->begin_step();
    if (context_.auxiliary_loss.defined()) fill(context_.auxiliary_loss, 0);
    std::fill(mtp_losses_.begin(), mtp_losses_.end(), 0);
    for (auto& buffers : buffers_) buffers->zero_gradients();
    for (auto& traffic : traffic_) traffic->begin_step(microbatches);
    const std::int64_t rows = task_.layout.micro_batch * task_.batch.sequence / task_.layout.sizes.cp * microbatches;
    const double d_loss = task_.gradients.per_token_loss ? 1 : 1 / static_cast<double>(rows);
    const double sum = executor_->run(
        schedule,
        [&](std::int64_t index) {
            Microbatch next = microbatch(index, source);
            next.context.d_auxiliary = d_auxiliary(microbatches);
            return next;
        },
        d_loss);
    for (auto& traffic : traffic_) traffic->finish_reductions();
    optimizer_->reduce_replicated_gradients();
    if (expert_biases_) expert_biases_->update(*groups_.tp_dp_cp, task_.model.moe->expert_bias_update_rate);
    if (task_.gradients.per_token_loss) optimizer_->scale_gradients(1 / count_tokens(rows));
    StepReport report;
    report.loss = mean_loss(sum);
    report.auxiliary_loss = mean_auxiliary_loss();
    report.mtp_losses = mean_mtp_losses();
    if (!device_.computes() && assumed_ == StepEnd::loss_not_finite) report.loss = std::numeric_limits<double>::quiet_NaN();
    if (!std::isfinite(report.loss)) {
        report.end = StepEnd::loss_not_finite;
        // A rank of the last stage knows whether its own tokens are to blame.
        report.result.saw_it = !std::isfinite(sum);
        report.result.problem = fmt::format("the loss of {} is {}", report.result.saw_it ? "its own tokens" : "another rank's tokens",
                                            std::isnan(report.loss) ? "NaN" : "infinite");
        stop_or_note(report.result);
        return report;
    }
    report.result = optimizer_->step(learning_rate, updates_ + 1, assumed_ == StepEnd::updated);
    if (!report.result.updated) {
        report.end = StepEnd::gradient_not_finite;
        stop_or_note(report.result);
        return report;
    }
    ++updates_;
    for (auto& traffic : traffic_) traffic->start_gathers();
    return report;
}

}  // namespace mgplan::model
