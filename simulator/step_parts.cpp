#include "simulator/step_parts.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/optimizer/buffer_layout.hpp"
#include "plan/training/data_sharding.hpp"
#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "simulator/memory/cuda_graphs.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/price/exchange_schedule.hpp"
#include "simulator/sharded_data.hpp"

namespace mgplan::simulator {
namespace {

/// Seconds of work that takes the device `device` seconds and the host `issue` seconds to launch. If both are similar, the device waits
/// after short kernels and the host after long ones, so a norm of order four replaces the maximum: vTrain's runs at hidden 1024 change from
/// one limit to the other between 2 and 8 sequences a microbatch.
double beside_host(double device, double issue) {
    const double larger = std::max(device, issue), smaller = std::min(device, issue);
    if (smaller <= 0) return larger;
    const double ratio = smaller / larger;
    return larger * std::sqrt(std::sqrt(1 + ratio * ratio * ratio * ratio));
}

/// Percent by which beside_host() grows if the host gets one percent slower.
double host_share(double device, double issue) {
    if (issue <= 0) return 0;
    const double ratio = device / issue;
    return 1 / (1 + ratio * ratio * ratio * ratio);
}

/// True if the host runs ahead of the device across passes, so that slow launches hide behind long kernels. Megatron-LM waits for the
/// device after each exchange between stages (p2p_communication.py, batch_p2p_sync), and in MoE layers for the token counts, unless all
/// experts are padded to their capacity (moe/token_dispatcher.py, drop_and_pad).
bool host_runs_ahead(const StepInputs& in) {
    return in.layout.sizes.pp == 1 && (!in.workload.model.moe || in.workload.model.moe->pad_to_capacity);
}

/// Launches of `kernels` kernels of which a graph holds `replayed`; the graph itself is one more launch.
int launches(int kernels, int replayed) {
    return replayed > 0 ? std::max(0, kernels - replayed) + 1 : kernels;
}

}  // namespace

/// Time of one piece in a pass.
struct PassTimes::PieceTime {
    double device, issue;  ///< forward and backward together
    double forward, backward;
    double weight, of_backward;  ///< gradients of weights: `weight` of the `of_backward` device seconds
    double waiting, host;
    double again, again_flops;
    GroupSeconds ahead, back, again_exposed;
    ByModule<ModuleWork> modules;  ///< forward and backward together

    /// `hidden`: as in LayerCosts::Layer. `recomputed`: the whole forward runs again in the backward.
    PieceTime(const PieceCost& piece, const PassPair& hidden, bool recomputed, const StepInputs& in, KernelCounts replayed) {
        const HostSeconds host_of = host_seconds(in.calibration, in.layout.engine);
        // Average over the microbatches: exchanges that passes without a paired microbatch expose.
        const double alone =
            unpaired_share(in.layout.sizes.pp, in.layout.vpp, in.layout.num_microbatches, in.layout.vpp > 1 ? in.layout.group_size : 1);
        ahead = piece.exposed_forward;
        back = piece.exposed_backward;
        ahead.ep += alone * hidden.forward;
        back.ep += alone * hidden.backward;
        again = recomputed ? piece.forward : piece.recompute;
        again_flops = recomputed ? piece.forward_flops : piece.recompute_flops;
        // A recomputed forward is not part of the schedule that hides exchanges (recompute_model_chunk_schedule_plan).
        again_exposed = recomputed ? piece.exposed_forward : piece.exposed_recompute;
        if (recomputed) again_exposed.ep += hidden.forward;
        const double device_forward = piece.forward + ahead.total();
        of_backward = piece.backward + back.total() + again + again_exposed.total();
        // The host launches kernels one by one; the device waits if kernels are shorter than that.
        const double kernel = in.graphed ? 0 : host_runs_ahead(in) ? host_of.kernel : host_of.waiting;
        const double issue_forward = launches(piece.kernels_forward, replayed.forward) * kernel;
        const double issue_backward =
            (launches(piece.kernels_backward, replayed.backward) + (recomputed ? piece.kernels_forward : 0)) * kernel +
            (recomputed ? host_of.checkpoint : 0);
        forward = beside_host(device_forward, issue_forward);
        backward = beside_host(of_backward, issue_backward);
        device = device_forward + of_backward;
        issue = issue_forward + issue_backward;
        weight = piece.weight_gradient;
        waiting = forward - device_forward + backward - of_backward;
        host = forward * host_share(device_forward, issue_forward) + backward * host_share(of_backward, issue_backward);
        modules = works_of(piece.modules, recomputed);
    }

    /// `recomputed` as in the constructor.
    static ByModule<ModuleWork> works_of(const ByModule<PassWork>& passes, bool recomputed) {
        ByModule<ModuleWork> works;
        const auto add = [](double& own, double others) { own += others; };
        for (const PassWork& work : passes.works) {
            ModuleWork& sum = works.works.emplace_back(work.forward);
            sum.each(work.backward, add);
            sum.each(recomputed ? work.forward : work.recompute, add);
        }
        return works;
    }

    void add_to(StageTime& time, double count) const {
        time.device += count * device;
        time.issue += count * issue;
        time.forward += count * forward;
        time.backward += count * backward;
        // Waits for the host are spread over both parts of a split backward.
        if (of_backward > 0) time.weight += count * backward * weight / of_backward;
        time.waiting += count * waiting;
        time.host += count * host;
        time.recompute += count * again;
        time.recompute_flops += count * again_flops;
        for (const GroupSeconds& part : {ahead, back, again_exposed}) {
            time.exposed += {count * part.tp, count * part.cp, count * part.ep};
        }
        time.exposed_forward += {count * ahead.tp, count * ahead.cp, count * ahead.ep};
        time.modules.add(modules, count);
    }
};

namespace {

/// Share of a stage's layers that full recompute repeats.
double recomputed_share(const StepInputs& in, int rank) {
    const Layout& layout = in.layout;
    if (layout.recompute != Recompute::full) return 0;
    const ChunkCensus& stage = in.split.stages[static_cast<std::size_t>(rank)];
    if (layout.recompute_method != RecomputeMethod::block || stage.layers() == 0) return 1;
    std::int64_t recomputed = 0;
    for (int c = 0; c < layout.vpp; ++c) {
        const auto index = static_cast<std::size_t>(rank) * static_cast<std::size_t>(layout.vpp) + static_cast<std::size_t>(c);
        recomputed += std::min(layout.recompute_num_layers, in.split.chunks[index].layers());
    }
    return static_cast<double>(recomputed) / static_cast<double>(stage.layers());
}

/// Takes the maximum of host and device once for forward and backward, instead of once for each piece.
void race_once(StageTime& time) {
    if (time.total() <= 0) return;
    const double total = beside_host(time.device, time.issue), factor = total / time.total();
    for (double* part : {&time.forward, &time.backward, &time.weight, &time.expert_layers}) *part *= factor;
    time.waiting = total - time.device;
    time.host = total * host_share(time.device, time.issue);
}

/// Kernels that the CUDA graph of a layer replays, so that the host does not launch them one by one.
KernelCounts replayed_kernels(const StepInputs& in, const LayerCosts::Layer& layer, std::size_t kind) {
    if (in.layout.cuda_graphs.empty()) return {};
    return kernels_in(captured_halves(in.layout.cuda_graphs, in.kinds, in.kinds.kinds[kind]), layer);
}

}  // namespace

PassTimes::PassTimes(const StepInputs& in) : in_(in) {
    pieces_.resize(2 * (in.layers.layers.size() + kEnds));
}
PassTimes::~PassTimes() = default;

void PassTimes::add(StageTime& time, std::size_t place, double count, bool recomputed) {
    if (count <= 0) return;
    std::optional<PieceTime>& known = pieces_[2 * place + (recomputed ? 1 : 0)];
    if (!known) {
        const LayerCosts& costs = in_.layers;
        const std::size_t kinds = costs.layers.size();
        if (place <= kinds + kPrediction) {
            const LayerCosts::Layer& layer = place < kinds ? costs.layers[place] : costs.mtp;
            KernelCounts replayed;
            if (place < kinds || in_.kinds.prediction_in_graphs)
                replayed = replayed_kernels(in_, layer, place < kinds ? place : in_.kinds.of_prediction);
            known.emplace(layer.cost, layer.hidden, recomputed, in_, replayed);
        } else {
            known.emplace(place == kinds + kEmbedding ? costs.embedding : costs.head, PassPair{}, recomputed, in_, KernelCounts{});
        }
    }
    known->add_to(time, count);
}

StageTime PassTimes::of(const ChunkCensus& held, double share) {
    StageTime time;
    for (std::size_t kind = 0; kind < held.kinds.size(); ++kind) {
        const double count = held.kinds[kind];
        if (count == 0) continue;
        const double before = time.total();
        add(time, kind, count * share, true);
        add(time, kind, count * (1 - share), false);
        if (in_.layers.layers[kind].mixture) time.expert_layers += time.total() - before;
    }
    const std::size_t kinds = in_.layers.layers.size();
    add(time, kinds + kPrediction, static_cast<double>(held.mtp), in_.layout.recompute == Recompute::full);
    // Each MTP layer looks its tokens up again on its own rank and has its own pass through the shared head.
    add(time, kinds + kEmbedding, static_cast<double>(held.mtp + (held.embedding ? 1 : 0)), false);
    if (held.loss) add(time, kinds + kHead, static_cast<double>(1 + in_.workload.model.mtp_layers), false);
    if (host_runs_ahead(in_)) race_once(time);
    return time;
}

namespace {

/// Copies to and from the host run in parallel with the passes; if they take longer, the device waits.
void add_offloading(const StepInputs& in, const ChunkCensus& stage, StageTime& time) {
    double bytes = in.offloaded_bytes;
    for (std::size_t kind = 0; kind < std::min(stage.kinds.size(), in.offloaded_by_kind.size()); ++kind)  // a chunk may have no layers
        bytes += static_cast<double>(stage.kinds[kind]) * static_cast<double>(in.offloaded_by_kind[kind]);
    if (bytes <= 0) return;
    const double copy = bytes / in.workload.cluster.host_bandwidth();
    const double forward = std::max(0.0, copy - time.forward), backward = std::max(0.0, copy - time.backward);
    time.forward += forward;
    time.backward += backward;
    time.waiting += forward + backward;
}

}  // namespace

StageTime PassTimes::stage(int rank) {
    const ChunkCensus& stage = in_.split.stages[static_cast<std::size_t>(rank)];
    StageTime time = of(stage, recomputed_share(in_, rank));
    add_sharded_traffic(in_, stage, time);
    add_offloading(in_, stage, time);
    return time;
}

StageTime PassTimes::chunk(const ChunkCensus& chunk) {
    double share = 0;
    if (in_.layout.recompute == Recompute::full && chunk.layers() > 0) {
        share = in_.layout.recompute_method == RecomputeMethod::block
                    ? static_cast<double>(std::min(in_.layout.recompute_num_layers, chunk.layers())) / static_cast<double>(chunk.layers())
                    : 1;
    }
    StageTime time = of(chunk, share);
    add_sharded_traffic(in_, chunk, time);
    add_offloading(in_, chunk, time);
    return time;
}

StageTime chunk_time(const StepInputs& in, const ChunkCensus& chunk) {
    return PassTimes(in).chunk(chunk);
}

namespace {

/// Elements of a bucket: 40 M, or 1 M per data-parallel rank if that is more (Megatron-core, distributed_data_parallel.py), unless set by
/// --ddp-bucket-size or --ddp-num-buckets.
double bucket_elements(const StepInputs& in, std::int64_t parameters) {
    std::optional<std::int64_t> size, number;
    if (in.layout.engine == Engine::megatron) {
        const MegatronSwitches& megatron = in.workload.training.megatron;
        if (megatron.bucket_size > 0) size = megatron.bucket_size;
        if (megatron.num_buckets > 0) number = megatron.num_buckets;
    }
    return static_cast<double>(*model::resolve_bucket_size(size, number, parameters, in.paths.dp_cp.ranks, true));
}

}  // namespace

DataParallelSeconds data_parallel_seconds(const StepInputs& in, const ParameterCount& count) {
    const TrainingSpec& training = in.workload.training;
    if (training.megatron.fully_sharded.active()) return sharded_data_seconds(in, count);
    const double grad = static_cast<double>(bytes_of(training.grad_dtype));
    // mxfp8 parameters in the gradients' buffer are gathered in bf16 (param_and_grad_buffer.py, shared_buffer).
    const bool one_byte = training.fp8_parameters && !(in.layout.engine == Engine::megatron && training.megatron.reuse_grad_buffer &&
                                                       training.format() == QuantisedFormat::mxfp8);
    // Two nvfp4 values share a byte (_compute_nvfp4_packed_layout there).
    const double quantised = training.format() == QuantisedFormat::nvfp4 ? 0.5 : 1;
    const double weight = one_byte ? quantised : static_cast<double>(bytes_of(training.compute_dtype()));
    const ParameterCount held = held_count(in, count);
    const bool parts = held.trained() != count.trained();  // true if other ranks hold the same parts
    const GroupPath &dp = parts ? in.paths.dp_outer : in.paths.dp_cp, &edp = parts ? in.paths.edp_outer : in.paths.edp;
    const ParameterCount reduced = by_reducing_ranks(in, held);
    const double dense = static_cast<double>(reduced.dense), expert = static_cast<double>(reduced.expert);
    DataParallelSeconds seconds;
    const bool scatters = in.layout.engine == Engine::mgplan ? training.distributed_optimizer : training.scatters_gradients();
    const auto reduce_seconds = scatters ? reduce_scatter_seconds : all_reduce_seconds;
    for (const auto& [elements, path] : {std::pair(dense, &dp), std::pair(expert, &edp)}) {
        if (elements == 0) continue;  // an empty chunk sends nothing
        seconds.reduce += reduce_seconds(elements * grad, *path, in.calibration);
        if (training.distributed_optimizer) seconds.gather += all_gather_seconds(elements * weight, *path, in.calibration);
    }
    seconds.buckets = std::max(1.0, (dense + expert) / bucket_elements(in, count.trained()));
    return seconds;
}

namespace {

/// Seconds to move the offloaded optimizer state in one direction. `elements`: of the rank's shards.
double one_way_seconds(const StepInputs& in, double elements) {
    const OffloadSpec& offload = in.workload.training.offload;
    BufferElements one{.parameters = 1, .buffer = 1};
    // Nearly all parameters that Muon updates are matrices.
    if (in.workload.training.megatron.optimizer == OptimizerKind::muon) one.matrices = one.largest_matrix = 1;
    const ModelStateBytes each = model_state_bytes(one, in.layout.engine, in.workload.training);
    return static_cast<double>(each.optimizer + each.host) * elements * offload.waiting() / in.workload.cluster.host_bandwidth();
}

/// Megatron-LM's --offload-optimizer-states: the state leaves during the passes of the next iteration and returns from the start of
/// finalize_model_grads on (branch dev, training.py, train_step), which runs the reductions that no backward has hidden: the last bucket,
/// if reductions overlap.
double returning_state_seconds(const StepInputs& in, const ParameterCount& count, double elements, double passes) {
    const double one_way = one_way_seconds(in, elements);
    const DataParallelSeconds work = data_parallel_seconds(in, count);
    const double finalising = in.workload.training.overlap_grad_reduce ? work.reduce / work.buckets : work.reduce;
    return std::max(0.0, one_way - passes) + std::max(0.0, one_way - finalising);
}

/// Own engine: offloaded state moves to the device and back in slices, one after the other. Megatron-LM: fp32 gradients leave and fp32
/// parameters return, at the same time with --overlap-cpu-optimizer-d2h-h2d, around the update on the host, which PyTorch's Adam makes of
/// parameters, gradients and moments in fp32 (hybrid_optimizer.py).
double offloaded_state_seconds(const StepInputs& in, const ParameterCount& count, double elements, double passes) {
    const TrainingSpec& training = in.workload.training;
    if (training.offload.waiting() == 0) return 0;
    if (in.layout.engine == Engine::megatron && training.offload.states > 0) return returning_state_seconds(in, count, elements, passes);
    if (in.layout.engine == Engine::megatron) {
        const double away = elements * training.offload.optimizer, one_way = 4 * away / in.workload.cluster.host_bandwidth();
        return away / in.calibration.host_updates + (training.megatron.overlap_host_update ? one_way : 2 * one_way);
    }
    return 2 * one_way_seconds(in, elements);
}

/// Number of gradients that a rank zeroes in a step; `owned`: those of its shards. In mgplan the first GEMM of a step overwrites gradients
/// that only GEMMs write (model/optimizer/chunk_buffers.hpp). Gradients accumulated over rows (experts, embedding tables) are zeroed, and
/// all of them if graphs of layers accumulate in every replay; biases and norms are too few to count.
double zeroed_gradients(const StepInputs& in, const ParameterCount& count, const ChunkCensus& stage, double owned) {
    if (in.workload.training.megatron.fully_sharded.shards_gradients()) return owned;
    const ParameterCount held = held_count(in, count);
    const bool adds = !in.layout.cuda_graphs.empty() && !in.layout.cuda_graphs.contains(CudaGraphScope::full_iteration);
    if (in.layout.engine == Engine::megatron || adds) return static_cast<double>(held.total());
    const bool tables = (stage.embedding || stage.mtp > 0) && in.pieces != nullptr;
    return static_cast<double>(held.expert + (tables ? in.pieces->embedding.total() : 0));
}

}  // namespace

double optimizer_seconds(const StepInputs& in, const ParameterCount& count, const ChunkCensus& stage, double passes) {
    const TrainingSpec& training = in.workload.training;
    const auto [dense_ranks, expert_ranks] = optimizer_shards(in);
    const double elements = static_cast<double>(count.dense) / dense_ranks + static_cast<double>(count.expert) / expert_ranks;
    const bool chosen = in.layout.engine == Engine::megatron || training.megatron.optimizer != OptimizerKind::ademamix;
    const OptimizerKind optimizer = chosen ? training.megatron.optimizer : OptimizerKind::adam;
    // Adam reads gradient, main parameter and two moments and writes all but the gradient, plus the 16-bit copy: 16 + 12 + 2 bytes; norm
    // and unscaling read the gradient twice more and write it once. Other optimizers have other moments. Of parameters that the host
    // updates the device reads only the gradients.
    constexpr double kNorm = 12;
    const double updated = in.layout.engine == Engine::megatron ? 1 - training.offload.optimizer : 1;
    const double traffic = elements * (kNorm + updated * (26 - kNorm + 8 * kept_moments(optimizer)));
    const bool sharded = training.megatron.fully_sharded.shards_gradients();
    const double zeroing = zeroed_gradients(in, count, stage, elements) *
                           static_cast<double>(bytes_of(sharded ? kept_gradient_dtype(training) : training.grad_dtype));
    // Muon's matrices are distributed over the ranks by their cost (layer_wise_optimizer.py).
    double orthogonalising = 0;
    if (!in.orthogonalise_seconds.empty()) {
        for (std::size_t kind = 0; kind < stage.kinds.size(); ++kind) orthogonalising += stage.kinds[kind] * in.orthogonalise_seconds[kind];
        orthogonalising += static_cast<double>(in.workload.model.mtp_weights(stage.mtp)) * in.orthogonalise_seconds.back();
    }
    return in.kernels.memory_bound(traffic) + (zeroing > 0 ? in.kernels.memory_bound(zeroing) : 0) + orthogonalising +
           offloaded_state_seconds(in, count, elements, passes) + host_seconds(in.calibration, in.layout.engine).update;
}

double transfer_seconds(const StepInputs& in) {
    if (in.layout.sizes.pp <= 1) return 0;
    const double bytes = static_cast<double>(in.layers.boundary);
    if (in.layout.engine != Engine::megatron || in.layout.sequence_parallel || in.layout.sizes.tp == 1)
        return send_receive_seconds(bytes, in.paths.pp, in.calibration);
    // Without sequence parallelism all tp ranks hold the same stream. In Megatron-LM each sends its part, and the receivers gather it over
    // tp (--no-scatter-gather-tensors-in-pipeline turns it off; arXiv 2104.04473, section 4.1).
    return send_receive_seconds(bytes / static_cast<double>(in.layout.sizes.tp), in.paths.pp, in.calibration) +
           all_gather_seconds(bytes, in.paths.tp, in.calibration);
}

double tied_embedding_seconds(const StepInputs& in) {
    if (!in.workload.model.tied_embeddings || in.layout.sizes.pp <= 1) return 0;
    if (in.workload.model.adapters) return 0;  // the frozen table has no gradient
    const std::int64_t rows = in.workload.model.padded_vocab(in.layout.sizes.tp) / in.layout.sizes.tp;
    const auto table = static_cast<double>(rows * in.workload.model.hidden * bytes_of(in.workload.training.grad_dtype));
    return all_reduce_seconds(
        table, GroupPath{2, in.paths.pp.crosses_network() ? 1 : 2, in.paths.pp.inside, in.paths.pp.network, in.paths.pp.latency},
        in.calibration);
}

}  // namespace mgplan::simulator
