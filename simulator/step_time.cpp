#include "simulator/step_time.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "simulator/uncertainty.hpp"

namespace mgplan::simulator {
namespace {

/// Times of a pipeline rank in the closed form.
struct RankTime {
    double forward = 0, backward = 0;  ///< seconds of one microbatch
    double ends = 0;                   ///< forward and backward of its first or last chunk, whichever is longer
    double first = 0;                  ///< lower bound of the forward and backward of its first chunk
    double behind = 0;                 ///< seconds after the slowest rank's gradients: optimizer, and an exposed gather
    DataParallelSeconds work;
};

/// Forward and backward of the chunks of an interleaved schedule, summed from the time of one piece of each kind: fast if a stage has many
/// chunks.
class ChunkSums {
public:
    ChunkSums(const StepInputs& in, PassTimes& times) : in_(in) {
        const auto of = [&](const ChunkCensus& one) { return times.chunk(one).total(); };
        for (const ChunkCensus& one : in.split.single) layers_.push_back(of(one));
        ChunkCensus end;
        end.mtp = 1;
        if (in.workload.model.mtp_layers > 0) mtp_ = of(end);
        end = {};
        end.embedding = true;
        embedding_ = of(end);
        end = {};
        end.loss = true;
        loss_ = of(end);
    }
    [[nodiscard]] double of(int rank, int chunk) const {
        const ChunkCensus& c =
            in_.split.chunks[static_cast<std::size_t>(rank) * static_cast<std::size_t>(in_.layout.vpp) + static_cast<std::size_t>(chunk)];
        double seconds = 0;
        for (std::size_t kind = 0; kind < layers_.size(); ++kind) seconds += c.kinds[kind] * layers_[kind];
        return seconds + static_cast<double>(c.mtp) * mtp_ + (c.embedding ? embedding_ : 0) + (c.loss ? loss_ : 0);
    }

private:
    const StepInputs& in_;
    std::vector<double> layers_;  ///< by index of their kind
    double mtp_ = 0, embedding_ = 0, loss_ = 0;
};

/// Microbatches of slack out of the pp that a chunk runs in a row, due to warm-up: two in each direction.
constexpr double kRoomOfWarmUps = 4;
/// Average share of the waits beyond this slack that remains in the event simulation (tests/simulator/timeline/agreement_test.cpp).
constexpr double kShareOfWaits = 0.6;
/// Margin of a lower bound for the other order of additions in the event simulation.
constexpr double kRoundingOfSums = 1e-9;
/// Waits below this share of the compute time are rounding.
constexpr double kRoundingOfModules = 1e-12;

/// Seconds per microbatch that ranks wait for longer chunks of other ranks, on top of the `slowest` stage's seconds. In lockstep each rank
/// would wait for the longest chunk with its index.
double waits_for_longer_chunks(const StepInputs& in, const ChunkSums& chunks, double slowest) {
    const int pp = static_cast<int>(in.layout.sizes.pp);
    double in_step = 0;
    for (int chunk = 0; chunk < in.layout.vpp; ++chunk) {
        double longest = 0;
        for (int rank = 0; rank < pp; ++rank) {
            if (in.split.alike[static_cast<std::size_t>(rank)] == rank) longest = std::max(longest, chunks.of(rank, chunk));
        }
        in_step += longest;
    }
    const double waiting = kShareOfWaits * std::max(0.0, 1 - kRoomOfWarmUps / pp);
    return waiting * std::max(0.0, in_step - slowest);
}

/// A pipeline in which all passes of a rank take the same time, each chunk 1/vpp of it.
class Pipeline {
public:
    Pipeline(const StepInputs& in, std::vector<RankTime> ranks, double uneven)
        : in_(in), ranks_(std::move(ranks)), uneven_(uneven), m_(static_cast<double>(in.layout.num_microbatches)), vpp_(in.layout.vpp) {}

    /// Seconds from the first forward to the last backward with transfers of `hop` seconds.
    ///
    /// The longest of several paths through the passes, each a lower bound of the real run. A path goes down to rank s, stays there for all
    /// microbatches and comes back up. At its start it may follow the first microbatch from s to the last rank and back, minus the forwards
    /// that s runs meanwhile: the warm-up of 1F1B has one more for each later rank. Its end does the same with the last microbatch and the
    /// backwards. A rank that waits for its own sends has longer passes.
    [[nodiscard]] double makespan(double hop) const {
        const int pp = static_cast<int>(ranks_.size());
        if (vpp_ > 1) return interleaved(hop);
        double behind = 0;
        for (int r = 0; r < pp; ++r) behind += forward(r, hop) + backward(r, hop);
        double in_front = 0, longest = 0;
        for (int s = 0; s < pp; ++s) {
            const double ahead = forward(s, hop), back = backward(s, hop);
            behind -= ahead + back;
            const double others = pp - 1 - s;
            double path = in_front + m_ * (ahead + back);
            if (m_ > others + 1) {
                path += std::max(0.0, behind - others * ahead) + std::max(0.0, behind - others * back);
            } else {
                // All forwards run before the first backward: there is one way down and back.
                path += std::max(0.0, behind - (m_ - 1) * std::min(ahead, back));
            }
            longest = std::max(longest, path);
            in_front += ahead + back;
        }
        return longest;
    }

    /// Seconds that gradient reduction and parameter gather add to a run with `hop` seconds per transfer.
    [[nodiscard]] double data_parallel(double hop) const {
        const TrainingSpec& training = in_.workload.training;
        const double pp = static_cast<double>(ranks_.size());
        double late_begin = 0, late_end = 0, gathered_behind = 0;
        // A rank starts when the first forward has reached it, and finishes before the last backward has reached rank 0.
        double fill = 0, drain = 0;
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            const RankTime& rank = ranks_[r];
            const double reduce = rank.work.reduce / vpp_, gather = rank.work.gather / vpp_;
            const double parts = r == 0 && training.overlap_grad_reduce ? std::max(1.0, rank.work.buckets / vpp_) : 1;
            if (!training.overlap_param_gather) {
                gathered_behind = std::max(gathered_behind, rank.work.gather);
            } else {
                // The first forward follows the buckets.
                const double first = rank.forward / vpp_;
                const double begin = std::max(fill, gather / parts);
                const double seconds = std::max(first, gather + first / parts - begin);
                const double hidden = std::max(0.0, std::min(seconds, rank.work.gather - begin));
                late_begin = std::max(late_begin, begin + seconds + in_.calibration.overlap_cost * hidden - fill - first);
                // The last chunk's parameters must be complete when its first forward starts.
                late_begin =
                    std::max(late_begin, rank.work.gather - gather * (parts > 1 ? 1 - 1 / parts : 0) - fill - (vpp_ - 1) * pp * first);
            }
            if (!training.overlap_grad_reduce) {
                late_end = std::max(late_end, rank.work.reduce - drain);
            } else {
                const double last = rank.backward / vpp_;
                const double hidden = std::min(reduce, last) * (1 - 1 / parts);
                const double before = in_.calibration.overlap_cost * (hidden + std::min(rank.work.reduce - reduce, (vpp_ - 1) * pp * last));
                const double after = std::max(reduce / parts, reduce - last * (1 - 1 / parts));
                // Reductions of other chunks still pending when the rank's last gradients are ready.
                const double backlog = std::max(0.0, rank.work.reduce - reduce - (vpp_ - 1) * pp * last);
                late_end = std::max(late_end, before + after + backlog - drain);
            }
            fill += forward(static_cast<int>(r), hop) / vpp_;
            drain += backward(static_cast<int>(r), hop) / vpp_;
        }
        return late_begin + late_end + gathered_behind;
    }

    /// Lower bound of the seconds from the first forward until all gradients are reduced and all ranks updated: a rank starts when the
    /// first forward has passed the first chunks of the ranks before it, runs all its passes, and after its last backward, one of its first
    /// chunk, the gradient travels back to rank 0. On rank 0 the first forward follows the first bucket of its parameters, and the last
    /// bucket of gradients follows the last backward; reductions of other ranks are left out. `makespan`: for the same `hop`.
    [[nodiscard]] double at_least(double makespan, double hop, double tied_embedding) const {
        const TrainingSpec& training = in_.workload.training;
        const int pp = static_cast<int>(ranks_.size());
        const RankTime& front = ranks_.front();
        // The split of a rank's parameters over its chunks is unknown here: only traffic of a single chunk counts.
        const bool one_chunk = vpp_ == 1;
        const double parts = training.overlap_grad_reduce ? std::max(1.0, front.work.buckets) : 1;
        const double begin = one_chunk && training.overlap_param_gather ? front.work.gather / parts : 0;
        const double reduced = one_chunk ? front.work.reduce / parts : 0;
        double longest = one_chunk ? makespan + begin + reduced : 0;
        double in_front = 0, behind = 0;
        for (int r = 0; r < pp; ++r) {
            const RankTime& rank = ranks_[static_cast<std::size_t>(r)];
            const double passes = m_ * (forward(r, hop) + backward(r, hop));
            // Down to the rank and up again; its own last send is part of its passes if it waits for it.
            const double hops = std::max(0, 2 * r - (overlapped() ? 0 : 1)) * hop;
            longest = std::max(longest, begin + in_front + hops + passes + reduced);
            behind = std::max(behind, rank.behind);
            in_front += rank.first;
        }
        // The ranks that share the embedding table reduce its gradient after their last passes.
        return longest + tied_embedding + behind;
    }

private:
    /// The slowest rank runs without a pause; before and after it one chunk passes through all others. For equal ranks that adds (pp -
    /// 1)/(m·vpp) of the time of the passes (Narayanan et al., arXiv 2104.04473, section 2.2).
    [[nodiscard]] double interleaved(double hop) const {
        const int pp = static_cast<int>(ranks_.size());
        const double sends = overlapped() ? 0 : 2 * hop;
        double all = 0, longest = 0;
        for (const RankTime& rank : ranks_) all += rank.ends + sends;
        const std::vector<int>& alike = in_.split.alike;
        for (int s = 0; s < pp; ++s) {
            // Inner ranks send more than the ends; of equal inner ranks only the first is needed.
            if (s + 1 < pp && alike[static_cast<std::size_t>(s)] > 0 && alike[static_cast<std::size_t>(s)] < s) continue;
            const double rest = all - ranks_[static_cast<std::size_t>(s)].ends - sends;
            longest = std::max(longest, m_ * (forward(s, hop) + backward(s, hop) + uneven_) + rest);
        }
        return longest + (overlapped() ? 2 * (pp - 1) * hop : 0);
    }

    [[nodiscard]] bool overlapped() const { return vpp_ > 1 && in_.workload.training.overlap_p2p; }
    /// Forward of all chunks including waits for its sends: the last stage sends no activations, the first no gradients.
    [[nodiscard]] double forward(int rank, double hop) const {
        const double sends = overlapped() ? 0 : vpp_ - (rank + 1 == static_cast<int>(ranks_.size()) ? 1 : 0);
        return ranks_[static_cast<std::size_t>(rank)].forward + sends * hop;
    }
    [[nodiscard]] double backward(int rank, double hop) const {
        const double sends = overlapped() ? 0 : vpp_ - (rank == 0 ? 1 : 0);
        return ranks_[static_cast<std::size_t>(rank)].backward + sends * hop;
    }

    const StepInputs& in_;
    std::vector<RankTime> ranks_;
    double uneven_;  ///< seconds per microbatch that ranks wait for longer chunks of others
    double m_;
    double vpp_;
};

}  // namespace

TimePrediction step_time(const StepInputs& in) {
    const Layout& layout = in.layout;
    const int pp = static_cast<int>(layout.sizes.pp);
    const double m = static_cast<double>(layout.num_microbatches);

    StageTime slowest;
    double recompute_flops = 0;
    TimePrediction time;
    double optimizer = 0;
    std::vector<RankTime> ranks;
    ranks.reserve(static_cast<std::size_t>(pp));
    std::optional<ChunkSums> chunks;
    PassTimes times(in);
    if (layout.vpp > 1) chunks.emplace(in, times);
    std::vector<double> repeated;  // by rank: FLOPs of recompute
    repeated.reserve(static_cast<std::size_t>(pp));
    for (int rank = 0; rank < pp; ++rank) {
        if (const auto like = static_cast<std::size_t>(in.split.alike[static_cast<std::size_t>(rank)]); like < ranks.size()) {
            ranks.push_back(ranks[like]);
            repeated.push_back(repeated[like]);
            recompute_flops += repeated[like];
            continue;
        }
        const StageTime stage = times.stage(rank);
        repeated.push_back(stage.recompute_flops);
        recompute_flops += stage.recompute_flops;
        if (stage.total() > slowest.total()) {
            slowest = stage;
            time.slowest_stage = rank;
        }
        const ParameterCount& count = in.stage_parameters[static_cast<std::size_t>(rank)];
        const double first = chunks ? chunks->of(rank, 0) : stage.total();
        const double ends = chunks ? std::max(first, chunks->of(rank, layout.vpp - 1)) : first;
        const DataParallelSeconds work = data_parallel_seconds(in, count);
        const double update = optimizer_seconds(in, count, in.split.stages[static_cast<std::size_t>(rank)], m * stage.total());
        // With the block method a chunk recomputes fewer layers than ChunkSums assumes; the gather of a single layer is not hidden.
        const bool known = (layout.recompute != Recompute::full || layout.recompute_method != RecomputeMethod::block) &&
                           !in.workload.training.megatron.fully_sharded.active();
        ranks.push_back({stage.forward, stage.backward, ends, known ? first : 0,
                         update + (in.workload.training.overlap_param_gather ? 0 : work.gather), work});
        optimizer = std::max(optimizer, update);
    }

    double busy = 0, longest_behind = 0;  // seconds in the passes of all ranks and after them
    for (const RankTime& rank : ranks) {
        busy += m * (rank.forward + rank.backward) + rank.behind;
        longest_behind = std::max(longest_behind, rank.behind);
    }
    const Pipeline pipeline(in, std::move(ranks), chunks ? waits_for_longer_chunks(in, *chunks, slowest.total()) : 0);
    const double hop = transfer_seconds(in);
    const double passes = pipeline.makespan(0), with_transfers = hop > 0 ? pipeline.makespan(hop) : passes;
    time.bubble_seconds = std::max(0.0, passes - m * slowest.total());
    time.imbalance_seconds = std::max(0.0, m * slowest.total() + longest_behind - busy / pp);
    time.compute_seconds = m * (slowest.total() - slowest.exposed.total() - slowest.exposed_data);
    time.recompute_seconds = m * slowest.recompute;
    time.host_seconds = m * slowest.waiting;
    time.exposed.tp = m * slowest.exposed.tp;
    time.exposed.cp = m * slowest.exposed.cp;
    time.exposed.ep = m * slowest.exposed.ep;
    time.exposed.dp = pipeline.data_parallel(hop) + m * slowest.exposed_data;
    const double tied_embedding = tied_embedding_seconds(in);
    time.exposed.pp = with_transfers - passes + tied_embedding;
    time.optimizer_seconds = optimizer;
    time.iteration_seconds = m * (slowest.total() - slowest.exposed_data) + time.bubble_seconds + time.exposed.dp + time.exposed.pp +
                             optimizer + host_seconds(in.calibration, in.layout.engine).iteration;
    time.at_least_seconds =
        (pipeline.at_least(with_transfers, hop, tied_embedding) + host_seconds(in.calibration, in.layout.engine).iteration) *
        (1 - kRoundingOfSums);
    finish_rates(in, slowest, recompute_flops, time);
    return time;
}

void finish_rates(const StepInputs& in, const StageTime& slowest, double recompute_flops, TimePrediction& time) {
    // Bubbles are waits for other stages and as uncertain as the slowest stage.
    const double m = static_cast<double>(in.layout.num_microbatches);
    if (slowest.modules.counted()) {
        time.modules = {};
        time.modules.add(slowest.modules, m);
        // All but the ops is time in which the device waits for the host.
        double waits = time.compute_seconds;
        time.modules[ComputeModule::host] = {};
        for (const ModuleWork& work : time.modules.works) waits -= work.seconds;
        time.modules[ComputeModule::host].seconds = waits > kRoundingOfModules * time.compute_seconds ? waits : 0;
    }
    const double rounds = slowest.total() > 0 ? m + time.bubble_seconds / slowest.total() : 0;
    TimeParts parts;
    parts.iteration = time.iteration_seconds;
    parts.communication = time.exposed.total();
    parts.host = rounds * slowest.host;
    parts.products = std::max(0.0, time.compute_seconds + time.bubble_seconds - parts.host);
    if (quantised(in.workload.training.precision)) parts.fp8_products = parts.products;
    if (slowest.total() > 0) parts.expert_layers = parts.products * slowest.expert_layers / slowest.total();
    time.interval_low = time.iteration_seconds * std::max(0.0, 1 - kFourFifths * relative_deviation(parts, in.calibration.faster));
    time.interval_high = time.iteration_seconds * (1 + kFourFifths * relative_deviation(parts, in.calibration.slower));

    const double world = static_cast<double>(in.layout.sizes.world);
    const double tokens = static_cast<double>(in.workload.batch.global_batch * in.workload.batch.sequence);
    const double peak = in.workload.cluster.peak(in.workload.training.precision);
    time.tokens_per_second_per_gpu = tokens / time.iteration_seconds / world;
    time.model_tflops_per_gpu = in.model_flops / time.iteration_seconds / world / 1e12;
    time.mfu = time.model_tflops_per_gpu * 1e12 / peak;
    // Each rank of a stage repeats its share for every microbatch; a stage has world / pp ranks.
    const double repeated =
        recompute_flops * static_cast<double>(in.layout.num_microbatches) * world / static_cast<double>(in.layout.sizes.pp);
    time.hfu = time.mfu * (1 + repeated / in.model_flops);
}

}  // namespace mgplan::simulator
