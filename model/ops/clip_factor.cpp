#include "model/ops/clip_factor.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

void add_in_order(const Tensor& values, const Tensor& total) {
    expect_dtype(values, Dtype::fp64, "values of add_in_order");
    expect_dtype(total, Dtype::fp64, "the sum of add_in_order");
    expect_elements(total, 1, "the sum of add_in_order");
    expect_same_device(values, total);
    Device& device = total.device();
    device.report({"add_in_order", static_cast<double>(values.elements()), values.bytes(), total.bytes()});
    if (device.computes()) device.kernels().add_in_order(device, {values, total, values.elements()});
}

void clip_factor(const Tensor& squares, const Tensor& expert_squares, const Tensor& guard, const ClipOptions& options,
                 const Tensor& outcome) {
    for (const Tensor* one : {&squares, &guard}) {
        expect_dtype(*one, Dtype::fp64, "an argument of clip_factor");
        expect_elements(*one, 1, "an argument of clip_factor");
    }
    if (expert_squares.defined()) {
        expect_dtype(expert_squares, Dtype::fp64, "sums of experts of clip_factor");
        expect_elements(expert_squares, 1, "sums of experts of clip_factor");
    }
    expect_dtype(outcome, Dtype::fp64, "outcome of clip_factor");
    expect_elements(outcome, 2, "outcome of clip_factor");
    expect_same_device(squares, expert_squares, guard, outcome);
    MGPLAN_ASSERT(options.clip_norm >= 0 && options.replicas >= 1, "a norm to clip to, and one replica or more");
    Device& device = squares.device();
    device.report({"clip_factor", 0, total_bytes(squares, expert_squares, guard), outcome.bytes()});
    if (!device.computes()) return;
    const Input experts = expert_squares.defined() ? Input(expert_squares) : Input();
    device.kernels().clip_factor(device, {squares, experts, guard, outcome, options.clip_norm, static_cast<double>(options.replicas)});
}

}  // namespace mgplan::model
