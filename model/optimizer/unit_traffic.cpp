#include "model/optimizer/unit_traffic.hpp"

#include <algorithm>

#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

void wait_for(std::vector<std::unique_ptr<Pending>>& gathers) {
    for (auto& each : gathers) each->wait();
    gathers.clear();
}

}  // namespace

UnitTraffic::UnitTraffic(ChunkBuffers& chunk, const ShardGroups& groups, const BucketTrafficOptions& options)
    : chunk_(chunk), groups_(groups), options_(options), units_(static_cast<std::size_t>(chunk.units())) {
    for (std::size_t b = 0; b < chunk.buffers().size(); ++b) {
        const FlatBuffer& buffer = chunk.buffers()[b];
        MGPLAN_ASSERT(ranks_of(buffer).size() == buffer.layout.dp, "a buffer is divided over the ranks of its group");
        for (std::size_t k = 0; k < buffer.layout.buckets.size(); ++k) {
            units_[static_cast<std::size_t>(chunk.unit_of(buffer, k))].buckets.push_back(
                {static_cast<std::int32_t>(b), static_cast<std::int32_t>(k)});
        }
    }
}

Communicator& UnitTraffic::ranks_of(const FlatBuffer& buffer) const {
    return buffer.layout.expert ? *groups_.expert : *groups_.dense;
}

void UnitTraffic::initialize_units(const std::function<void(std::span<const Parameter>)>& initialize) {
    const std::vector<Parameter>& parameters = chunk_.parameters();
    for (Unit& unit : units_) {
        std::int32_t first = static_cast<std::int32_t>(parameters.size()), end = 0;
        for (const BucketId id : unit.buckets) {
            const FlatBuffer& buffer = buffer_of(id);
            const auto bucket = static_cast<std::size_t>(id.bucket);
            for (std::int32_t i = buffer.layout.buckets[bucket].first_span; i < buffer.layout.buckets[bucket].end_span; ++i) {
                const std::int32_t parameter = buffer.layout.spans[static_cast<std::size_t>(i)].parameter;
                first = std::min(first, parameter);
                end = std::max(end, parameter + 1);
            }
            if (!buffer.parameter_shard.defined()) continue;
            buffer.unit_parameters[bucket].storage()->take();
            fill(buffer.unit_parameters[bucket], 0);  // holes and padding
        }
        if (first < end) initialize(std::span(parameters).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)));
        for (const BucketId id : unit.buckets) {
            const FlatBuffer& buffer = buffer_of(id);
            if (!buffer.parameter_shard.defined()) continue;
            const auto bucket = static_cast<std::size_t>(id.bucket);
            const Tensor& whole = buffer.unit_parameters[bucket];
            const Tensor mine = buffer.shard_of(buffer.parameter_shard, bucket);
            const std::int64_t begin = ranks_of(buffer).rank() * mine.elements();
            copy(whole.slice(begin, begin + mine.elements()), mine);
            whole.storage()->give_back();
        }
    }
}

void UnitTraffic::gather(Unit& unit) {
    if (unit.gathered) return;
    unit.gathered = true;
    for (const BucketId id : unit.buckets) {
        const FlatBuffer& buffer = buffer_of(id);
        if (!buffer.parameter_shard.defined()) continue;
        const auto bucket = static_cast<std::size_t>(id.bucket);
        const Tensor& whole = buffer.unit_parameters[bucket];
        whole.storage()->take();
        unit.gathers.push_back(ranks_of(buffer).start_all_gather(buffer.shard_of(buffer.parameter_shard, bucket), whole));
    }
}

void UnitTraffic::before_section(int section, int next) {
    Unit& unit = units_[static_cast<std::size_t>(section)];
    if (chunk_.shards_parameters()) gather(unit);
    wait_for(unit.gathers);
    if (chunk_.shards_parameters() && options_.overlap_gather && next >= 0) gather(units_[static_cast<std::size_t>(next)]);
}

void UnitTraffic::after_section(int section) {
    Unit& unit = units_[static_cast<std::size_t>(section)];
    if (!unit.gathered) return;
    for (const BucketId id : unit.buckets) {
        const FlatBuffer& buffer = buffer_of(id);
        if (buffer.parameter_shard.defined()) buffer.unit_parameters[static_cast<std::size_t>(id.bucket)].storage()->give_back();
    }
    unit.gathered = false;
}

void UnitTraffic::before_gradients(int section) {
    for (const BucketId id : units_[static_cast<std::size_t>(section)].buckets) {
        const FlatBuffer& buffer = buffer_of(id);
        if (!buffer.gradient_shard.defined()) continue;
        const Tensor& whole = buffer.unit_gradients[static_cast<std::size_t>(id.bucket)];
        whole.storage()->take();
        fill(whole, 0);
    }
}

void UnitTraffic::after_gradients(int section, int next) {
    take_sums();
    for (const BucketId id : units_[static_cast<std::size_t>(section)].buckets) {
        FlatBuffer& buffer = buffer_of(id);
        if (!buffer.gradient_shard.defined()) continue;
        const auto bucket = static_cast<std::size_t>(id.bucket);
        const Tensor& whole = buffer.unit_gradients[bucket];
        if (const double factor = factor_of(buffer); factor != 1) scale(whole, factor);
        const Tensor sum = whole.device().empty({whole.elements() / buffer.layout.dp}, whole.dtype(), MemoryCategory::gradients,
                                                "reduced gradients of a unit");
        arriving_.push_back({&buffer, bucket, sum, ranks_of(buffer).start_reduce_scatter(whole, sum, options_.reduction)});
    }
    if (!options_.overlap_reduce || next < 0) take_sums();
}

void UnitTraffic::take_sums() {
    for (Arriving& each : arriving_) {
        each.pending->wait();
        add(each.sum, each.buffer->shard_of(each.buffer->gradient_shard, each.bucket));
        each.buffer->unit_gradients[each.bucket].storage()->give_back();
    }
    arriving_.clear();
}

void UnitTraffic::finish_reductions() {
    MGPLAN_ASSERT(arriving_.empty(), "a backward waits for its last reduction");
    for (FlatBuffer& buffer : chunk_.buffers()) {
        // Gradients of a group of one are not reduced unit by unit.
        if (const double factor = factor_of(buffer); !buffer.gradient_shard.defined() && factor != 1) scale(buffer.gradients, factor);
        Communicator* const replicas = buffer.layout.expert ? groups_.expert_replicas : groups_.dense_replicas;
        if (replicas != nullptr) replicas->all_reduce(buffer.kept_gradients(), options_.reduction);
    }
}

void UnitTraffic::start_gathers() {
    if (chunk_.shards_parameters()) return;
    finish_gathers();
    for (Unit& unit : units_) {
        for (const BucketId id : unit.buckets) {
            const FlatBuffer& buffer = buffer_of(id);
            Communicator& ranks = ranks_of(buffer);
            if (ranks.size() == 1) continue;
            const Bucket& bucket = buffer.layout.buckets[static_cast<std::size_t>(id.bucket)];
            const std::int64_t each = (bucket.end - bucket.start) / ranks.size(), begin = bucket.start + ranks.rank() * each;
            unit.gathers.push_back(
                ranks.start_all_gather(buffer.parameters.slice(begin, begin + each), buffer.parameters.slice(bucket.start, bucket.end)));
        }
        if (!options_.overlap_gather) wait_for(unit.gathers);
    }
}

void UnitTraffic::finish_gathers() {
    if (chunk_.shards_parameters()) return;
    for (Unit& unit : units_) wait_for(unit.gathers);
}

}  // namespace mgplan::model
