#include "model/ops/normal_values.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

void fill_normal(const Tensor& x, const NormalDraw& draw) {
    expect_float(x, "x of fill_normal");
    MGPLAN_ASSERT(x.shape().rank() == 2 && draw.pitch >= 0, "a matrix, and counters that ascend");
    Device& device = x.device();
    const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
    device.report({"fill_normal", 0, 0, x.bytes()});
    if (device.computes() && x.elements() > 0) device.kernels().fill_normal(device, {x, rows, columns, draw});
}

}  // namespace mgplan::model
