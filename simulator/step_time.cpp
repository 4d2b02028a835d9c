#include "simulator/step_time.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "simulator/memory/cuda_graphs.hpp"
#include "simulator/uncertainty.hpp"

namespace mgplan::simulator {
namespace {

/// One microbatch on one stage.
struct StageTime {
    double forward = 0, backward = 0;  ///< seconds, all in
    double recompute = 0;              ///< compute seconds, part of backward
    double recompute_flops = 0;
    double host = 0;           ///< what of it follows the host's launches
    double expert_layers = 0;  ///< of layers with experts
    GroupSeconds exposed;      ///< part of forward and backward

    [[nodiscard]] double total() const { return forward + backward; }
};

/// Seconds of work that takes the device `device` seconds and the host `issue` seconds to issue. Where both are alike the
/// device waits behind the short kernels and the host behind the long ones, so the sum of fourth powers takes the place of
/// the larger: vTrain's runs at hidden 1024 pass from one to the other between 2 and 8 sequences a microbatch.
double beside_host(double device, double issue) {
    const double larger = std::max(device, issue), smaller = std::min(device, issue);
    if (smaller <= 0) return larger;
    const double ratio = smaller / larger;
    return larger * std::sqrt(std::sqrt(1 + ratio * ratio * ratio * ratio));
}

/// By how many percent beside_host() grows when the host gets one percent slower.
double host_share(double device, double issue) {
    if (issue <= 0) return 0;
    const double ratio = device / issue;
    return 1 / (1 + ratio * ratio * ratio * ratio);
}

/// Kernels of a piece that the host does not issue one by one, because a CUDA graph replays them.
struct Replayed {
    int forward = 0, backward = 0;
};

/// Launches that the host makes for `kernels` of which a graph holds `replayed`: the graph's own is one more.
int launches(int kernels, int replayed) {
    return replayed > 0 ? std::max(0, kernels - replayed) + 1 : kernels;
}

/// Adds `count` copies of a piece. `recomputed`: the whole forward runs again in the backward.
void add_piece(StageTime& time, const PieceCost& piece, double count, bool recomputed, const Calibration& calibration,
               Replayed replayed = {}) {
    if (count <= 0) return;
    const double again = recomputed ? piece.forward : piece.recompute;
    const GroupSeconds& again_exposed = recomputed ? piece.exposed_forward : piece.exposed_recompute;
    const double forward = piece.forward + piece.exposed_forward.total();
    const double backward = piece.backward + piece.exposed_backward.total() + again + again_exposed.total();
    // An eager framework issues kernels one by one; the device waits when they are shorter than that.
    const double issue_forward = launches(piece.kernels_forward, replayed.forward) * calibration.host_kernel_seconds;
    const double issue_backward =
        (launches(piece.kernels_backward, replayed.backward) + (recomputed ? piece.kernels_forward : 0)) * calibration.host_kernel_seconds +
        (recomputed ? calibration.checkpoint_host_seconds : 0);
    time.forward += count * beside_host(forward, issue_forward);
    time.backward += count * beside_host(backward, issue_backward);
    time.host += count * (beside_host(forward, issue_forward) * host_share(forward, issue_forward) +
                          beside_host(backward, issue_backward) * host_share(backward, issue_backward));
    time.recompute += count * again;
    time.recompute_flops += count * (recomputed ? piece.forward_flops : piece.recompute_flops);
    for (const GroupSeconds& part : {piece.exposed_forward, piece.exposed_backward, again_exposed}) {
        time.exposed += {count * part.tp, count * part.cp, count * part.ep};
    }
}

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

/// What graphs of this kind of layer replay.
Replayed replayed_kernels(const StepInputs& in, LayerKind kind) {
    if (in.layout.cuda_graphs.empty()) return {};
    const GraphedLayer layer = captured_part(in.layout.cuda_graphs, in.layers, kind);
    return {layer.kernels_forward, layer.kernels_backward};
}

/// One graph for the whole iteration: nothing is launched beside it.
LayerCosts without_launches(LayerCosts layers) {
    for (PieceCost* piece : {&layers.dense, &layers.mixture, &layers.mtp, &layers.embedding, &layers.head})
        piece->kernels_forward = piece->kernels_backward = 0;
    return layers;
}

StageTime stage_time(const StepInputs& in, const LayerCosts& layers, int rank) {
    StageTime time;
    const ChunkCensus& stage = in.split.stages[static_cast<std::size_t>(rank)];
    const double share = recomputed_share(in, rank);
    for (const LayerKind kind : {LayerKind::dense, LayerKind::moe}) {
        const PieceCost& piece = kind == LayerKind::dense ? layers.dense : layers.mixture;
        const double count = static_cast<double>(kind == LayerKind::dense ? stage.dense : stage.mixture);
        if (count <= 0) continue;
        const Replayed replayed = replayed_kernels(in, kind);
        const double before = time.total();
        add_piece(time, piece, count * share, true, in.calibration, replayed);
        add_piece(time, piece, count * (1 - share), false, in.calibration, replayed);
        if (kind == LayerKind::moe) time.expert_layers = time.total() - before;
    }
    if (stage.mtp > 0) {
        const ModelSpec& model = in.workload.model;
        const Replayed replayed = replayed_kernels(in, model.moe && model.moe_layers.back() ? LayerKind::moe : LayerKind::dense);
        add_piece(time, layers.mtp, static_cast<double>(stage.mtp), in.layout.recompute == Recompute::full, in.calibration, replayed);
    }
    // Each MTP layer looks its tokens up again where it stands and has its own pass through the shared head.
    add_piece(time, layers.embedding, static_cast<double>(stage.mtp + (stage.embedding ? 1 : 0)), false, in.calibration);
    if (stage.loss) add_piece(time, layers.head, static_cast<double>(1 + in.workload.model.mtp_layers), false, in.calibration);
    return time;
}

/// Exposed seconds of gradient reduction and parameter gather of one stage.
double data_parallel_seconds(const StepInputs& in, const ParameterCount& count, const StageTime& stage) {
    const TrainingSpec& training = in.workload.training;
    const double grad = static_cast<double>(bytes_of(training.grad_dtype));
    const double weight = training.fp8_parameters ? 1.0 : static_cast<double>(bytes_of(training.compute_dtype()));
    const double dense = static_cast<double>(count.dense), expert = static_cast<double>(count.expert);
    double reduce = 0, gather = 0;
    if (training.distributed_optimizer) {
        reduce = reduce_scatter_seconds(dense * grad, in.paths.dp_cp, in.calibration);
        gather = all_gather_seconds(dense * weight, in.paths.dp_cp, in.calibration);
        if (expert > 0) {
            reduce += reduce_scatter_seconds(expert * grad, in.paths.edp, in.calibration);
            gather += all_gather_seconds(expert * weight, in.paths.edp, in.calibration);
        }
    } else {
        reduce = all_reduce_seconds(dense * grad, in.paths.dp_cp, in.calibration);
        if (expert > 0) reduce += all_reduce_seconds(expert * grad, in.paths.edp, in.calibration);
    }
    // Overlapped, a reduction runs beside the last microbatch's backward and a gather beside the first one's forward;
    // the last (first) bucket has nothing to hide behind. A bucket holds 40 M elements, or 1 M per data-parallel rank where
    // that is more (Megatron-core distributed_data_parallel.py).
    const double bucket = std::max(40e6, 1e6 * static_cast<double>(in.paths.dp_cp.ranks));
    const double buckets = std::max(1.0, (dense + expert) / bucket);
    // Interleaved, a chunk's gradients are complete as soon as the last group of pp microbatches has left it, while that group
    // still goes through the other chunks, and its parameters are needed no sooner on the way in (arXiv 2104.04473, section 2.2).
    const double vpp = in.layout.vpp;
    const double group = static_cast<double>(std::min<std::int64_t>(in.layout.num_microbatches, in.layout.sizes.pp));
    const double window = in.layout.vpp > 1 ? (group * (vpp - 1) + 1) / vpp : 1.0;
    const auto exposed = [&](bool overlapped, double seconds, double compute) {
        if (!overlapped) return seconds;
        return std::max({seconds / buckets, seconds - window * compute, in.calibration.overlap_cost * seconds});
    };
    return exposed(training.overlap_grad_reduce, reduce, stage.backward) + exposed(training.overlap_param_gather, gather, stage.forward);
}

double optimizer_seconds(const StepInputs& in, const ParameterCount& count) {
    const TrainingSpec& training = in.workload.training;
    double elements = static_cast<double>(count.total());
    if (training.distributed_optimizer) {
        elements = static_cast<double>(count.dense) / static_cast<double>(std::max<std::int64_t>(1, in.layout.dp() * in.layout.sizes.cp)) +
                   static_cast<double>(count.expert) / static_cast<double>(std::max<std::int64_t>(1, in.layout.edp()));
    }
    // Adam reads gradient, main parameter and two moments and writes all but the gradient and the 16-bit copy:
    // 16 + 12 + 2 bytes; the norm and the unscaling read the gradient twice more and write it once. Zeroing the buffer
    // touches every gradient of the rank.
    const double zeroing = static_cast<double>(count.total() * bytes_of(training.grad_dtype));
    return in.kernels.memory_bound(elements * 42) + in.kernels.memory_bound(zeroing) + in.calibration.optimizer_fixed_seconds;
}

/// One transfer of the residual stream between two stages.
double hop_seconds(const StepInputs& in) {
    const double bytes = static_cast<double>(in.layers.boundary);
    if (in.layout.engine != Engine::megatron || in.layout.sequence_parallel || in.layout.sizes.tp == 1)
        return send_receive_seconds(bytes, in.paths.pp, in.calibration);
    // Without sequence parallelism all tp ranks hold the same stream. Megatron-LM has each send its part and gathers them over
    // tp on the other side (--no-scatter-gather-tensors-in-pipeline turns it off; arXiv 2104.04473, section 4.1).
    return send_receive_seconds(bytes / static_cast<double>(in.layout.sizes.tp), in.paths.pp, in.calibration) +
           all_gather_seconds(bytes, in.paths.tp, in.calibration);
}

}  // namespace

TimePrediction step_time(const StepInputs& in) {
    const Layout& layout = in.layout;
    const int pp = static_cast<int>(layout.sizes.pp);
    const double m = static_cast<double>(layout.num_microbatches);
    const double vpp = layout.vpp;

    const LayerCosts layers =
        layout.cuda_graphs.contains(CudaGraphScope::full_iteration) ? without_launches(in.layers) : LayerCosts(in.layers);
    StageTime slowest;
    double sum = 0, recompute_flops = 0;
    TimePrediction time;
    double data_parallel = 0, optimizer = 0;
    for (int rank = 0; rank < pp; ++rank) {
        const StageTime stage = stage_time(in, layers, rank);
        sum += stage.total();
        recompute_flops += stage.recompute_flops;
        if (stage.total() > slowest.total()) {
            slowest = stage;
            time.slowest_stage = rank;
        }
        const ParameterCount& count = in.stage_parameters[static_cast<std::size_t>(rank)];
        data_parallel = std::max(data_parallel, data_parallel_seconds(in, count, stage));
        optimizer = std::max(optimizer, optimizer_seconds(in, count));
    }

    // The slowest stage runs m microbatches without a pause; before and behind it one microbatch passes through all other
    // stages, in pieces of 1/vpp (Narayanan et al., arXiv 2104.04473, section 2.2).
    time.bubble_seconds = (sum - slowest.total()) / vpp;
    double pipeline = 0;
    if (pp > 1) {
        const double hop = hop_seconds(in);
        // 1F1B waits for its neighbour on every microbatch; overlapped interleaving only while filling and draining.
        const double waits = layout.vpp > 1 && in.workload.training.overlap_p2p ? 2.0 * (pp - 1) : 2.0 * (vpp * m + pp - 1);
        pipeline = waits * hop;
    }
    time.compute_seconds = m * (slowest.total() - slowest.exposed.total());
    time.recompute_seconds = m * slowest.recompute;
    time.exposed.tp = m * slowest.exposed.tp;
    time.exposed.cp = m * slowest.exposed.cp;
    time.exposed.ep = m * slowest.exposed.ep;
    time.exposed.dp = data_parallel;
    time.exposed.pp = pipeline;
    if (in.workload.model.tied_embeddings && pp > 1) {
        const double table =
            static_cast<double>(in.workload.model.padded_vocab(layout.sizes.tp) / layout.sizes.tp * in.workload.model.hidden) *
            static_cast<double>(bytes_of(in.workload.training.grad_dtype));
        time.exposed.pp += all_reduce_seconds(
            table, GroupPath{2, in.paths.pp.crosses_network() ? 1 : 2, in.paths.pp.inside, in.paths.pp.network, in.paths.pp.latency},
            in.calibration);
    }
    time.optimizer_seconds = optimizer;
    time.iteration_seconds =
        m * slowest.total() + time.bubble_seconds + time.exposed.dp + time.exposed.pp + optimizer + in.calibration.iteration_fixed_seconds;

    // Bubbles are waits for other stages and as uncertain as the slowest.
    const double rounds = slowest.total() > 0 ? m + time.bubble_seconds / slowest.total() : 0;
    TimeParts parts;
    parts.iteration = time.iteration_seconds;
    parts.communication = time.exposed.total();
    parts.host = rounds * slowest.host;
    parts.products = std::max(0.0, time.compute_seconds + time.bubble_seconds - parts.host);
    if (in.workload.training.precision == Precision::fp8) parts.fp8_products = parts.products;
    if (slowest.total() > 0) parts.expert_layers = parts.products * slowest.expert_layers / slowest.total();
    const double half_width = kFourFifths * relative_deviation(parts, in.calibration);
    time.interval_low = time.iteration_seconds * std::max(0.0, 1 - half_width);
    time.interval_high = time.iteration_seconds * (1 + half_width);

    const double world = static_cast<double>(layout.sizes.world);
    const double tokens = static_cast<double>(in.workload.batch.global_batch * in.workload.batch.sequence);
    const double peak = in.workload.cluster.peak(in.workload.training.precision);
    time.tokens_per_second_per_gpu = tokens / time.iteration_seconds / world;
    time.model_tflops_per_gpu = in.model_flops / time.iteration_seconds / world / 1e12;
    time.mfu = time.model_tflops_per_gpu * 1e12 / peak;
    // Each rank of a stage repeats its share for every microbatch; a stage has world / pp ranks.
    const double repeated = recompute_flops * m * world / static_cast<double>(pp);
    time.hfu = time.mfu * (1 + repeated / in.model_flops);
    return time;
}

}  // namespace mgplan::simulator
