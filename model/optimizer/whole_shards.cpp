#include "model/optimizer/whole_shards.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "plan/text/rounding.hpp"

namespace mgplan::model {
namespace {

/// Adds one bucket of the chosen parameters after the buffer's others. Returns false if it does not fit.
bool add_packed_bucket(BufferLayout& buffer, std::span<const BufferParameter> parameters, std::vector<std::int32_t> chosen,
                       std::int64_t shard_multiple) {
    const auto numel_of = [&](std::int32_t i) { return parameters[static_cast<std::size_t>(i)].numel; };
    std::stable_sort(chosen.begin(), chosen.end(), [&](std::int32_t a, std::int32_t b) { return numel_of(a) > numel_of(b); });
    std::vector<std::vector<BufferSpan>> shards(static_cast<std::size_t>(buffer.dp));  // positions from each shard's beginning
    const auto held_by = [](const std::vector<BufferSpan>& shard) { return shard.empty() ? 0 : shard.back().end; };
    const auto bucket = static_cast<std::int32_t>(buffer.buckets.size());
    std::int64_t fullest = 0;
    for (const std::int32_t i : chosen) {
        auto& least =
            *std::min_element(shards.begin(), shards.end(), [&](const auto& a, const auto& b) { return held_by(a) < held_by(b); });
        const std::int64_t start = round_up(held_by(least), kParameterMultiple);
        if (numel_of(i) > kMaxBufferNumel - start) return false;
        least.push_back({i, bucket, start, start + numel_of(i)});
        fullest = std::max(fullest, least.back().end);
    }
    const std::int64_t begin = buffer.numel, shard = round_up(fullest, shard_multiple);
    if (shard > (kMaxBufferNumel - begin) / buffer.dp) return false;
    const auto first_span = static_cast<std::int32_t>(buffer.spans.size());
    for (std::size_t s = 0; s < shards.size(); ++s) {
        const std::int64_t origin = begin + static_cast<std::int64_t>(s) * shard;
        for (const BufferSpan& span : shards[s]) buffer.spans.push_back({span.parameter, bucket, origin + span.start, origin + span.end});
    }
    buffer.numel = begin + shard * buffer.dp;
    const std::int64_t unpadded = buffer.spans.back().end - begin;
    buffer.buckets.push_back({begin, buffer.numel, unpadded, first_span, static_cast<std::int32_t>(buffer.spans.size())});
    buffer.numel_unpadded += unpadded;
    return true;
}

}  // namespace

bool fill_with_whole_parameters(BufferLayout& buffer, std::span<const BufferParameter> parameters, std::span<const std::int32_t> order,
                                const BufferOptions& options) {
    const std::int64_t size = effective_bucket_size(options).value_or(std::numeric_limits<std::int64_t>::max());
    const std::int64_t multiple =
        std::lcm(kParameterMultiple, bucket_end_multiple(buffer.dp, options.pad_buckets_for_high_nccl_busbw) / buffer.dp);
    std::vector<std::int32_t> open;
    std::int64_t held = 0, largest = 0;
    for (const std::int32_t i : order) {
        const std::int64_t numel = parameters[static_cast<std::size_t>(i)].numel;
        open.push_back(i);
        if (numel > kMaxBufferNumel - held) return false;
        held += numel;
        largest = std::max(largest, numel);
        if (held < size || held / buffer.dp < largest) continue;
        if (!add_packed_bucket(buffer, parameters, std::move(open), multiple)) return false;
        open.clear();
        held = largest = 0;
    }
    return open.empty() || add_packed_bucket(buffer, parameters, std::move(open), multiple);
}

}  // namespace mgplan::model
