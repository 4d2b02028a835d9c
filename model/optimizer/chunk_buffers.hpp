#pragma once
// The memory behind one model chunk's parameters: flat parameter and gradient buffers, and the weights that view them.

#include <span>
#include <string>
#include <vector>

#include "model/device/device.hpp"
#include "model/layers/context.hpp"
#include "model/optimizer/buffer_layout.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::model {

/// One buffer's tensors; both have layout.numel elements.
struct FlatBuffer {
    BufferLayout layout;
    Tensor parameters;
    Tensor gradients;
};

/// Allocates the buffers of a chunk and binds its weights to them. Gradients start at zero, parameters undefined.
class ChunkBuffers {
public:
    ChunkBuffers(Device& device, std::span<const Parameter> parameters, Dtype dtype, const BufferOptions& options);

    [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
    [[nodiscard]] std::vector<FlatBuffer>& buffers() { return buffers_; }
    [[nodiscard]] const BufferLayouts& layouts() const { return layouts_; }
    [[nodiscard]] const WeightTable& weights() const { return weights_; }
    /// Sets all main gradients to zero, padding included.
    void zero_gradients();
    /// The same but for those that products alone make (GradientStart), which the first of them writes.
    void begin_gradients();
    /// Sets to zero what no product has written since. Behind the step's backwards.
    void finish_gradients();

private:
    std::vector<Parameter> parameters_;
    BufferLayouts layouts_;
    std::vector<FlatBuffer> buffers_;
    WeightTable weights_;
};

}  // namespace mgplan::model
