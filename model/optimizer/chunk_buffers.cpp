#include "model/optimizer/chunk_buffers.hpp"

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
                                          buffer.gradients.slice(span.start, span.end).view(shape)});
        }
        buffers_.push_back(std::move(buffer));
    }
}

void ChunkBuffers::zero_gradients() {
    for (FlatBuffer& buffer : buffers_) fill(buffer.gradients, 0);
}

}  // namespace mgplan::model
