#include "model/ops/momentum.hpp"

#include <vector>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {

void momentum_step(std::span<const MomentumArrays> all, const MomentumHyperparameters& hyper, const Tensor& factor) {
    if (all.empty()) return;
    const MomentumArrays& first = all.front();
    Device& device = first.main.device();
    OpRecord record{"momentum_step"};
    if (factor.defined()) {
        expect_dtype(factor, Dtype::fp64, "factor of momentum_step");
        expect_elements(factor, 1, "factor of momentum_step");
        expect_same_device(first.main, factor);
        record.bytes_read += factor.bytes();
    }
    std::vector<MomentumArray> arrays;
    for (const MomentumArrays& x : all) {
        expect_float(x.main, "main parameters");
        MGPLAN_ASSERT(x.main.dtype() == statistics_dtype(x.main.dtype()), "main parameters are fp32 or fp64");
        expect_dtype(x.main, first.main.dtype(), "main parameters of one momentum_step");
        expect_dtype(x.momentum, x.main.dtype(), "momentum");
        expect_float(x.gradient, "gradient of momentum_step");
        expect_dtype(x.gradient, first.gradient.dtype(), "gradients of one momentum_step");
        for (const Tensor* other : {&x.momentum, &x.gradient}) expect_elements(*other, x.main.elements(), "an argument of momentum_step");
        expect_same_device(first.main, x.main, x.momentum, x.gradient);
        MGPLAN_ASSERT(x.parameter.defined() == first.parameter.defined(), "all arrays of one momentum_step have parameters, or none");
        if (x.parameter.defined()) expect_rounded_copy(x.main, x.parameter, "parameters of momentum_step");
        record.flops += 6.0 * static_cast<double>(x.main.elements());
        record.bytes_read += total_bytes(x.main, x.momentum, x.gradient);
        record.bytes_written += total_bytes(x.main, x.momentum, x.parameter);
        if (x.main.elements() > 0)
            arrays.push_back({x.main, x.momentum, x.gradient, x.parameter, x.main.elements(), x.decays ? hyper.weight_decay : 0});
    }
    record.launches = launches_for_arrays(std::ssize(arrays));
    device.report(record);
    if (device.computes() && !arrays.empty())
        device.kernels().momentum_step(device, {arrays.data(), std::ssize(arrays), hyper, factor.defined() ? Input(factor) : Input()});
}

}  // namespace mgplan::model
