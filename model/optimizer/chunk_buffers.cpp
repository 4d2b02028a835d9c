#include "model/optimizer/chunk_buffers.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "model/layers/fp8_weight.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

Shape shape_of(const Parameter& parameter) {
    const auto& s = parameter.shape;
    MGPLAN_ASSERT(!s.empty() && s.size() <= 3, "parameters are vectors, matrices and the taps of convolutions");
    return s.size() == 1 ? Shape{s[0]} : s.size() == 2 ? Shape{s[0], s[1]} : Shape{s[0], s[1], s[2]};
}

/// The trained parameters, or the frozen ones.
std::vector<Parameter> which(std::span<const Parameter> parameters, bool trained) {
    std::vector<Parameter> all;
    std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(all),
                 [&](const Parameter& parameter) { return parameter.trained == trained; });
    return all;
}

BufferLayouts laid_out(std::span<const Parameter> parameters, Dtype dtype, BufferOptions options, const ChunkSharding& sharding,
                       bool stored_in_fp8) {
    std::vector<BufferParameter> list = buffer_parameters(parameters, dtype);
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (stored_in_fp8 && parameters[i].linear_weight) list[i].dtype = Dtype::fp8;
    }
    if (sharding.units == 0) return lay_out_buffers(list, options);
    MGPLAN_ASSERT(sharding.unit_of.size() == list.size() && options.distributed_optimizer, "every parameter belongs to a unit, in shards");
    for (std::size_t i = 0; i < list.size(); ++i) list[i].unit = sharding.unit_of[i];
    options.bucket_size.reset();
    return lay_out_buffers(list, options);
}

}  // namespace

Tensor FlatBuffer::shard_of(const Tensor& shard, std::size_t bucket) const {
    // Shards of equal share: a bucket begins in the shard where it begins in the buffer, by the number of ranks.
    const Bucket& place = layout.buckets[bucket];
    return shard.slice(place.start / layout.dp, place.end / layout.dp);
}

Tensor FlatBuffer::own_parameters(std::int64_t in_buffer, std::int64_t in_shard, std::int64_t size) const {
    return parameter_shard.defined() ? parameter_shard.slice(in_shard, in_shard + size) : parameters.slice(in_buffer, in_buffer + size);
}

Tensor FlatBuffer::own_gradients(std::int64_t in_buffer, std::int64_t in_shard, std::int64_t size) const {
    return gradient_shard.defined() ? gradient_shard.slice(in_shard, in_shard + size) : gradients.slice(in_buffer, in_buffer + size);
}

ChunkBuffers::ChunkBuffers(Device& device, std::span<const Parameter> parameters, Dtype dtype, const BufferOptions& options,
                           ChunkSharding sharding, OwnFp8 fp8, bool stored)
    : parameters_(which(parameters, true)),
      frozen_(which(parameters, false)),
      sharding_(std::move(sharding)),
      layouts_(laid_out(parameters_, dtype, options, sharding_, stored)) {
    MGPLAN_ASSERT(fp8 == OwnFp8::none || sharding_.units == 0, "weights in fp8 are whole");
    MGPLAN_ASSERT(!stored || (fp8 != OwnFp8::none && options.distributed_optimizer),
                  "main parameters of what is stored in fp8 are sharded");
    for (const BufferLayout& layout : layouts_.buffers) bind(device, layout, dtype, fp8);
    bind_frozen(device, dtype);
}

void ChunkBuffers::bind_frozen(Device& device, Dtype compute) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : frozen_) elements += parameter.count();
    if (elements == 0) return;
    const Tensor all = device.zeros({elements}, compute, MemoryCategory::parameters, "frozen parameters");
    std::int64_t begin = 0;
    for (const Parameter& parameter : frozen_) {
        weights_.add(parameter.name, {.value = all.slice(begin, begin + parameter.count()).view(shape_of(parameter)), .gradient = {}});
        begin += parameter.count();
    }
}

void ChunkBuffers::bind(Device& device, const BufferLayout& layout, Dtype compute, OwnFp8 fp8) {
    FlatBuffer buffer;
    buffer.layout = layout;
    const bool divided = sharding_.units > 0 && layout.dp > 1;
    // Holes and padding are zero too: they take part in reductions and norms.
    const auto whole = [&](Dtype dtype, MemoryCategory category, std::string_view name) {
        return device.zeros({layout.numel}, dtype, category, name);
    };
    const auto shard = [&](Dtype dtype, MemoryCategory category, std::string_view name) {
        return device.zeros({layout.numel / layout.dp}, dtype, category, name);
    };
    const auto units = [&](Dtype dtype, MemoryCategory category, std::string_view name) {
        std::vector<Tensor> tensors;
        for (const Bucket& bucket : layout.buckets)
            tensors.push_back(device.without_memory({bucket.end - bucket.start}, dtype, category, name));
        return tensors;
    };
    if (divided && sharding_.parameters) {
        buffer.parameter_shard = shard(layout.param_dtype, MemoryCategory::parameters, "parameter shard");
        buffer.unit_parameters = units(layout.param_dtype, MemoryCategory::parameters, "gathered parameters of a unit");
    } else {
        buffer.parameters = whole(layout.param_dtype, MemoryCategory::parameters, "parameter buffer");
    }
    if (divided) {
        buffer.gradient_shard = shard(layout.grad_dtype, MemoryCategory::gradients, "gradient shard");
        buffer.unit_gradients = units(layout.grad_dtype, MemoryCategory::gradients, "gradients of a unit");
    } else {
        buffer.gradients = whole(layout.grad_dtype, MemoryCategory::gradients, "gradient buffer");
    }
    for (const BufferSpan& span : layout.spans) {
        const Parameter& parameter = parameters_[static_cast<std::size_t>(span.parameter)];
        const Shape shape = shape_of(parameter);
        const auto bucket = static_cast<std::size_t>(span.bucket);
        const std::int64_t start = layout.buckets[bucket].start;
        const auto view = [&](const Tensor& all, const std::vector<Tensor>& by_bucket) {
            return (all.defined() ? all.slice(span.start, span.end) : by_bucket[bucket].slice(span.start - start, span.end - start))
                .view(shape);
        };
        Tensor value = view(buffer.parameters, buffer.unit_parameters);
        std::shared_ptr<Fp8Weight> copies;
        if (layout.param_dtype == Dtype::fp8) {
            copies = make_stored_fp8_weight(device, value);
            value = device.without_memory(shape, compute, MemoryCategory::workspace, "values of a weight that is stored in fp8");
        } else if (fp8 != OwnFp8::none && parameter.linear_weight) {
            copies = make_fp8_weight(device, shape[0], shape[1], fp8);
        }
        // Gradients of a unit are zeros when they are allocated, so they need no start.
        weights_.add(parameter.name, {value, view(buffer.gradients, buffer.unit_gradients),
                                      divided ? nullptr : std::make_shared<GradientStart>(), std::move(copies)});
    }
    buffers_.push_back(std::move(buffer));
}

int ChunkBuffers::unit_of(const FlatBuffer& buffer, std::size_t bucket) const {
    const BufferSpan& first = buffer.layout.spans[static_cast<std::size_t>(buffer.layout.buckets[bucket].first_span)];
    return sharding_.unit_of[static_cast<std::size_t>(first.parameter)];
}

void ChunkBuffers::forget_fp8_copies() {
    for (const Parameter& parameter : parameters_) {
        if (const auto& copies = weights_.at(parameter.name).fp8) copies->fresh = false;
    }
}

void ChunkBuffers::zero_gradients() {
    for (FlatBuffer& buffer : buffers_) fill(buffer.kept_gradients(), 0);
}

void ChunkBuffers::begin_gradients() {
    for (FlatBuffer& buffer : buffers_) {
        if (!buffer.gradients.defined()) {
            fill(buffer.kept_gradients(), 0);
            continue;
        }
        std::vector<BufferSpan> written;
        for (const BufferSpan& span : buffer.layout.spans) {
            const auto& start = weights_.at(parameters_[static_cast<std::size_t>(span.parameter)].name).start;
            if (!start->products || start->sums) continue;
            start->empty = true;
            written.push_back(span);
        }
        std::sort(written.begin(), written.end(), [](const BufferSpan& a, const BufferSpan& b) { return a.start < b.start; });
        written.push_back({.start = buffer.layout.numel});
        std::int64_t begin = 0;
        for (const BufferSpan& span : written) {
            if (begin < span.start) fill(buffer.gradients.slice(begin, span.start), 0);
            begin = span.end;
        }
    }
}

void ChunkBuffers::finish_gradients() {
    for (const Parameter& parameter : parameters_) {
        const Weight& weight = weights_.at(parameter.name);
        if (!weight.start || !weight.start->empty) continue;
        fill(weight.gradient, 0);
        weight.start->empty = false;
    }
}

}  // namespace mgplan::model
