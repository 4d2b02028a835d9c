#include "model/optimizer/shard_ranges.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Calls `use` with each parameter's span that overlaps `shard` and their common part.
template <class Use>
void for_each_overlap(const BufferLayout& buffer, const Bucket& bucket, ElementRange shard, Use use) {
    const auto last = buffer.spans.begin() + bucket.end_span;
    auto span = std::partition_point(buffer.spans.begin() + bucket.first_span, last,
                                     [&](const BufferSpan& candidate) { return candidate.end <= shard.start; });
    for (; span != last && span->start < shard.end; ++span)
        use(*span, ElementRange{std::max(span->start, shard.start), std::min(span->end, shard.end)});
}

}  // namespace

ElementRange shard_of_bucket(const BufferLayout& buffer, std::size_t bucket, std::int64_t dp_rank) {
    MGPLAN_ASSERT(buffer.sharded, "only the distributed optimizer shards its buffers");
    MGPLAN_ASSERT(bucket < buffer.buckets.size() && dp_rank >= 0 && dp_rank < buffer.dp, "a bucket and a rank of this buffer");
    const Bucket& whole = buffer.buckets[bucket];
    const std::int64_t size = (whole.end - whole.start) / buffer.dp;
    return {whole.start + dp_rank * size, whole.start + (dp_rank + 1) * size};
}

std::vector<ShardRange> shard_ranges(const BufferLayout& buffer, std::size_t bucket, std::int64_t dp_rank) {
    const ElementRange shard = shard_of_bucket(buffer, bucket, dp_rank);
    const Bucket& whole = buffer.buckets[bucket];
    const auto seen_from = [](ElementRange range, std::int64_t origin) { return ElementRange{range.start - origin, range.end - origin}; };
    std::vector<ShardRange> ranges;
    for_each_overlap(buffer, whole, shard, [&](const BufferSpan& span, ElementRange part) {
        ranges.push_back({span.parameter, part, seen_from(part, whole.start), seen_from(part, shard.start), seen_from(part, span.start)});
    });
    return ranges;
}

std::int64_t owned_numel(const BufferLayout& buffer, std::int64_t dp_rank) {
    std::int64_t numel = 0;
    for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
        for_each_overlap(buffer, buffer.buckets[bucket], shard_of_bucket(buffer, bucket, dp_rank),
                         [&](const BufferSpan&, ElementRange part) { numel += part.size(); });
    }
    return numel;
}

}  // namespace mgplan::model
