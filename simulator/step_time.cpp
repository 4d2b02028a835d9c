#include "simulator/step_time.hpp"

#include <algorithm>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/send_receive.hpp"

namespace mgplan::simulator {
namespace {

/// Seconds of one microbatch on one stage.
struct StageTime {
    double forward = 0, backward = 0;  ///< all in
    double recompute = 0;              ///< part of backward
    double tp = 0, cp = 0, ep = 0;     ///< exposed communication, part of the above
    double host = 0;                   ///< part of the above: waiting for the host to issue kernels

    [[nodiscard]] double total() const { return forward + backward; }
};

/// Adds `count` copies of a piece. `recomputed`: the whole forward runs again in the backward.
void add_piece(StageTime& time, const PieceCost& piece, double count, bool recomputed, const Calibration& calibration) {
    if (count <= 0) return;
    const double again = recomputed ? piece.forward + piece.communication_forward() : piece.recompute;
    const double forward = piece.forward + piece.communication_forward();
    const double backward = piece.backward + piece.communication_backward() + again;
    // An eager framework issues kernels one by one; the device waits when they are shorter than that.
    const double issue_forward = piece.kernels_forward * calibration.host_kernel_seconds;
    const double issue_backward = (piece.kernels_backward + (recomputed ? piece.kernels_forward : 0)) * calibration.host_kernel_seconds +
                                  (recomputed ? calibration.checkpoint_host_seconds : 0);
    time.forward += count * std::max(forward, issue_forward);
    time.backward += count * std::max(backward, issue_backward);
    time.host += count * (std::max(0.0, issue_forward - forward) + std::max(0.0, issue_backward - backward));
    time.recompute += count * again;
    const double twice = recomputed ? 2 : 1;
    time.tp += count * (twice * piece.tp_forward + piece.tp_backward);
    time.cp += count * (twice * piece.cp_forward + piece.cp_backward);
    time.ep += count * (twice * piece.ep_forward + piece.ep_backward);
}

StageTime stage_time(const StepInputs& in, int rank) {
    StageTime time;
    const LayerCosts& layers = in.layers;
    const ChunkCensus& stage = in.split.stages[static_cast<std::size_t>(rank)];
    double recomputed_share = 0;
    if (in.layout.recompute == Recompute::full) {
        recomputed_share = 1;
        if (in.layout.recompute_method == RecomputeMethod::block && stage.layers() > 0) {
            std::int64_t recomputed = 0;
            for (int c = 0; c < in.layout.vpp; ++c) {
                const auto index = static_cast<std::size_t>(rank) * static_cast<std::size_t>(in.layout.vpp) + static_cast<std::size_t>(c);
                recomputed += std::min(in.layout.recompute_num_layers, in.split.chunks[index].layers());
            }
            recomputed_share = static_cast<double>(recomputed) / static_cast<double>(stage.layers());
        }
    }
    for (const auto& [piece, count] : {std::pair{&layers.dense, stage.dense}, std::pair{&layers.mixture, stage.mixture}}) {
        add_piece(time, *piece, static_cast<double>(count) * recomputed_share, true, in.calibration);
        add_piece(time, *piece, static_cast<double>(count) * (1 - recomputed_share), false, in.calibration);
    }
    add_piece(time, layers.mtp, static_cast<double>(stage.mtp), false, in.calibration);
    if (stage.embedding) add_piece(time, layers.embedding, 1, false, in.calibration);
    if (stage.loss) add_piece(time, layers.head, 1, false, in.calibration);
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
        reduce = all_gather_seconds(dense * grad, in.paths.dp_cp, in.calibration);
        gather = all_gather_seconds(dense * weight, in.paths.dp_cp, in.calibration);
        if (expert > 0) {
            reduce += all_gather_seconds(expert * grad, in.paths.edp, in.calibration);
            gather += all_gather_seconds(expert * weight, in.paths.edp, in.calibration);
        }
    } else {
        reduce = all_reduce_seconds(dense * grad, in.paths.dp_cp, in.calibration);
        if (expert > 0) reduce += all_reduce_seconds(expert * grad, in.paths.edp, in.calibration);
    }
    // Overlapped, a reduction runs beside the last microbatch's backward and a gather beside the first one's forward;
    // the last (first) bucket has nothing to hide behind. Megatron-LM buckets hold at least 40 M elements.
    const double buckets = std::max(1.0, (dense + expert) / 40e6);
    double exposed = 0;
    exposed += training.overlap_grad_reduce ? std::max(reduce / buckets, reduce - 0.9 * stage.backward) : reduce;
    exposed += training.overlap_param_gather ? std::max(gather / buckets, gather - 0.9 * stage.forward) : gather;
    return exposed;
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

}  // namespace

TimePrediction step_time(const StepInputs& in) {
    const Layout& layout = in.layout;
    const int pp = static_cast<int>(layout.sizes.pp);
    const double m = static_cast<double>(layout.num_microbatches);
    const double vpp = layout.vpp;

    StageTime slowest;
    double sum = 0;
    TimePrediction time;
    double data_parallel = 0, optimizer = 0;
    for (int rank = 0; rank < pp; ++rank) {
        const StageTime stage = stage_time(in, rank);
        sum += stage.total();
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
        const double hop = send_receive_seconds(static_cast<double>(in.layers.boundary), in.paths.pp, in.calibration);
        // 1F1B waits for its neighbour on every microbatch; overlapped interleaving only while filling and draining.
        const double waits = layout.vpp > 1 && in.workload.training.overlap_p2p ? 2.0 * (pp - 1) : 2.0 * (vpp * m + pp - 1);
        pipeline = waits * hop;
    }
    time.compute_seconds = m * (slowest.total() - slowest.tp - slowest.cp - slowest.ep);
    time.recompute_seconds = m * slowest.recompute;
    time.exposed.tp = m * slowest.tp;
    time.exposed.cp = m * slowest.cp;
    time.exposed.ep = m * slowest.ep;
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

    // Relative half-width of the interval: the 90th percentile of the error on published runs, docs/accuracy.md.
    constexpr double kUncertainty = 0.25;
    time.interval_low = time.iteration_seconds * (1 - kUncertainty);
    time.interval_high = time.iteration_seconds * (1 + kUncertainty);

    const double world = static_cast<double>(layout.sizes.world);
    const double tokens = static_cast<double>(in.workload.batch.global_batch * in.workload.batch.sequence);
    const double peak = in.workload.cluster.peak(in.workload.training.precision);
    time.tokens_per_second_per_gpu = tokens / time.iteration_seconds / world;
    time.model_tflops_per_gpu = in.model_flops / time.iteration_seconds / world / 1e12;
    time.mfu = time.model_tflops_per_gpu * 1e12 / peak;
    // Recomputed FLOPs: the forward third again where everything is recomputed, the core's share where only that is.
    double recomputed = 0;
    const ChunkCensus& stage = in.split.stages[static_cast<std::size_t>(time.slowest_stage)];
    const double layer_flops = static_cast<double>(stage.dense) * in.layers.dense.forward_flops +
                               static_cast<double>(stage.mixture) * in.layers.mixture.forward_flops;
    if (slowest.recompute > 0 && slowest.forward > 0) {
        recomputed = layout.recompute == Recompute::full ? layer_flops : layer_flops * std::min(1.0, slowest.recompute / slowest.forward);
    }
    time.hfu = time.mfu * (1 + (layer_flops > 0 ? recomputed / (3 * layer_flops) : 0));
    return time;
}

}  // namespace mgplan::simulator
