#pragma once
// A few values on their way from a device to the host, which works ahead meanwhile.

#include <span>
#include <vector>

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Values of one device, sent and received by its thread, in turn. Not while the device's work is captured for a CUDA graph. Must not
/// outlive the device.
class LateValues {
public:
    virtual ~LateValues() = default;
    /// Issues copies of these tensors (fp64, of the device's memory) after all that was issued so far, and waits for nothing. The tensors
    /// may change or be freed as soon as it returns.
    virtual void send(std::span<const Tensor> tensors) = 0;
    /// Waits for the copies alone and returns them: the values of one tensor after those of the other. Zeros on the meta device.
    [[nodiscard]] virtual std::vector<double> receive() = 0;
};

}  // namespace mgplan::model
