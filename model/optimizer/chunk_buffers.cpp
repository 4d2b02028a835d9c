#include "model/optimizer/chunk_buffers.hpp"

#include <algorithm>
#include <memory>

#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

Shape shape_of(const Parameter& parameter) {
    const auto& s = parameter.shape;
    MGPLAN_ASSERT(!s.empty() && s.size() <= 3, "parameters are vectors, matrices and the taps of convolutions");
    return s.size() == 1 ? Shape{s[0]} : s.size() == 2 ? Shape{s[0], s[1]} : Shape{s[0], s[1], s[2]};
}

}  // namespace

ChunkBuffers::ChunkBuffers(Device& device, std::span<const Parameter> parameters, Dtype dtype, const BufferOptions& options)
    : parameters_(parameters.begin(), parameters.end()), layouts_(lay_out_buffers(buffer_parameters(parameters, dtype), options)) {
    for (const BufferLayout& layout : layouts_.buffers) {
        // Holes and padding are zero too: they take part in reductions and norms.
        FlatBuffer buffer{layout, device.zeros({layout.numel}, layout.param_dtype, MemoryCategory::parameters, "parameter buffer"),
                          device.zeros({layout.numel}, layout.grad_dtype, MemoryCategory::gradients, "gradient buffer")};
        for (const BufferSpan& span : layout.spans) {
            const Parameter& parameter = parameters_[static_cast<std::size_t>(span.parameter)];
            const Shape shape = shape_of(parameter);
            weights_.add(parameter.name, {buffer.parameters.slice(span.start, span.end).view(shape),
                                          buffer.gradients.slice(span.start, span.end).view(shape), std::make_shared<GradientStart>()});
        }
        buffers_.push_back(std::move(buffer));
    }
}

void ChunkBuffers::zero_gradients() {
    for (FlatBuffer& buffer : buffers_) fill(buffer.gradients, 0);
}

void ChunkBuffers::begin_gradients() {
    for (FlatBuffer& buffer : buffers_) {
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
        if (!weight.start->empty) continue;
        fill(weight.gradient, 0);
        weight.start->empty = false;
    }
}

}  // namespace mgplan::model
