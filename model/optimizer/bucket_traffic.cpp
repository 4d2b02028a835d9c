#include "model/optimizer/bucket_traffic.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "model/ops/elementwise.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

void wait_all(std::vector<std::unique_ptr<Pending>>& pending) {
    for (auto& each : pending) each->wait();
    pending.clear();
}

}  // namespace

BucketTrafficOptions gradient_weights(std::int64_t data_ranks, std::int64_t expert_data_ranks, bool average_in_collective,
                                      bool per_token_loss) {
    MGPLAN_ASSERT(!(average_in_collective && per_token_loss), "a mean over ranks and one over tokens exclude each other");
    BucketTrafficOptions options;
    if (per_token_loss) return options;
    if (average_in_collective) {
        options.reduction = Reduction::average;
        options.expert_factor = static_cast<double>(expert_data_ranks) / static_cast<double>(data_ranks);
    } else {
        options.dense_factor = options.expert_factor = 1 / static_cast<double>(data_ranks);
    }
    return options;
}

BucketTraffic::BucketTraffic(ChunkBuffers& chunk, std::span<const int> unit_of, int units, Communicator& dp_cp, Communicator& expert_dp,
                             const BucketTrafficOptions& options)
    : chunk_(chunk),
      dp_cp_(dp_cp),
      expert_dp_(expert_dp),
      options_(options),
      of_unit_(static_cast<std::size_t>(units)),
      backwards_left_(static_cast<std::size_t>(units)) {
    MGPLAN_ASSERT(unit_of.size() == chunk.parameters().size(), "every parameter belongs to a unit");
    const BufferLayouts& layouts = chunk.layouts();
    for (const auto* kind : {&layouts.bucket_groups, &layouts.expert_bucket_groups}) {
        for (const BucketGroup& buckets : *kind) {
            std::set<int> used;
            for (const BucketId id : buckets) {
                const BufferLayout& buffer = layouts.buffers[static_cast<std::size_t>(id.buffer)];
                const Bucket& bucket = buffer.buckets[static_cast<std::size_t>(id.bucket)];
                for (std::int32_t i = bucket.first_span; i < bucket.end_span; ++i) {
                    used.insert(unit_of[static_cast<std::size_t>(buffer.spans[static_cast<std::size_t>(i)].parameter)]);
                }
            }
            MGPLAN_ASSERT(!used.empty() && *used.begin() >= 0 && *used.rbegin() < units, "a group's parameters are of units that exist");
            for (const int unit : used) of_unit_[static_cast<std::size_t>(unit)].push_back(groups_.size());
            Group group;
            group.buckets = buckets;
            group.first_unit = *used.begin();
            group.units = static_cast<int>(used.size());
            groups_.push_back(std::move(group));
        }
    }
    gather_order_.resize(groups_.size());
    std::iota(gather_order_.begin(), gather_order_.end(), std::size_t{0});
    std::stable_sort(gather_order_.begin(), gather_order_.end(),
                     [&](std::size_t a, std::size_t b) { return groups_[a].first_unit < groups_[b].first_unit; });
}

Communicator& BucketTraffic::ranks_of(const FlatBuffer& buffer) const {
    return buffer.layout.expert ? expert_dp_ : dp_cp_;
}

void BucketTraffic::begin_step(std::int64_t microbatches) {
    std::fill(backwards_left_.begin(), backwards_left_.end(), microbatches);
    for (Group& group : groups_) {
        group.incomplete = group.units;
        group.reduced = false;
    }
}

void BucketTraffic::reduce(Group& group) {
    group.reduced = true;
    for (const BucketId id : group.buckets) {
        const FlatBuffer& buffer = chunk_.buffers()[static_cast<std::size_t>(id.buffer)];
        const Bucket& bucket = buffer.layout.buckets[static_cast<std::size_t>(id.bucket)];
        const Tensor whole = buffer.gradients.slice(bucket.start, bucket.end);
        const double factor = buffer.layout.expert ? options_.expert_factor : options_.dense_factor;
        if (factor != 1) scale(whole, factor);
        Communicator& ranks = ranks_of(buffer);
        if (ranks.size() == 1) continue;
        if (options_.distributed) {
            // In place: this rank's shard of the bucket receives the sum.
            const ElementRange mine = shard_of_bucket(buffer.layout, static_cast<std::size_t>(id.bucket), ranks.rank());
            group.reductions.push_back(ranks.start_reduce_scatter(whole, buffer.gradients.slice(mine.start, mine.end), options_.reduction));
        } else {
            group.reductions.push_back(ranks.start_all_reduce(whole, options_.reduction));
        }
    }
    if (!options_.overlap_reduce) wait_all(group.reductions);
}

void BucketTraffic::finish_reductions() {
    for (Group& group : groups_) {
        if (!group.reduced) {
            MGPLAN_ASSERT(!options_.overlap_reduce, "every unit's backwards were reported");
            reduce(group);
        }
    }
    for (Group& group : groups_) wait_all(group.reductions);
}

void BucketTraffic::gather(Group& group) {
    for (const BucketId id : group.buckets) {
        const FlatBuffer& buffer = chunk_.buffers()[static_cast<std::size_t>(id.buffer)];
        Communicator& ranks = ranks_of(buffer);
        if (ranks.size() == 1) continue;
        const Bucket& bucket = buffer.layout.buckets[static_cast<std::size_t>(id.bucket)];
        const ElementRange mine = shard_of_bucket(buffer.layout, static_cast<std::size_t>(id.bucket), ranks.rank());
        group.gathers.push_back(
            ranks.start_all_gather(buffer.parameters.slice(mine.start, mine.end), buffer.parameters.slice(bucket.start, bucket.end)));
    }
    if (!options_.overlap_gather) {
        wait_all(group.gathers);
    } else if (!group.gathers.empty()) {
        ++gathering_;
    }
}

void BucketTraffic::start_gathers() {
    if (!options_.distributed) return;
    finish_gathers();
    for (const std::size_t index : gather_order_) gather(groups_[index]);
}

void BucketTraffic::finish_gathers() {
    for (const std::size_t index : gather_order_) wait_all(groups_[index].gathers);
    gathering_ = 0;
}

void BucketTraffic::before_use(int unit) {
    if (gathering_ == 0) return;
    for (const std::size_t index : of_unit_[static_cast<std::size_t>(unit)]) {
        Group& group = groups_[index];
        if (group.gathers.empty()) continue;
        wait_all(group.gathers);
        --gathering_;
    }
}

void BucketTraffic::after_backward(int unit) {
    if (!options_.overlap_reduce) return;
    auto& left = backwards_left_[static_cast<std::size_t>(unit)];
    MGPLAN_ASSERT(left > 0, "a unit runs one backward for each microbatch");
    if (--left > 0) return;
    for (const std::size_t index : of_unit_[static_cast<std::size_t>(unit)]) {
        if (--groups_[index].incomplete == 0) reduce(groups_[index]);
    }
}

}  // namespace mgplan::model
