#include "model/training/rank_trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "model/ops/checks.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/own_fp8.hpp"

namespace mgplan::model {
namespace {

/// GPUs whose tensor cores multiply fp8 with given scales (cuBLAS documentation, "cublasLtMatmul"; Transformer Engine,
/// pytorch/quantization.py, _compute_mxfp8_support).
struct Fp8Gpus {
    int first, last;  ///< compute capabilities, times 10
    std::string_view who, instead;
};

Fp8Gpus gpus_of(OwnFp8 scaling) {
    if (scaling == OwnFp8::blockwise) return {90, 90, "9.0 (Hopper), where products have scales for blocks of 128", "fp8-current or bf16"};
    if (scaling == OwnFp8::mxfp8) return {100, 119, "10.0 to 11.9 (Blackwell), where products have scales for blocks of 32", "bf16"};
    return {89, std::numeric_limits<int>::max(), "8.9 (Ada) or later", "bf16"};
}

/// Refuses a GPU without the products of the plan's precision.
void check_products(const TrainingTask& task, const KernelTraits& traits) {
    if (task.training.precision != Precision::fp8 || traits.kind != DeviceKind::cuda) return;
    const OwnFp8 own = own_fp8(task.model, task.training);
    const Fp8Gpus gpus = gpus_of(own);
    if ((own == OwnFp8::blockwise || own == OwnFp8::mxfp8) && !traits.block_products)
        throw ConfigError(
            fmt::format("precision = {} of the plan needs cuBLASLt of CUDA 12.9 or later, and the CUDA module was built with an older one; "
                        "build it with a newer CUDA, or make a plan with --precision {}",
                        precision_text(task.training), gpus.instead));
    if (traits.architecture >= gpus.first && traits.architecture <= gpus.last) return;
    throw ConfigError(
        fmt::format("precision = {} of the plan needs a GPU of compute capability {}, and this one has {}.{}; make a plan with "
                    "--precision {}",
                    precision_text(task.training), gpus.who, traits.architecture / 10, traits.architecture % 10, gpus.instead));
}

/// Places in a step's end of the sum of losses, that of auxiliary losses, the optimizer's outcome (2), and losses of multi-token
/// prediction.
constexpr std::int64_t kLoss = 0, kAuxiliaryLoss = 1, kSquares = 2, kMtpLosses = 4;

}  // namespace

RankTrainer::RankTrainer(const TrainingTask& task, Device& device, const World& world, RoutingLog* routing_log)
    : task_(task), device_(device) {
    check_features(task, device.computes());
    if (device.computes()) check_products(task, device.traits());
    if (task.gradients.average_in_collective && task.gradients.per_token_loss) {
        throw ConfigError(
            "average_in_collective = true and per_token_loss = true exclude each other: a mean over ranks is not one over tokens; switch "
            "one off");
    }
    if (world.size != task.layout.sizes.world) {
        throw ConfigError(fmt::format("the plan is for {} ranks, but {} were started; start {} or make a plan for {}",
                                      task.layout.sizes.world, world.size, task.layout.sizes.world, world.size));
    }
    join_groups(world);
    context_.routing_log = routing_log;
    set_context();
    rank_ = world.rank;
    pp_rank_ = groups_.pp_forward->rank();
    place_ = {groups_.tp->rank(), groups_.tp->size(),  pp_rank_,           groups_.ep->rank(),
              groups_.ep->size(), groups_.etp->rank(), groups_.etp->size()};
    const auto dp_ranks = group_of(task.layout.sizes, "dp", world.rank);
    TokenShare share{std::find(dp_ranks.begin(), dp_ranks.end(), world.rank) - dp_ranks.begin(), groups_.cp->size(), groups_.cp->rank()};
    make_chunks(share);
    // The allocations below keep this order, which a plan of the memory repeats.
    microbatches_.emplace(task, device, share);
    sums_losses_ = share.loss;
    context_.losses = device.empty({1 + task.model.mtp_layers}, Dtype::fp64, MemoryCategory::workspace, "sums of losses");
    if (task.model.moe && task.model.moe->expert_bias) make_expert_biases();
    if (own_fp8(task.model, task.training) == OwnFp8::delayed) make_fp8_delayed();
    if (stores_own_fp8(task.model, task.training)) make_fp8_parameters();
    if (task.model.moe && task.model.moe->auxiliary_loss != 0)
        context_.auxiliary_loss = device.empty({1}, Dtype::fp64, MemoryCategory::workspace, "sum of auxiliary losses");
    if (task.layout.cuda_graphs.contains(CudaGraphScope::full_iteration)) {
        iteration_graph_ = std::make_unique<IterationGraph>(device);
    } else if (!task.layout.cuda_graphs.empty()) {
        layer_graphs_ = std::make_unique<LayerGraphs>(device, task.layout.cuda_graphs, task.model.hidden_dropout > 0);
        context_.graphs = layer_graphs_.get();
    }
    make_optimizer();
    begin_fp8_parameters();
    make_executor();
    late_values_ = device.make_late_values();
}

void RankTrainer::set_context() {
    context_.device = &device_;
    context_.tp = groups_.tp.get();
    context_.cp = groups_.cp.get();
    context_.ep = groups_.ep.get();
    context_.etp = groups_.etp.get();
    context_.tp_cp = groups_.tp_cp.get();
    context_.balanced_routing = task_.balanced_routing;
    context_.sequence_parallel = task_.layout.sequence_parallel && groups_.tp->size() > 1;
    context_.cp_comm_type = task_.layout.cp_comm_type;
    context_.dtype = task_.training.compute_dtype();
    context_.norm_epsilon = task_.model.norm_epsilon;
    context_.offloaded = task_.training.offload.modules;
}

void RankTrainer::make_expert_biases() {
    const ModelSpec& model = task_.model;
    std::vector<std::int64_t> mixtures;
    for (const auto& chunk : chunks_) {
        const StageChunk& contents = chunk->contents();
        for (std::int64_t i = 0; i < contents.decoders + contents.mtp; ++i) {
            const bool further = i >= contents.decoders;
            const std::int64_t layer = further ? model.layers + i - contents.decoders : contents.first_decoder + i;
            if (model.is_moe_layer(layer)) mixtures.push_back(layer);
        }
    }
    expert_biases_ = std::make_unique<ExpertBiases>(device_, mixtures, model.moe->experts, statistics_dtype(context_.dtype));
    context_.expert_biases = expert_biases_.get();
}

void RankTrainer::make_optimizer() {
    std::vector<ChunkBuffers*> buffers;
    for (const auto& each : buffers_) buffers.push_back(each.get());
    OptimizerOptions options = task_.optimizer;
    options.distributed = task_.training.distributed_optimizer;
    const bool wide = task_.training.precision == Precision::fp64;
    options.main_dtype = wide ? Dtype::fp64 : Dtype::fp32;
    options.exp_avg_dtype = wide ? Dtype::fp64 : task_.training.exp_avg_dtype;
    options.exp_avg_sq_dtype = wide ? Dtype::fp64 : task_.training.exp_avg_sq_dtype;
    options.kind = task_.training.megatron.optimizer;
    const OffloadSpec& offload = task_.training.offload;
    options.on_host = offload.waiting();
    if (offload.states > 0) options.staged_elements = staged_elements(offload);
    options.muon.qkv_rows = qkv_rows(task_.model);
    optimizer_ = std::make_unique<Optimizer>(device_, buffers,
                                             OptimizerGroups{.dp_cp = &shards_of(false),
                                                             .expert_dp = &shards_of(true),
                                                             .model = groups_.tp_pp.get(),
                                                             .tp = groups_.tp.get(),
                                                             .embedding = groups_.embedding.get(),
                                                             .expert_model = groups_.expert_model.get(),
                                                             .etp = groups_.etp.get(),
                                                             .all_replicas = groups_.shard ? groups_.dp_cp.get() : nullptr,
                                                             .replicas = groups_.replicas ? groups_.replicas->size() : 1},
                                             options, context_.sequence_parallel);
}

void RankTrainer::make_executor() {
    std::vector<ModelChunk*> chunks;
    for (const auto& each : chunks_) chunks.push_back(each.get());
    const LayoutSchedule schedule(task_.layout);
    executor_ = std::make_unique<PipelineExecutor>(task_.model, context_, chunks,
                                                   PipelineChannels{groups_.pp_forward.get(), groups_.pp_backward.get()}, schedule);
    schedule_ = schedule.rank(pp_rank_);
}

std::optional<GraphTotals> RankTrainer::graph_totals() const {
    if (layer_graphs_) return layer_graphs_->totals();
    if (iteration_graph_) return iteration_graph_->totals();
    return std::nullopt;
}

double RankTrainer::loss_gradient(std::int64_t microbatches) const {
    if (task_.gradients.per_token_loss) return 1;
    const std::int64_t rows = task_.layout.micro_batch * task_.batch.sequence / task_.layout.sizes.cp * microbatches;
    return 1 / static_cast<double>(rows);
}

double RankTrainer::d_auxiliary(std::int64_t microbatches) const {
    // Each MoE layer's loss counts 1 / (dp · microbatches) in the end. Gradients are divided by dp·cp, or by the tokens of the
    // global batch (Megatron-LM schedules.py; router.py, attach_and_log_load_balancing_loss, for per-token loss).
    if (task_.gradients.per_token_loss) return static_cast<double>(task_.layout.micro_batch * task_.batch.sequence);
    return static_cast<double>(task_.layout.sizes.cp) / static_cast<double>(microbatches);
}

void RankTrainer::sum_losses(const Tensor& ended) const {
    const auto sum_up = [&](const Tensor& own, const Tensor& total, Communicator& rest) {
        copy(own, total);
        groups_.dp_cp->all_reduce(total, Reduction::sum);
        rest.all_reduce(total, Reduction::sum);
    };
    // 0 on all stages but the last.
    sum_up(context_.losses.slice(0, 1), ended.slice(kLoss, kLoss + 1), *groups_.pp_forward);
    // Each rank of tp·cp has its rows' part, each stage its own MoE layers, each rank of dp other microbatches.
    if (context_.auxiliary_loss.defined()) sum_up(context_.auxiliary_loss, ended.slice(kAuxiliaryLoss, kAuxiliaryLoss + 1), *groups_.tp_pp);
    if (const std::int64_t depths = task_.model.mtp_layers; depths > 0)
        sum_up(context_.losses.slice(1, 1 + depths), ended.slice(kMtpLosses, kMtpLosses + depths), *groups_.pp_forward);
}

StepReport RankTrainer::report_of(std::span<const double> values) const {
    const ModelSpec& model = task_.model;
    const std::size_t own_losses = kMtpLosses + static_cast<std::size_t>(model.mtp_layers);
    StepReport report;
    report.loss = values[kLoss] / static_cast<double>(task_.batch.global_batch * task_.batch.sequence);
    if (context_.auxiliary_loss.defined()) {
        const auto mixtures =
            std::count(model.moe_layers.begin(), model.moe_layers.end(), true) + (model.is_moe_layer(model.layers) ? model.mtp_layers : 0);
        report.auxiliary_loss = values[kAuxiliaryLoss] / static_cast<double>(mixtures * task_.layout.num_microbatches * task_.layout.dp());
    }
    for (std::int64_t i = 0; i < model.mtp_layers; ++i) {
        const std::int64_t with_target = std::max<std::int64_t>(task_.batch.sequence - 1 - i, 1);
        report.mtp_losses.push_back(values[static_cast<std::size_t>(kMtpLosses + i)] /
                                    static_cast<double>(task_.batch.global_batch * with_target));
    }
    report.result = optimizer_->result({values[kSquares], values[kSquares + 1]}, values.subspan(own_losses + 1));
    if (!device_.computes()) {
        report.result.updated = assumed_ == StepEnd::updated;
        if (assumed_ == StepEnd::loss_not_finite) report.loss = std::numeric_limits<double>::quiet_NaN();
    }
    if (!std::isfinite(report.loss)) {
        report.end = StepEnd::loss_not_finite;
        // A rank of the last stage has the sum of its own tokens' losses.
        const double own = values[own_losses];
        report.result = {};
        report.result.updated = false;
        report.result.saw_it = !std::isfinite(own);
        report.result.problem = fmt::format("the loss of {} is {}", report.result.saw_it ? "its own tokens" : "another rank's tokens",
                                            std::isnan(report.loss) ? "NaN" : "infinite");
    } else if (!report.result.updated) {
        report.end = StepEnd::gradient_not_finite;
    }
    return report;
}

double RankTrainer::count_tokens(std::int64_t rows) const {
    auto tokens = static_cast<double>(rows);
    const Tensor total = device_.empty({1}, Dtype::fp64, MemoryCategory::communication, "number of tokens");
    device_.write(total, &tokens);
    groups_.dp_cp->all_reduce(total, Reduction::sum);
    device_.read(total, &tokens);
    return tokens;
}

const std::vector<std::unique_ptr<ChunkBuffers>>& RankTrainer::parameters() {
    for (auto& traffic : traffic_) {
        if (gathers_are_due_) traffic->start_gathers();
        traffic->finish_gathers();
    }
    gathers_are_due_ = false;
    return buffers_;
}

std::vector<StatePiece> RankTrainer::state() const {
    std::vector<StatePiece> pieces;
    for (const Optimizer::Owned& owned : optimizer_->owned()) {
        const Parameter& parameter = *owned.description;
        // Ranks with the same values: without shards all data-parallel ranks, with replicas one of each, and of undivided parameters all
        // ranks of tp (etp).
        const Communicator& data = parameter.expert_group ? *groups_.expert_dp : *groups_.dp_cp;
        const Communicator& divided = parameter.expert ? *groups_.etp : *groups_.tp;
        std::int64_t copy = 0, copies = 1;
        if (!task_.training.distributed_optimizer) {
            copy = data.rank();
            copies = data.size();
        } else if (const auto& replicas = parameter.expert_group ? groups_.expert_replicas : groups_.replicas) {
            copy = replicas->rank();
            copies = replicas->size();
        }
        if (replicated_over_tp(parameter)) {
            copy = copy * divided.size() + divided.rank();
            copies *= divided.size();
        }
        const std::string name = whole_name(task_.model, parameter, place_);
        const ShardOfWhole shard = shard_of_whole(task_.model, parameter, place_);
        const ElementShare saves = parameter.embedding_copy ? ElementShare{} : share_of_copies(owned.main.elements(), copy, copies);
        pieces.push_back({StateKind::parameter, name + "/main", shard, owned.in_parameter, owned.main, saves});
        if (!owned.exp_avg_sq.defined()) {
            pieces.push_back({StateKind::moment, name + "/momentum", shard, owned.in_parameter, owned.exp_avg, saves});
            continue;
        }
        pieces.push_back({StateKind::moment, name + "/exp_avg", shard, owned.in_parameter, owned.exp_avg, saves});
        pieces.push_back({StateKind::moment, name + "/exp_avg_sq", shard, owned.in_parameter, owned.exp_avg_sq, saves});
    }
    if (expert_biases_) {
        for (const std::int64_t layer : expert_biases_->layers()) {
            const Tensor& bias = expert_biases_->of(layer);
            ShardOfWhole whole;
            whole.rows = whole.whole_rows = bias.elements();
            pieces.push_back({StateKind::parameter, fmt::format("decoder.layers.{}.mlp.router.expert_bias", layer), whole, 0, bias,
                              share_of_copies(bias.elements(), groups_.tp_dp_cp->rank(), groups_.tp_dp_cp->size())});
        }
    }
    add_fp8_histories(pieces);
    return pieces;
}

TrainingPosition RankTrainer::position() const {
    MGPLAN_ASSERT(!begun_ && unreported_ == 0, "between steps, all of them reported");
    return {steps_, updates_};
}

void RankTrainer::go_on_from(const TrainingPosition& position) {
    MGPLAN_ASSERT(steps_ == 0 && position.updates <= position.steps, "a position to begin at");
    steps_ = position.steps;
    updates_ = position.updates;
    optimizer_->take_over();
    for (FollowedLayers& layers : fp8_delayed_) layers.scaling->go_on();
    cast_fp8_parameters();
    gather_parameters();
}

void RankTrainer::meet_all() {
    // After the second barrier, every rank of this one's tp·pp has passed the first, each with all of its dp·cp.
    groups_.dp_cp->barrier();
    groups_.tp_pp->barrier();
}

void RankTrainer::gather_parameters() {
    // Gathers started outside a graph cannot be waited for inside: the next iteration's graph begins with its gathers.
    gathers_are_due_ = iteration_graph_ != nullptr;
    if (gathers_are_due_) return;
    for (auto& traffic : traffic_) traffic->start_gathers();
}

void RankTrainer::begin_gradients(std::int64_t microbatches) {
    if (iteration_graph_) return;  // run_passes() does
    // A layer's graph serves every microbatch of its slot, so it adds for all of them. With a single microbatch the eager step adds to
    // zeros too, so that a capture runs nothing that no eager step ran.
    const bool adds = layer_graphs_ && (layer_graphs_->replays() || microbatches == 1);
    for (auto& buffers : buffers_) adds ? buffers->zero_gradients() : buffers->begin_gradients();
}

void RankTrainer::run_passes(const SequenceSource& source, const RankSchedule& schedule, std::int64_t microbatches, double d_loss) {
    const auto run = [&](const std::function<Microbatch(std::int64_t)>& make) {
        executor_->run(
            schedule,
            [&](std::int64_t index) {
                Microbatch next = make(index);
                next.context.d_auxiliary = d_auxiliary(microbatches);
                return next;
            },
            d_loss);
        for (auto& buffers : buffers_) buffers->finish_gradients();
        for (auto& traffic : traffic_) traffic->finish_reductions();
    };
    if (!iteration_graph_) return run([&](std::int64_t index) { return microbatches_->make(steps_, index, source); });
    const std::vector<Microbatch> all = microbatches_->make_all(steps_, microbatches, source);
    const auto passes = [&] {
        for (auto& traffic : traffic_) traffic->start_gathers();
        // Inside the graph, because its passes have one order: the product that wrote first when it was captured does so in each replay.
        for (auto& buffers : buffers_) buffers->begin_gradients();
        run([&](std::int64_t index) { return all.at(static_cast<std::size_t>(index)); });
    };
    if (&schedule == &schedule_)
        iteration_graph_->run(inputs_of(all), sums_losses_ ? context_.losses : Tensor(), passes);
    else
        passes();
    gathers_are_due_ = false;
}

StepReport RankTrainer::step(const SequenceSource& source, double learning_rate) {
    return step(source, learning_rate, schedule_, task_.layout.num_microbatches);
}

StepReport RankTrainer::step(const SequenceSource& source, double learning_rate, const RankSchedule& schedule, std::int64_t microbatches) {
    begin_step(source, schedule, microbatches);
    end_step(learning_rate);
    return report();
}

void RankTrainer::begin_step(const SequenceSource& source) {
    begin_step(source, schedule_, task_.layout.num_microbatches);
}

void RankTrainer::begin_step(const SequenceSource& source, const RankSchedule& schedule, std::int64_t microbatches) {
    MGPLAN_ASSERT(!begun_, "a step ends before the next begins");
    begun_ = true;
    ++steps_;
    if (layer_graphs_) layer_graphs_->begin_step();
    if (context_.auxiliary_loss.defined()) fill(context_.auxiliary_loss, 0);
    fill(context_.losses, 0);
    for (auto& buffers : buffers_) buffers->forget_fp8_copies();
    begin_gradients(microbatches);
    for (auto& traffic : traffic_) traffic->begin_step(microbatches);
    run_passes(source, schedule, microbatches, loss_gradient(microbatches));
    update_fp8_scales();
    optimizer_->reduce_replicated_gradients();
    if (expert_biases_) expert_biases_->update(*groups_.tp_dp_cp, task_.model.moe->expert_bias_update_rate);
    const std::int64_t rows = task_.layout.micro_batch * task_.batch.sequence / task_.layout.sizes.cp * microbatches;
    if (task_.gradients.per_token_loss) optimizer_->scale_gradients(1 / count_tokens(rows));
}

void RankTrainer::end_step(double learning_rate) {
    MGPLAN_ASSERT(begun_ && unreported_ == 0, "a step ends that began, behind a step that was reported");
    begun_ = false;
    // Nothing but Muon waits for the device.
    const Tensor ended =
        device_.empty({kMtpLosses + task_.model.mtp_layers}, Dtype::fp64, MemoryCategory::communication, "end of the step");
    sum_losses(ended);
    optimizer_->step(learning_rate, updates_ + 1, ended.slice(kLoss, kLoss + 1), ended.slice(kSquares, kSquares + 2),
                     assumed_ == StepEnd::updated);
    cast_fp8_parameters();
    gather_parameters();
    // Read when the next step's passes are issued, which overwrite the losses.
    const Tensor squares = optimizer_->take_squares();
    const std::array sent{ended, context_.losses.slice(0, 1), squares};
    late_values_->send(sent);
    unreported_ = steps_;
}

StepReport RankTrainer::report() {
    MGPLAN_ASSERT(unreported_ != 0, "a step is reported once, behind its end");
    const std::int64_t step = std::exchange(unreported_, 0);
    StepReport report = report_of(late_values_->receive());
    if (report.result.updated)
        ++updates_;
    else if (task_.gradients.on_non_finite != OnNonFinite::skip)
        throw RunError(fmt::format("rank {}, step {}: {}; lower the learning rate, look at the data, or skip such steps", rank_, step,
                                   report.result.problem));
    return report;
}

}  // namespace mgplan::model
