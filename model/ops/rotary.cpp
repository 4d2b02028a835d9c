#include "model/ops/rotary.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

Tensor rotary(const Tensor& x, const Positions& positions, std::int64_t rotated, const RotaryAngles& angles, bool inverse) {
    expect_float(x, "x of rotary");
    MGPLAN_ASSERT(x.shape().rank() == 3 && x.shape()[0] == positions.rows(), "x of rotary has a row for each position, heads and values");
    MGPLAN_ASSERT(rotated >= 0 && rotated % 2 == 0 && rotated <= x.shape()[2], "an even number of each head's values is turned");
    MGPLAN_ASSERT(angles.base > 0 && angles.factor > 0, "the base of the angles is positive, and their factor");
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "rotary output");
    device.report({"rotary", 3.0 * static_cast<double>(x.shape()[0] * x.shape()[1] * rotated), x.bytes(), y.bytes(),
                   (rotated < x.shape()[2] ? 1 : 0) + (rotated > 0 ? 1 : 0)});
    if (device.computes() && x.elements() > 0) {
        device.kernels().rotary(device, {x, y, positions, x.shape()[1], x.shape()[2], rotated, angles, inverse});
    }
    return y;
}

}  // namespace mgplan::model
