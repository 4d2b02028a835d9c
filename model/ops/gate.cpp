#include "model/ops/gate.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {
namespace {

void expect_gated(const Tensor& x, const Tensor& logits) {
    expect_float(x, "x of gate_rows");
    MGPLAN_ASSERT(x.shape().rank() == 2, "x of gate_rows has rows");
    expect_dtype(logits, x.dtype(), "logits of gate_rows");
    expect_shape(logits, {x.shape()[0], 1}, "logits of gate_rows");
    expect_same_device(x, logits);
}

}  // namespace

Tensor gate_rows(const Tensor& x, const Tensor& logits) {
    expect_gated(x, logits);
    Device& device = x.device();
    Tensor y = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "gated rows");
    device.report({"gate_rows", static_cast<double>(x.elements()), total_bytes(x, logits), y.bytes()});
    if (device.computes() && x.elements() > 0) {
        device.kernels().gate_rows(device, {x, logits, y, x.shape()[0], x.shape()[1]});
    }
    return y;
}

Tensor gate_rows_backward(const Tensor& dy, const Tensor& x, const Tensor& logits, Tensor& d_logits) {
    expect_gated(x, logits);
    expect_dtype(dy, x.dtype(), "dy of gate_rows");
    expect_shape(dy, x.shape(), "dy of gate_rows");
    expect_same_device(x, dy);
    Device& device = x.device();
    Tensor dx = device.empty(x.shape(), x.dtype(), MemoryCategory::activations, "gated row gradient");
    d_logits = device.empty(logits.shape(), x.dtype(), MemoryCategory::activations, "gate logit gradient");
    device.report({"gate_rows_backward", 3.0 * static_cast<double>(x.elements()), total_bytes(dy, x, logits), total_bytes(dx, d_logits)});
    if (device.computes() && x.elements() > 0) {
        device.kernels().gate_rows_backward(device, {dy, x, logits, dx, d_logits, x.shape()[0], x.shape()[1]});
    }
    return dx;
}

}  // namespace mgplan::model
