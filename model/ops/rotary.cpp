#include "model/ops/rotary.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {
namespace {

void expect_turn(const Positions& positions, std::int64_t rows, std::int64_t rotated, std::int64_t head_dim, const RotaryAngles& angles) {
    MGPLAN_ASSERT(rows == positions.rows(), "x of rotary has a row for each position");
    MGPLAN_ASSERT(rotated >= 0 && rotated % 2 == 0 && rotated <= head_dim, "an even number of each head's values is turned");
    MGPLAN_ASSERT(angles.base > 0 && angles.factor > 0, "the base of the angles is positive, and their factor");
}

}  // namespace

Tensor rotary(const Tensor& x, const Positions& positions, std::int64_t rotated, const RotaryAngles& angles, bool inverse) {
    expect_float(x, "x of rotary");
    MGPLAN_ASSERT(x.shape().rank() == 3, "x of rotary has rows, heads and values");
    expect_turn(positions, x.shape()[0], rotated, x.shape()[2], angles);
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "rotary output");
    device.report({"rotary", 3.0 * static_cast<double>(x.shape()[0] * x.shape()[1] * rotated), x.bytes(), y.bytes(),
                   (rotated < x.shape()[2] ? 1 : 0) + (rotated > 0 ? 1 : 0)});
    if (device.computes() && x.elements() > 0) {
        device.kernels().rotary(device, {x, y, positions, x.shape()[1], x.shape()[2], rotated, angles, inverse});
    }
    return y;
}

void rotary_in_place(const Tensor& packed, const PackedHeads& heads, const Positions& positions, std::int64_t rotated,
                     const RotaryAngles& angles, bool inverse) {
    expect_float(packed, "packed heads of rotary");
    expect_packed(packed, heads);
    expect_turn(positions, packed.shape()[0], rotated, heads.head_dim, angles);
    MGPLAN_ASSERT(rotated > 0, "some of each head's values are turned");
    Device& device = packed.device();
    const std::int64_t turned = heads.heads + heads.kv_heads, values = packed.shape()[0] * turned * rotated;
    device.report({"rotary", 3.0 * static_cast<double>(values), values * bytes_of(packed.dtype()), values * bytes_of(packed.dtype()), 1});
    if (device.computes() && packed.elements() > 0) {
        device.kernels().rotary(device,
                                {packed, packed, positions, turned, heads.head_dim, rotated, angles, inverse, heads.group_heads() + 1});
    }
}

}  // namespace mgplan::model
