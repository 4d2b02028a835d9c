#include "simulator/memory/megatron_replay.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "model/optimizer/buffer_layout.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/text/errors.hpp"
#include "simulator/memory/gathered_weights.hpp"

namespace mgplan::simulator {
namespace {

constexpr int kIterations = 3;

/// Appends allocations and frees in order.
class AllocationList {
public:
    explicit AllocationList(std::int64_t clock = 0) : clock_(clock) {}
    std::size_t take(std::int64_t bytes) {
        list_.push_back({bytes, clock_++, -1});
        return list_.size() - 1;
    }
    void give_back(std::size_t allocation) { list_[allocation].returned = clock_++; }
    [[nodiscard]] std::vector<Allocation> finish() { return std::move(list_); }

private:
    std::int64_t clock_;
    std::vector<Allocation> list_;
};

/// Tensors that a rank of Megatron-LM's stage holds, chunk by chunk.
class StageTensors {
public:
    StageTensors(const Workload& workload, const Layout& layout, int pp_rank)
        : training_(workload.training), chunks_(stage_parameters(workload.model, layout, pp_rank, Engine::megatron)) {
        const WeightShards& shards = training_.megatron.weight_shards;
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (Parameter& parameter : chunks_[c]) parameter = held_part(std::move(parameter), training_);
            // Frozen parameters stay in tensors of their own.
            const auto frozen = std::stable_partition(chunks_[c].begin(), chunks_[c].end(), [](const Parameter& one) { return one.trained; });
            const std::span trained(chunks_[c].begin(), frozen);
            const auto options = over_parts(model::buffer_options(layout, training_, pp_rank, static_cast<int>(c)), shards);
            buffers_.push_back(model::buffers_of(model::buffer_parameters(trained, training_.compute_dtype()), options));
        }
        for (const auto& chunk : buffers_) {
            for (const model::BufferLayout& buffer : chunk) add_owned(buffer);
        }
    }

    /// Elements of every parameter, or of the part of it that the first data-parallel rank owns.
    [[nodiscard]] const std::vector<std::int64_t>& owned() const { return owned_; }

    [[nodiscard]] std::vector<Allocation> setup() const {
        const std::int64_t element = bytes_of(training_.compute_dtype());
        AllocationList allocations;
        std::vector<std::vector<std::size_t>> alone(chunks_.size());
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (const Parameter& parameter : chunks_[c]) alone[c].push_back(allocations.take(parameter.count() * element));
        }
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (const model::BufferLayout& buffer : buffers_[c]) {
                if (buffer.sharded) (void)allocations.take(buffer.numel * element);
                (void)allocations.take(buffer.numel * bytes_of(buffer.grad_dtype));
                if (!buffer.sharded) continue;
                for (const model::BufferSpan& span : buffer.spans)
                    allocations.give_back(alone[c][static_cast<std::size_t>(span.parameter)]);
            }
        }
        if (training_.compute_dtype() != Dtype::fp32) {
            for (const std::int64_t numel : owned_) {
                const std::size_t copy = allocations.take(numel * element);
                (void)allocations.take(numel * bytes_of(training_.main_param_dtype));
                allocations.give_back(copy);
            }
        }
        return allocations.finish();
    }

    [[nodiscard]] std::vector<Allocation> moments(std::int64_t from) const {
        AllocationList allocations(from);
        for (const std::int64_t numel : owned_) {
            (void)allocations.take(numel * bytes_of(training_.exp_avg_dtype));
            (void)allocations.take(numel * bytes_of(training_.exp_avg_sq_dtype));
        }
        return allocations.finish();
    }

private:
    void add_owned(const model::BufferLayout& buffer) {
        if (!buffer.sharded) {
            for (const model::BufferSpan& span : buffer.spans) owned_.push_back(span.end - span.start);
            return;
        }
        for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
            for (const model::ShardRange& range : model::shard_ranges(buffer, bucket, 0)) owned_.push_back(range.local.size());
        }
    }

    const TrainingSpec& training_;
    std::vector<std::vector<Parameter>> chunks_;
    std::vector<std::vector<model::BufferLayout>> buffers_;  ///< by chunk
    std::vector<std::int64_t> owned_;
};

}  // namespace

std::vector<Allocation> megatron_setup(const Workload& workload, const Layout& layout, int pp_rank) {
    return StageTensors(workload, layout, pp_rank).setup();
}

std::vector<Allocation> megatron_moments(const Workload& workload, const Layout& layout, int pp_rank, std::int64_t from) {
    return StageTensors(workload, layout, pp_rank).moments(from);
}

std::optional<ReservedMemory> replay_megatron(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                              std::int64_t update, std::int64_t limit, double most_fragmentation) {
    ScheduleRequest request;
    request.pp = static_cast<int>(layout.sizes.pp);
    request.vpp = layout.vpp;
    if (layout.vpp > 1) request.group_size = layout.group_size;
    // Warm-up, cool-down and whole groups between them.
    const std::int64_t group = std::max<std::int64_t>(1, layout.group_size);
    const std::int64_t enough = (2 * (layout.sizes.pp + group) + group - 1) / group * group;
    request.microbatches = std::min(layout.num_microbatches, enough);
    std::vector<Allocation> iteration = play_allocations(trace, Schedule(request).rank(pp_rank));
    constexpr std::int64_t kBehind = std::numeric_limits<std::int64_t>::max() / 4;
    std::int64_t owned = 0;
    const StageTensors tensors(workload, layout, pp_rank);
    const std::vector<std::int64_t>& parameters = tensors.owned();
    for (const std::int64_t numel : parameters) owned += numel;
    const std::vector<Allocation> moments = tensors.moments(2 * kBehind);
    if (update > 0) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const double share = static_cast<double>(parameters[i]) / static_cast<double>(std::max<std::int64_t>(owned, 1));
            const auto when = static_cast<std::int64_t>(i);
            iteration.push_back({static_cast<std::int64_t>(share * static_cast<double>(update)), kBehind + when, 3 * kBehind + when});
        }
    }
    iteration.insert(iteration.end(), moments.begin(), moments.end());
    return replay_allocator_within(most_fragmentation, tensors.setup(), iteration, kIterations, {.limit_bytes = limit});
}

}  // namespace mgplan::simulator
