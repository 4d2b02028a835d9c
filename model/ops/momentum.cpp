#include "model/ops/momentum.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

void momentum_step(const Tensor& main, const Tensor& momentum, const Tensor& gradient, const MomentumHyperparameters& hyper) {
    expect_float(main, "main parameters");
    MGPLAN_ASSERT(main.dtype() == statistics_dtype(main.dtype()), "main parameters are fp32 or fp64");
    expect_dtype(momentum, main.dtype(), "momentum");
    expect_float(gradient, "gradient of momentum_step");
    for (const Tensor* other : {&momentum, &gradient}) expect_elements(*other, main.elements(), "an argument of momentum_step");
    expect_same_device(main, momentum, gradient);
    Device& device = main.device();
    device.report(
        {"momentum_step", 6.0 * static_cast<double>(main.elements()), total_bytes(main, momentum, gradient), total_bytes(main, momentum)});
    if (device.computes() && main.elements() > 0)
        device.kernels().momentum_step(device, {main, momentum, gradient, main.elements(), hyper});
}

}  // namespace mgplan::model
