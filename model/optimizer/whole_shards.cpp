#include "model/optimizer/whole_shards.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "plan/text/rounding.hpp"

namespace mgplan::model {
namespace {

/// A shard of a bucket holds at most this multiple of an even share if another shard has room (_NUMEL_EPSILON).
constexpr double kMostOfEvenShare = 1.3;
/// A bucket holds at least this part of its largest matrix for each shard (PADDING_FLOOR).
constexpr double kLeastFilled = 0.9;

std::size_t index_of_least(const std::vector<std::int64_t>& values) {
    return static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
}

/// Places matrices bucket by bucket.
class Packer {
public:
    Packer(BufferLayout& buffer, std::span<const BufferParameter> parameters, const BufferOptions& options)
        : buffer_(buffer),
          parameters_(parameters),
          multiple_(std::lcm(kParameterMultiple, bucket_end_multiple(buffer.dp, options.pad_buckets_for_high_nccl_busbw) / buffer.dp)),
          size_(effective_bucket_size(options)),
          work_(static_cast<std::size_t>(buffer.dp)),
          estimated_(static_cast<std::size_t>(buffer.dp)) {}

    bool add(std::int32_t parameter) {
        const std::int64_t numel = parameters_[static_cast<std::size_t>(parameter)].numel;
        if (numel > kMaxBufferNumel - held_) return false;
        if (is_full() && !absorbs(numel) && !close()) return false;
        std::int64_t& shard = estimated_[index_of_least(estimated_)];
        shard = round_up(shard, kParameterMultiple) + numel;
        open_.push_back(parameter);
        held_ += numel;
        largest_ = std::max(largest_, numel);
        return true;
    }

    /// Adds the bucket that is open, if any. False if it does not fit.
    bool close() {
        if (open_.empty()) return true;
        const auto cost_of = [&](std::int32_t i) { return parameters_[static_cast<std::size_t>(i)].orthogonalise_cost; };
        std::stable_sort(open_.begin(), open_.end(), [&](std::int32_t a, std::int32_t b) { return cost_of(a) > cost_of(b); });
        const double most = static_cast<double>(held_) / static_cast<double>(buffer_.dp) * kMostOfEvenShare;
        std::vector<std::int64_t> ends(work_.size());
        std::vector<std::vector<BufferSpan>> shards(work_.size());  // positions from each shard's beginning
        const auto bucket = static_cast<std::int32_t>(buffer_.buckets.size());
        for (const std::int32_t i : open_) {
            const std::int64_t numel = parameters_[static_cast<std::size_t>(i)].numel;
            const std::size_t shard = shard_for(numel, most, ends);
            const std::int64_t start = round_up(ends[shard], kParameterMultiple);
            if (numel > kMaxBufferNumel - start) return false;
            shards[shard].push_back({i, bucket, start, start + numel});
            ends[shard] = start + numel;
            work_[shard] += cost_of(i);
        }
        const std::int64_t begin = buffer_.numel, shard = round_up(*std::max_element(ends.begin(), ends.end()), multiple_);
        if (shard > (kMaxBufferNumel - begin) / buffer_.dp) return false;
        const auto first_span = static_cast<std::int32_t>(buffer_.spans.size());
        for (std::size_t s = 0; s < shards.size(); ++s) {
            const std::int64_t origin = begin + static_cast<std::int64_t>(s) * shard;
            for (const BufferSpan& span : shards[s])
                buffer_.spans.push_back({span.parameter, bucket, origin + span.start, origin + span.end});
        }
        buffer_.numel = begin + shard * buffer_.dp;
        buffer_.buckets.push_back({begin, buffer_.numel, held_, first_span, static_cast<std::int32_t>(buffer_.spans.size())});
        buffer_.numel_unpadded += held_;
        open_.clear();
        held_ = largest_ = 0;
        std::fill(estimated_.begin(), estimated_.end(), 0);
        return true;
    }

private:
    [[nodiscard]] bool is_full() const {
        if (!size_ || open_.empty()) return false;
        const auto filled = static_cast<std::int64_t>(static_cast<double>(buffer_.dp) * static_cast<double>(largest_) * kLeastFilled);
        return held_ >= std::max(*size_, filled);
    }
    /// True if a matrix fits into the padding of the open bucket by the sums of elements.
    [[nodiscard]] bool absorbs(std::int64_t numel) const {
        const auto [least, most] = std::minmax_element(estimated_.begin(), estimated_.end());
        return round_up(*least, kParameterMultiple) + numel <= round_up(*most, multiple_);
    }
    /// The shard with least work among those with room; the emptiest one if none has room.
    [[nodiscard]] std::size_t shard_for(std::int64_t numel, double most, const std::vector<std::int64_t>& ends) const {
        std::optional<std::size_t> best;
        for (std::size_t s = 0; s < ends.size(); ++s) {
            if (static_cast<double>(round_up(ends[s], kParameterMultiple) + numel) > most) continue;
            if (!best || work_[s] < work_[*best]) best = s;
        }
        return best.value_or(index_of_least(ends));
    }

    BufferLayout& buffer_;
    std::span<const BufferParameter> parameters_;
    std::int64_t multiple_;  ///< of a shard's elements
    std::optional<std::int64_t> size_;
    std::vector<double> work_;             ///< by shard, of all buckets so far
    std::vector<std::int64_t> estimated_;  ///< elements by shard of the open bucket, without the sorting that close() does
    std::vector<std::int32_t> open_;
    std::int64_t held_ = 0, largest_ = 0;  ///< elements of the open bucket: of all its matrices, of the largest one
};

}  // namespace

bool fill_with_whole_parameters(BufferLayout& buffer, std::span<const BufferParameter> parameters, std::span<const std::int32_t> order,
                                const BufferOptions& options) {
    Packer packer(buffer, parameters, options);
    return std::all_of(order.begin(), order.end(), [&](std::int32_t i) { return packer.add(i); }) && packer.close();
}

}  // namespace mgplan::model
