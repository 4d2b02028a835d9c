#include "model/ops/adam.hpp"

#include <vector>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

void expect_shapes(const AdamArrays& x) {
    expect_float(x.main, "main parameters");
    MGPLAN_ASSERT(x.main.dtype() == statistics_dtype(x.main.dtype()), "main parameters are fp32 or fp64");
    expect_accumulator(x.main, x.exp_avg, "the update of first moments");
    expect_accumulator(x.main, x.exp_avg_sq, "the update of second moments");
    expect_float(x.gradient, "gradient of adam_step");
    for (const Tensor* other : {&x.exp_avg, &x.exp_avg_sq, &x.gradient})
        expect_elements(*other, x.main.elements(), "an argument of adam_step");
    expect_same_device(x.main, x.exp_avg, x.exp_avg_sq, x.gradient);
    if (x.parameter.defined()) expect_rounded_copy(x.main, x.parameter, "parameters of adam_step");
}

}  // namespace

void adam_step(std::span<const AdamArrays> all, const AdamHyperparameters& hyper, const Tensor& factor) {
    MGPLAN_ASSERT(hyper.step >= 1, "steps of the optimizer count from 1");
    if (all.empty()) return;
    const AdamArrays& first = all.front();
    Device& device = first.main.device();
    OpRecord record{"adam_step"};
    if (factor.defined()) {
        expect_dtype(factor, Dtype::fp64, "factor of adam_step");
        expect_elements(factor, 1, "factor of adam_step");
        expect_same_device(first.main, factor);
        record.bytes_read += factor.bytes();
    }
    std::vector<AdamArray> arrays;
    for (const AdamArrays& x : all) {
        expect_shapes(x);
        expect_same_device(first.main, x.main);
        expect_dtype(x.main, first.main.dtype(), "main parameters of one adam_step");
        expect_dtype(x.exp_avg, first.exp_avg.dtype(), "first moments of one adam_step");
        expect_dtype(x.exp_avg_sq, first.exp_avg_sq.dtype(), "second moments of one adam_step");
        expect_dtype(x.gradient, first.gradient.dtype(), "gradients of one adam_step");
        MGPLAN_ASSERT(x.parameter.defined() == first.parameter.defined(), "all arrays of one adam_step have parameters, or none");
        record.flops += 14.0 * static_cast<double>(x.main.elements());
        record.bytes_read += total_bytes(x.main, x.exp_avg, x.exp_avg_sq, x.gradient);
        record.bytes_written += total_bytes(x.main, x.exp_avg, x.exp_avg_sq, x.parameter);
        if (x.main.elements() > 0)
            arrays.push_back(
                {x.main, x.exp_avg, x.exp_avg_sq, x.gradient, x.parameter, x.main.elements(), x.decays ? hyper.weight_decay : 0});
    }
    record.launches = launches_for_arrays(std::ssize(arrays));
    device.report(record);
    if (device.computes() && !arrays.empty())
        device.kernels().adam_step(device, {arrays.data(), std::ssize(arrays), hyper, factor.defined() ? Input(factor) : Input()});
}

}  // namespace mgplan::model
