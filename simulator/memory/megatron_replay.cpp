#include "simulator/memory/megatron_replay.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "model/optimizer/buffer_layout.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/text/errors.hpp"
#include "simulator/memory/gathered_weights.hpp"

namespace mgplan::simulator {
namespace {

/// Appends allocations and frees in order.
class AllocationList {
public:
    /// `labels`: receives one for each allocation; null: none are kept.
    AllocationList(std::int64_t clock, std::vector<AllocationLabel>* labels) : clock_(clock), labels_(labels) {}
    std::size_t take(std::int64_t bytes, std::string_view part, std::string_view tensor) {
        if (labels_ != nullptr) labels_->push_back({std::string(tensor), std::string(part), -1, {}});
        list_.push_back({bytes, clock_++, -1});
        return list_.size() - 1;
    }
    void give_back(std::size_t allocation) { list_[allocation].returned = clock_++; }
    [[nodiscard]] std::vector<Allocation> finish() { return std::move(list_); }

private:
    std::int64_t clock_;
    std::vector<AllocationLabel>* labels_;
    std::vector<Allocation> list_;
};

/// A parameter, or the part of it that a rank owns.
struct OwnedPart {
    std::int64_t numel = 0;
    std::string_view parameter;  ///< its name
};

/// Tensors that a rank of Megatron-LM's stage holds, chunk by chunk.
class StageTensors {
public:
    StageTensors(const Workload& workload, const Layout& layout, int pp_rank)
        : training_(workload.training),
          in_nf4_(workload.model.adapters && workload.model.adapters->base == FrozenStorage::nf4),
          chunks_(stage_parameters(workload.model, layout, pp_rank, Engine::megatron)) {
        const WeightShards& shards = training_.megatron.weight_shards;
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (Parameter& parameter : chunks_[c]) parameter = held_part(std::move(parameter), training_);
            // Frozen parameters stay in tensors of their own.
            const auto frozen =
                std::stable_partition(chunks_[c].begin(), chunks_[c].end(), [](const Parameter& one) { return one.trained; });
            const std::span trained(chunks_[c].begin(), frozen);
            const auto options = over_parts(model::buffer_options(layout, training_, pp_rank, static_cast<int>(c)), shards);
            buffers_.push_back(model::buffers_of(model::buffer_parameters(trained, training_.compute_dtype()), options));
        }
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (const model::BufferLayout& buffer : buffers_[c]) add_owned(buffer, chunks_[c]);
        }
    }

    /// Every parameter, or the part of it that the first data-parallel rank owns. Names refer to this object.
    [[nodiscard]] const std::vector<OwnedPart>& owned() const { return owned_; }

    /// `labels`: as in AllocationList.
    [[nodiscard]] std::vector<Allocation> setup(std::vector<AllocationLabel>* labels) const {
        const std::int64_t element = bytes_of(training_.compute_dtype());
        AllocationList allocations(0, labels);
        std::vector<std::vector<std::size_t>> alone(chunks_.size());
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (const Parameter& parameter : chunks_[c])
                alone[c].push_back(allocations.take(stored(parameter, element), "parameters", parameter.name));
        }
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            for (const model::BufferLayout& buffer : buffers_[c]) {
                const std::string_view held = buffer.expert ? "experts" : "dense parameters";
                if (buffer.sharded) (void)allocations.take(buffer.numel * element, "parameter buffer", held);
                (void)allocations.take(buffer.numel * bytes_of(buffer.grad_dtype), "gradient buffer", held);
                if (!buffer.sharded) continue;
                for (const model::BufferSpan& span : buffer.spans)
                    allocations.give_back(alone[c][static_cast<std::size_t>(span.parameter)]);
            }
        }
        if (training_.compute_dtype() != Dtype::fp32) {
            for (const OwnedPart& part : owned_) {
                const std::size_t copy = allocations.take(part.numel * element, "shard of a parameter", part.parameter);
                (void)allocations.take(part.numel * bytes_of(training_.main_param_dtype), "main parameters", part.parameter);
                allocations.give_back(copy);
            }
        }
        return allocations.finish();
    }

    [[nodiscard]] std::vector<Allocation> moments(std::int64_t from, std::vector<AllocationLabel>* labels) const {
        AllocationList allocations(from, labels);
        for (const OwnedPart& part : owned_) {
            (void)allocations.take(part.numel * bytes_of(training_.exp_avg_dtype), "exp_avg", part.parameter);
            (void)allocations.take(part.numel * bytes_of(training_.exp_avg_sq_dtype), "exp_avg_sq", part.parameter);
        }
        return allocations.finish();
    }

private:
    void add_owned(const model::BufferLayout& buffer, const std::vector<Parameter>& parameters) {
        const auto add = [&](std::int64_t numel, std::int32_t parameter) {
            owned_.push_back({numel, parameters[static_cast<std::size_t>(parameter)].name});
        };
        if (!buffer.sharded) {
            for (const model::BufferSpan& span : buffer.spans) add(span.end - span.start, span.parameter);
            return;
        }
        for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
            for (const model::ShardRange& range : model::shard_ranges(buffer, bucket, 0)) add(range.local.size(), range.parameter);
        }
    }

    /// Bytes of a parameter in a tensor of its own.
    [[nodiscard]] std::int64_t stored(const Parameter& parameter, std::int64_t element) const {
        const bool packed = in_nf4_ && !parameter.trained && parameter.linear_weight;
        return packed ? nf4_bytes(parameter.count()) : parameter.count() * element;
    }

    const TrainingSpec& training_;
    bool in_nf4_;
    std::vector<std::vector<Parameter>> chunks_;
    std::vector<std::vector<model::BufferLayout>> buffers_;  ///< by chunk
    std::vector<OwnedPart> owned_;
};

/// Labels of the allocations played from a trace with names.
std::vector<AllocationLabel> labels_of(const IterationTrace& trace, const std::vector<PlayedTensor>& origins) {
    MGPLAN_ASSERT(trace.names.size() == trace.tensors.size(), "every tensor of the trace has a name");
    std::vector<AllocationLabel> labels;
    labels.reserve(origins.size());
    for (const PlayedTensor& origin : origins) {
        const TensorName& name = trace.names[origin.tensor];
        labels.push_back({std::string(name.tensor), std::string(name.part), name.layer, origin.pass});
    }
    return labels;
}

}  // namespace

std::vector<Allocation> megatron_setup(const Workload& workload, const Layout& layout, int pp_rank) {
    return StageTensors(workload, layout, pp_rank).setup(nullptr);
}

std::vector<Allocation> megatron_moments(const Workload& workload, const Layout& layout, int pp_rank, std::int64_t from) {
    return StageTensors(workload, layout, pp_rank).moments(from, nullptr);
}

RankAllocations megatron_allocations(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                     std::int64_t update, std::size_t most_labelled) {
    ScheduleRequest request;
    request.pp = static_cast<int>(layout.sizes.pp);
    request.vpp = layout.vpp;
    if (layout.vpp > 1) request.group_size = layout.group_size;
    // Warm-up, cool-down and whole groups between them.
    const std::int64_t group = std::max<std::int64_t>(1, layout.group_size);
    const std::int64_t enough = (2 * (layout.sizes.pp + group) + group - 1) / group * group;
    request.microbatches = std::min(layout.num_microbatches, enough);
    RankAllocations allocations;
    allocations.microbatches = request.microbatches;
    std::vector<PlayedTensor> origins;
    std::vector<Allocation>& iteration = allocations.iteration;
    iteration = play_allocations(trace, Schedule(request).rank(pp_rank), {}, most_labelled > 0 ? &origins : nullptr);
    const bool labelled = iteration.size() <= most_labelled;
    std::vector<AllocationLabel>& labels = allocations.iteration_labels;
    if (labelled) labels = labels_of(trace, origins);
    constexpr std::int64_t kBehind = std::numeric_limits<std::int64_t>::max() / 4;
    std::int64_t owned = 0;
    const StageTensors tensors(workload, layout, pp_rank);
    const std::vector<OwnedPart>& parameters = tensors.owned();
    for (const OwnedPart& part : parameters) owned += part.numel;
    if (update > 0) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const double share = static_cast<double>(parameters[i].numel) / static_cast<double>(std::max<std::int64_t>(owned, 1));
            const auto when = static_cast<std::int64_t>(i);
            iteration.push_back({static_cast<std::int64_t>(share * static_cast<double>(update)), kBehind + when, 3 * kBehind + when});
            if (labelled) labels.push_back({std::string(parameters[i].parameter), "copy for the update", -1, {}});
        }
    }
    const std::vector<Allocation> moments = tensors.moments(2 * kBehind, labelled ? &labels : nullptr);
    iteration.insert(iteration.end(), moments.begin(), moments.end());
    allocations.setup = tensors.setup(labelled ? &allocations.setup_labels : nullptr);
    return allocations;
}

std::optional<ReservedMemory> replay_megatron(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                              std::int64_t update, std::int64_t limit, double most_fragmentation) {
    const RankAllocations allocations = megatron_allocations(workload, layout, pp_rank, trace, update, 0);
    return replay_allocator_within(most_fragmentation, allocations.setup, allocations.iteration, kReplayedIterations,
                                   {.limit_bytes = limit});
}

AllocatorHistory record_megatron(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                 std::int64_t update, std::int64_t limit) {
    AllocatorHistory history;
    history.allocations = megatron_allocations(workload, layout, pp_rank, trace, update, kMostRecorded);
    const RankAllocations& allocations = history.allocations;
    if (allocations.iteration_labels.empty()) return history;
    history.memory = *replay_allocator_within(std::numeric_limits<double>::infinity(), allocations.setup, allocations.iteration,
                                              kReplayedIterations, {.limit_bytes = limit}, &history.record);
    return history;
}

}  // namespace mgplan::simulator
