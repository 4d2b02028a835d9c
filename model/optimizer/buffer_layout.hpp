#pragma once
// Places of parameters in the flat parameter and gradient buffers of one model chunk, the buckets that the buffers are
// cut into, and the buckets that are reduced together. Computed here for planner, simulator and runtime alike.
//
// The rules are those of Megatron-LM at d98e8a64 (core/distributed/param_and_grad_buffer.py,
// core/optimizer/distrib_optimizer.py compute_full_param_layout); docs/buffers.md explains them. Positions and
// sizes count elements, not bytes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/parameters/parameters.hpp"
#include "plan/training/numeric_types.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::model {

/// Most elements of one buffer, padding included. Larger ones are refused, so that no sum leaves 64 bits.
inline constexpr std::int64_t kMaxBufferNumel = std::int64_t{1} << 60;
/// Largest group that shares a buffer.
inline constexpr std::int64_t kMaxBufferRanks = std::int64_t{1} << 24;
/// Start of a parameter with the distributed optimizer, in elements.
inline constexpr std::int64_t kParameterMultiple = 64;

/// Properties of a parameter that its place depends on; its name stays with the caller, at the same index.
struct BufferParameter {
    std::int64_t numel = 1;
    Dtype dtype = Dtype::bf16;      ///< storage type
    bool shared_embedding = false;  ///< its gradient is also summed between first and last stage: a bucket of its own
    bool expert = false;            ///< reduced over edp instead of dp·cp, so in a buffer apart
    int unit = 0;                   ///< buckets end where it changes: those of one unit are gathered and reduced together
    bool matrix = false;            ///< Muon orthogonalises it (model/optimizer/muon.hpp)
    /// Multiplications with which a matrix is orthogonalised, up to a constant factor: its larger side times the square of the smaller one.
    double orthogonalise_cost = 0;
    bool operator==(const BufferParameter&) const = default;
};

/// A parameter's entry. `dtype`: that it is stored as.
[[nodiscard]] BufferParameter buffer_parameter(const Parameter& parameter, Dtype dtype);
/// The parameters of one chunk as stage_parameters() lists them, all stored as `dtype`.
[[nodiscard]] std::vector<BufferParameter> buffer_parameters(std::span<const Parameter> parameters, Dtype dtype);

struct BufferOptions {
    std::int64_t dp = 1;                           ///< ranks that share the dense buffers: dp·cp of one optimizer instance
    std::int64_t edp = 1;                          ///< the same for expert buffers
    std::optional<std::int64_t> bucket_size = {};  ///< elements from which on a bucket is closed; nothing: unlimited
    bool distributed_optimizer = true;             ///< buckets are sharded: aligns parameters, pads buckets
    bool pad_buckets_for_high_nccl_busbw = false;
    std::optional<Dtype> grad_dtype = Dtype::fp32;  ///< of all gradients; nothing: the parameter's own (bf16 for fp8)
    int pp_rank = 0;                                ///< stages after the first do not cut by size
    bool disable_bucketing = false;                 ///< nor do chunks after a rank's first, whose buckets make one group
    bool matrices_apart = false;                    ///< in buffers of their own, whole in one shard (model/optimizer/whole_shards.hpp)
};

/// One parameter's place.
struct BufferSpan {
    std::int32_t parameter = 0;  ///< index into the list given
    std::int32_t bucket = 0;
    std::int64_t start = 0;
    std::int64_t end = 0;
    bool operator==(const BufferSpan&) const = default;
};

struct Bucket {
    std::int64_t start = 0;
    std::int64_t end = 0;             ///< padded
    std::int64_t numel_unpadded = 0;  ///< up to the last parameter's end: holes between parameters count, end padding does not
    std::int32_t first_span = 0;      ///< its parameters are spans[first_span] … spans[end_span - 1]
    std::int32_t end_span = 0;
    bool operator==(const Bucket&) const = default;
};

/// Parameters of one storage type and kind (dense or expert), one after another.
struct BufferLayout {
    Dtype param_dtype = Dtype::bf16;
    Dtype grad_dtype = Dtype::fp32;
    bool expert = false;
    bool matrices = false;            ///< of Muon's matrices alone
    bool sharded = true;              ///< laid out for the distributed optimizer: every bucket divides into dp equal shards
    std::int64_t dp = 1;              ///< ranks that share it
    std::vector<BufferSpan> spans;    ///< by position: the last parameter of the model comes first
    std::vector<Bucket> buckets;      ///< by position, without gaps
    std::int64_t numel = 0;           ///< end of the last bucket
    std::int64_t numel_unpadded = 0;  ///< sum over the buckets
    bool operator==(const BufferLayout&) const = default;
};

/// A bucket of one of the buffers.
struct BucketId {
    std::int32_t buffer = 0;
    std::int32_t bucket = 0;
    bool operator==(const BucketId&) const = default;
};
/// Buckets whose gradients are reduced by one call, once all of them are ready.
using BucketGroup = std::vector<BucketId>;

struct BufferLayouts {
    std::vector<BufferLayout> buffers;  ///< dense ones first, each kind in the order of first appearance
    std::vector<BucketGroup> bucket_groups;
    std::vector<BucketGroup> expert_bucket_groups;
    bool operator==(const BufferLayouts&) const = default;
};

/// Lays out one model chunk; parameters in module order. O(parameters). Throws ConfigError with all problems: sizes out
/// of range, a parameter without elements, a buffer beyond kMaxBufferNumel.
[[nodiscard]] BufferLayouts lay_out_buffers(std::span<const BufferParameter> parameters, const BufferOptions& options);

/// The buffers alone, for callers that do not communicate.
[[nodiscard]] std::vector<BufferLayout> buffers_of(std::span<const BufferParameter> parameters, const BufferOptions& options);

/// Options of lay_out_buffers() for one model chunk of a rank: groups of one optimizer instance, gradients of the training's
/// type, buckets of Megatron-LM's default size where gradient reduction overlaps.
[[nodiscard]] BufferOptions buffer_options(const Layout& layout, const TrainingSpec& training, int pp_rank, int chunk);

/// Sums over parameters that give the size of a buffer which no bucket size cuts: their order is irrelevant.
struct ParameterSums {
    std::int64_t count = 0;  ///< parameters
    std::int64_t numel = 0;
    std::int64_t aligned = 0;  ///< each rounded up to the multiple at which parameters start with the distributed optimizer
    void add(std::int64_t parameter_numel);
    ParameterSums& operator+=(const ParameterSums& other) {
        count += other.count;
        numel += other.numel;
        aligned += other.aligned;
        return *this;
    }
    [[nodiscard]] ParameterSums times(std::int64_t factor) const { return {count * factor, numel * factor, aligned * factor}; }
    bool operator==(const ParameterSums&) const = default;
};

/// BufferLayout::numel of a buffer that is shared by `dp` ranks and not cut by size. `alone`: shared embeddings, each in a
/// bucket of its own, before all `others` or after them. O(alone).
[[nodiscard]] std::int64_t uncut_buffer_numel(const ParameterSums& others, std::span<const std::int64_t> alone, std::int64_t dp,
                                              const BufferOptions& options);

/// The size bound that applies: nothing where the stage, chunk or request does not cut by size.
[[nodiscard]] std::optional<std::int64_t> effective_bucket_size(const BufferOptions& options);

/// Megatron-LM's default with overlapped gradient reduction: max(40 M, 1 M elements for each of the dp ranks).
[[nodiscard]] std::int64_t default_bucket_size(std::int64_t dp);

/// Bucket size by the rule of Megatron-LM's training loop (training.py resolve_ddp_bucket_size): nothing without overlapped
/// gradient reduction; parameters / num_buckets where a number of buckets is given; else the size given or the default.
[[nodiscard]] std::optional<std::int64_t> resolve_bucket_size(std::optional<std::int64_t> bucket_size,
                                                              std::optional<std::int64_t> num_buckets, std::int64_t parameters,
                                                              std::int64_t dp, bool overlap_grad_reduce);

/// Sets padding and size of buckets by the flags of Megatron-LM in `training`; `parameters`: elements of all chunks of the rank
/// (training.py divides them by --ddp-num-buckets).
void set_buckets_of_flags(BufferOptions& options, const TrainingSpec& training, std::int64_t parameters);

/// A bucket's end is a multiple of this with the distributed optimizer: of dp, so that shards are equal, of 128, so that
/// they start at multiples of 128 elements of 2 bytes or more, which vectorised kernels prefer, and on request of 2^16, which NCCL's fast
/// algorithms need for full bandwidth at large dp.
[[nodiscard]] std::int64_t bucket_end_multiple(std::int64_t dp, bool for_high_nccl_busbw);

}  // namespace mgplan::model
