#pragma once
// Memory of one model chunk's parameters: flat parameter and gradient buffers, and the weights that view them.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/device/device.hpp"
#include "model/layers/context.hpp"
#include "model/optimizer/buffer_layout.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/training/own_fp8.hpp"

namespace mgplan::model {

/// One buffer's tensors. Whole, parameters and gradients have layout.numel elements. Divided over several ranks (ChunkSharding), this
/// rank's shards of all buckets are contiguous, and each bucket has a tensor of its own that has memory while the bucket is in use.
struct FlatBuffer {
    BufferLayout layout;
    Tensor parameters, gradients;                         ///< whole; undefined where divided
    Tensor parameter_shard, gradient_shard;               ///< undefined where whole
    std::vector<Tensor> unit_parameters, unit_gradients;  ///< by bucket, where divided

    [[nodiscard]] const Tensor& kept_gradients() const { return gradient_shard.defined() ? gradient_shard : gradients; }
    /// The part of one of the shards that belongs to a bucket.
    [[nodiscard]] Tensor shard_of(const Tensor& shard, std::size_t bucket) const;
    /// `size` elements of this rank's parameters or gradients, which begin at `in_buffer` of the buffer and at `in_shard` of the shard.
    [[nodiscard]] Tensor own_parameters(std::int64_t in_buffer, std::int64_t in_shard, std::int64_t size) const;
    [[nodiscard]] Tensor own_gradients(std::int64_t in_buffer, std::int64_t in_shard, std::int64_t size) const;
};

/// Sharding of a chunk beyond its optimizer's state: of gradients, and of parameters too on request, unit by unit. A buffer that only one
/// rank has stays whole.
struct ChunkSharding {
    std::vector<int> unit_of;  ///< by parameter
    int units = 0;
    bool parameters = true;
};

/// Allocates the buffers of a chunk and binds its weights to them. Gradients start at zero, parameters undefined. Frozen parameters lie in
/// one tensor, one after the other.
class ChunkBuffers {
public:
    /// With `sharding` each unit is a bucket of each buffer, whatever options.bucket_size says, and options.distributed_optimizer is on.
    /// `fp8`: weights of linear layers have copies in fp8, unless it is none; not with `sharding`. `stored`: the first copy is the
    /// parameter, in a buffer of its own, and Weight::value has no memory; with options.distributed_optimizer.
    ChunkBuffers(Device& device, std::span<const Parameter> parameters, Dtype dtype, const BufferOptions& options,
                 ChunkSharding sharding = {}, OwnFp8 fp8 = OwnFp8::none, bool stored = false);

    /// The trained ones.
    [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
    /// Those whose weights have a value alone, outside of the buffers.
    [[nodiscard]] const std::vector<Parameter>& frozen() const { return frozen_; }
    [[nodiscard]] std::vector<FlatBuffer>& buffers() { return buffers_; }
    [[nodiscard]] const BufferLayouts& layouts() const { return layouts_; }
    [[nodiscard]] const WeightTable& weights() const { return weights_; }
    /// To be called when weights have changed: marks their copies in fp8 as stale.
    void forget_fp8_copies();
    /// Sets all main gradients to zero, padding included.
    void zero_gradients();
    /// The same but for those that products alone make (GradientStart), which the first of them writes.
    void begin_gradients();
    /// Zeroes gradients that no product has written since begin_gradients(). To be called after the step's backwards.
    void finish_gradients();

    [[nodiscard]] int units() const { return sharding_.units; }
    [[nodiscard]] bool shards_parameters() const { return sharding_.units > 0 && sharding_.parameters; }
    /// The unit that a bucket belongs to, with sharding.
    [[nodiscard]] int unit_of(const FlatBuffer& buffer, std::size_t bucket) const;

private:
    void bind(Device& device, const BufferLayout& layout, Dtype compute, OwnFp8 fp8);
    void bind_frozen(Device& device, Dtype compute);

    std::vector<Parameter> parameters_, frozen_;
    ChunkSharding sharding_;
    BufferLayouts layouts_;
    std::vector<FlatBuffer> buffers_;
    WeightTable weights_;
};

}  // namespace mgplan::model
