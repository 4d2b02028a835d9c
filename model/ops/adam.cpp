#include "model/ops/adam.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

void adam_step(const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& gradient,
               const AdamHyperparameters& hyper, const Tensor& parameter) {
    expect_float(main, "main parameters");
    MGPLAN_ASSERT(main.dtype() == statistics_dtype(main.dtype()), "main parameters are fp32 or fp64");
    expect_accumulator(main, exp_avg, "the update of first moments");
    expect_accumulator(main, exp_avg_sq, "the update of second moments");
    expect_float(gradient, "gradient of adam_step");
    for (const Tensor* other : {&exp_avg, &exp_avg_sq, &gradient}) expect_elements(*other, main.elements(), "an argument of adam_step");
    expect_same_device(main, exp_avg, exp_avg_sq, gradient);
    if (parameter.defined()) {
        MGPLAN_ASSERT(main.dtype() == Dtype::fp32 && bytes_of(parameter.dtype()) < bytes_of(main.dtype()) &&
                          (!main.device().computes() || parameter.dtype() == Dtype::bf16),
                      "parameters beside fp32 main parameters are narrower: bf16 where they have values");
        expect_elements(parameter, main.elements(), "parameters of adam_step");
        expect_same_device(main, parameter);
    }
    MGPLAN_ASSERT(hyper.step >= 1, "steps of the optimizer count from 1");
    Device& device = main.device();
    device.report({"adam_step", 14.0 * static_cast<double>(main.elements()), total_bytes(main, exp_avg, exp_avg_sq, gradient),
                   total_bytes(main, exp_avg, exp_avg_sq) + (parameter.defined() ? parameter.bytes() : 0)});
    if (device.computes() && main.elements() > 0) {
        device.kernels().adam_step(device, {main, exp_avg, exp_avg_sq, gradient, main.elements(), hyper, parameter});
    }
}

}  // namespace mgplan::model
