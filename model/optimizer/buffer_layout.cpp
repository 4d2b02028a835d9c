#include "model/optimizer/buffer_layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "model/optimizer/muon.hpp"
#include "model/optimizer/whole_shards.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/rounding.hpp"

namespace mgplan::model {
namespace {

constexpr std::int64_t kBucketMultiple = 128;
constexpr std::int64_t kBusBandwidthMultiple = std::int64_t{1} << 16;

Dtype grad_dtype_of(Dtype param, const BufferOptions& options) {
    if (options.grad_dtype) return *options.grad_dtype;
    return param == Dtype::fp8 ? Dtype::bf16 : param;
}

/// Fills one buffer from its first position on.
class BufferFiller {
public:
    BufferFiller(BufferLayout& buffer, const BufferOptions& options)
        : buffer_(buffer),
          bucket_size_(effective_bucket_size(options).value_or(std::numeric_limits<std::int64_t>::max())),
          bucket_multiple_(bucket_end_multiple(buffer.dp, options.pad_buckets_for_high_nccl_busbw)) {}

    void add(std::int32_t index, const BufferParameter& parameter) {
        if (full_) return;
        const bool alone = buffer_.sharded && parameter.shared_embedding;
        if (buffer_.sharded) position_ = round_up(position_, kParameterMultiple);
        // The open bucket ends here, after the alignment just made: what it counts as unpadded includes that.
        if ((alone || parameter.unit != unit_) && bucket_is_open()) close_bucket();
        unit_ = parameter.unit;
        if (parameter.numel > kMaxBufferNumel - position_) {
            full_ = true;
            return;
        }
        const std::int64_t end = position_ + parameter.numel;
        buffer_.spans.push_back({index, static_cast<std::int32_t>(buffer_.buckets.size()), position_, end});
        position_ = end;
        if (alone || end - bucket_start_ >= bucket_size_) close_bucket();
    }

    /// False when the parameters did not fit below kMaxBufferNumel.
    [[nodiscard]] bool finish() {
        if (bucket_is_open()) close_bucket();
        buffer_.numel = bucket_start_;
        for (const Bucket& bucket : buffer_.buckets) buffer_.numel_unpadded += bucket.numel_unpadded;
        return !full_ && buffer_.numel <= kMaxBufferNumel;
    }

private:
    [[nodiscard]] bool bucket_is_open() const { return static_cast<std::int32_t>(buffer_.spans.size()) > first_span_; }

    void close_bucket() {
        const auto end_span = static_cast<std::int32_t>(buffer_.spans.size());
        const std::int64_t end = buffer_.sharded ? round_up(position_, bucket_multiple_) : position_;
        buffer_.buckets.push_back({bucket_start_, end, position_ - bucket_start_, first_span_, end_span});
        first_span_ = end_span;
        bucket_start_ = end;
        position_ = end;
        full_ = full_ || end > kMaxBufferNumel;
    }

    BufferLayout& buffer_;
    std::int64_t bucket_size_;
    std::int64_t bucket_multiple_;
    std::int64_t position_ = 0;
    std::int64_t bucket_start_ = 0;
    std::int32_t first_span_ = 0;
    int unit_ = 0;
    bool full_ = false;
};

/// Returns the groups of the dense or of the expert buffers. An fp8 buffer comes with another one for the parameters that stay in
/// bf16 or fp32, few and small; reducing those together with one fp8 bucket saves a communication call for each. They
/// join the last one, so that the others need not wait for them.
std::vector<BucketGroup> partition_buckets(const std::vector<BufferLayout>& buffers, bool expert, bool one_group) {
    BucketGroup all;
    BucketGroup fp8;
    BucketGroup others;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (buffers[b].expert != expert) continue;
        for (std::size_t k = 0; k < buffers[b].buckets.size(); ++k) {
            const BucketId id{static_cast<std::int32_t>(b), static_cast<std::int32_t>(k)};
            all.push_back(id);
            (buffers[b].param_dtype == Dtype::fp8 ? fp8 : others).push_back(id);
        }
    }
    if (all.empty()) return {};
    if (one_group) return {std::move(all)};
    std::vector<BucketGroup> groups;
    for (const BucketId id : fp8.empty() ? others : fp8) groups.push_back({id});
    if (!fp8.empty()) groups.back().insert(groups.back().end(), others.begin(), others.end());
    return groups;
}

void check(std::span<const BufferParameter> parameters, const BufferOptions& options) {
    Problems problems;
    const auto check_ranks = [&problems](const char* name, std::int64_t value) {
        if (value < 1 || value > kMaxBufferRanks) problems.add("{} = {} is out of range; use 1 to {}", name, value, kMaxBufferRanks);
    };
    check_ranks("dp", options.dp);
    check_ranks("edp", options.edp);
    if (options.bucket_size && *options.bucket_size < 1)
        problems.add("bucket size = {} is too small; use 1 or more elements, or none", *options.bucket_size);
    if (options.pp_rank < 0) problems.add("pp rank = {} is negative; use 0 or more", options.pp_rank);
    if (parameters.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
        problems.add("{} parameters are too many; use fewer than 2^31", parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].numel >= 1 && parameters[i].numel <= kMaxBufferNumel) continue;
        problems.add("parameter {} has {} elements; use 1 to {}", i, parameters[i].numel, kMaxBufferNumel);
        break;
    }
    problems.throw_if_any();
}

}  // namespace

BufferParameter buffer_parameter(const Parameter& parameter, Dtype dtype) {
    BufferParameter entry{.numel = parameter.count(),
                          .dtype = dtype,
                          .shared_embedding = parameter.shared_embedding,
                          .expert = parameter.expert_group,
                          .matrix = is_muon_matrix(parameter)};
    if (entry.matrix) {
        const auto [small, large] = std::minmax(parameter.shape[0], parameter.shape[1]);
        entry.orthogonalise_cost = static_cast<double>(large) * static_cast<double>(small) * static_cast<double>(small);
    }
    return entry;
}

std::vector<BufferParameter> buffer_parameters(std::span<const Parameter> parameters, Dtype dtype) {
    std::vector<BufferParameter> list;
    list.reserve(parameters.size());
    for (const Parameter& parameter : parameters) list.push_back(buffer_parameter(parameter, dtype));
    return list;
}

BufferOptions buffer_options(const Layout& layout, const TrainingSpec& training, int pp_rank, int chunk) {
    BufferOptions options;
    const std::int64_t instances = std::max(1, training.distributed_optimizer_instances);
    options.dp = std::max<std::int64_t>(1, layout.dp() * layout.sizes.cp / instances);
    options.edp = std::max<std::int64_t>(1, layout.edp() / instances);
    if (training.overlap_grad_reduce) options.bucket_size = default_bucket_size(options.dp);
    options.distributed_optimizer = layout.engine == Engine::mgplan ? training.distributed_optimizer : training.scatters_gradients();
    options.grad_dtype = training.precision == Precision::fp64 ? Dtype::fp64 : training.grad_dtype;
    options.pp_rank = pp_rank;
    options.disable_bucketing = chunk > 0;
    options.matrices_apart = layout.engine == Engine::mgplan ? training.megatron.optimizer == OptimizerKind::muon
                                                             : training.is_layer_wise() && training.megatron.layer_wise_layout;
    return options;
}

void ParameterSums::add(std::int64_t parameter_numel) {
    ++count;
    numel += parameter_numel;
    aligned += round_up(parameter_numel, kParameterMultiple);
}

std::int64_t uncut_buffer_numel(const ParameterSums& others, std::span<const std::int64_t> alone, std::int64_t dp,
                                const BufferOptions& options) {
    std::int64_t numel = 0;
    if (!options.distributed_optimizer) {
        numel = others.numel;
        for (const std::int64_t parameter : alone) numel += parameter;
        return numel;
    }
    // Every bucket starts and ends at a multiple of 64, as each parameter starts, so that only its own end is to be rounded.
    const std::int64_t multiple = bucket_end_multiple(dp, options.pad_buckets_for_high_nccl_busbw);
    numel = round_up(others.aligned, multiple);
    for (const std::int64_t parameter : alone) numel += round_up(parameter, multiple);
    return numel;
}

std::optional<std::int64_t> effective_bucket_size(const BufferOptions& options) {
    if (options.pp_rank > 0 || options.disable_bucketing) return std::nullopt;
    return options.bucket_size;
}

std::int64_t default_bucket_size(std::int64_t dp) {
    return std::max<std::int64_t>(40'000'000, 1'000'000 * dp);
}

std::optional<std::int64_t> resolve_bucket_size(std::optional<std::int64_t> bucket_size, std::optional<std::int64_t> num_buckets,
                                                std::int64_t parameters, std::int64_t dp, bool overlap_grad_reduce) {
    if (!overlap_grad_reduce) return std::nullopt;
    if (num_buckets && *num_buckets > 0) return std::max<std::int64_t>(1, parameters / *num_buckets);
    return bucket_size ? bucket_size : default_bucket_size(dp);
}

void set_buckets_of_flags(BufferOptions& options, const TrainingSpec& training, std::int64_t parameters) {
    const MegatronSwitches& megatron = training.megatron;
    options.pad_buckets_for_high_nccl_busbw = megatron.pad_buckets;
    std::optional<std::int64_t> size, number;
    if (megatron.bucket_size > 0) size = megatron.bucket_size;
    if (megatron.num_buckets > 0) number = megatron.num_buckets;
    options.bucket_size = resolve_bucket_size(size, number, parameters, options.dp, training.overlap_grad_reduce);
}

std::int64_t bucket_end_multiple(std::int64_t dp, bool for_high_nccl_busbw) {
    const std::int64_t multiple = std::lcm(dp, kBucketMultiple);
    return for_high_nccl_busbw ? std::lcm(multiple, kBusBandwidthMultiple) : multiple;
}

std::vector<BufferLayout> buffers_of(std::span<const BufferParameter> parameters, const BufferOptions& options) {
    check(parameters, options);
    std::vector<BufferLayout> buffers;
    const auto buffer_of = [&](const BufferParameter& parameter) {
        return std::find_if(buffers.begin(), buffers.end(), [&](const BufferLayout& buffer) {
            return parameter.expert == buffer.expert && parameter.dtype == buffer.param_dtype &&
                   (options.matrices_apart && parameter.matrix) == buffer.matrices;
        });
    };
    for (const bool expert : {false, true}) {
        for (const BufferParameter& parameter : parameters) {
            if (parameter.expert != expert || buffer_of(parameter) != buffers.end()) continue;
            BufferLayout buffer;
            buffer.param_dtype = parameter.dtype;
            buffer.grad_dtype = grad_dtype_of(parameter.dtype, options);
            buffer.expert = expert;
            buffer.matrices = options.matrices_apart && parameter.matrix;
            buffer.sharded = options.distributed_optimizer;
            buffer.dp = expert ? options.edp : options.dp;
            buffers.push_back(std::move(buffer));
        }
    }
    // Gradients become ready from the model's end to its beginning: in this order the first bucket is complete early.
    std::vector<std::vector<std::int32_t>> orders(buffers.size());
    for (std::size_t i = parameters.size(); i-- > 0;)
        orders[static_cast<std::size_t>(buffer_of(parameters[i]) - buffers.begin())].push_back(static_cast<std::int32_t>(i));

    Problems problems;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        BufferLayout& buffer = buffers[b];
        const std::vector<std::int32_t>& order = orders[b];
        bool fits = false;
        if (buffer.matrices && buffer.sharded) {
            fits = fill_with_whole_parameters(buffer, parameters, order, options);
        } else {
            buffer.spans.reserve(order.size());
            BufferFiller filler(buffer, options);
            for (const std::int32_t i : order) filler.add(i, parameters[static_cast<std::size_t>(i)]);
            fits = filler.finish();
        }
        if (!fits) {
            problems.add("the {}{} buffer would hold more than {} elements with its padding; use fewer or smaller parameters",
                         to_string(buffer.param_dtype), buffer.expert ? " expert" : "", kMaxBufferNumel);
        }
    }
    problems.throw_if_any();
    return buffers;
}

BufferLayouts lay_out_buffers(std::span<const BufferParameter> parameters, const BufferOptions& options) {
    BufferLayouts layouts;
    layouts.buffers = buffers_of(parameters, options);
    layouts.bucket_groups = partition_buckets(layouts.buffers, false, options.disable_bucketing);
    layouts.expert_bucket_groups = partition_buckets(layouts.buffers, true, options.disable_bucketing);
    return layouts;
}

}  // namespace mgplan::model
