#include "model/ops/cross_entropy.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {
namespace {

std::int64_t rows_of(const Tensor& logits, const VocabularyShard& shard) {
    expect_float(logits, "logits");
    MGPLAN_ASSERT(logits.shape().rank() >= 1, "logits have columns");
    MGPLAN_ASSERT(shard.first >= 0 && shard.valid >= 0 && shard.valid <= logits.shape()[-1], "the valid columns lie inside the logits");
    return logits.shape().rows();
}

void expect_row_values(const Tensor& values, const Tensor& logits, std::string_view what) {
    expect_elements(values, logits.shape().rows(), what);
    expect_dtype(values, statistics_dtype(logits.dtype()), what);
    expect_same_device(logits, values);
}

void expect_targets(const Tensor& targets, const Tensor& logits) {
    expect_elements(targets, logits.shape().rows(), "targets");
    expect_dtype(targets, Dtype::int32, "targets");
    expect_same_device(logits, targets);
}

}  // namespace

Tensor row_maximum(const Tensor& logits, const VocabularyShard& shard) {
    const std::int64_t rows = rows_of(logits, shard);
    Device& device = logits.device();
    Tensor maximum = device.empty({rows}, statistics_dtype(logits.dtype()), MemoryCategory::activations, "logit maximum");
    device.report({"row_maximum", static_cast<double>(logits.elements()), logits.bytes(), maximum.bytes()});
    if (device.computes() && rows > 0) {
        device.kernels().row_maximum(device, {logits, {}, {}, {}, maximum, {}, {}, rows, logits.shape()[-1], shard.first, shard.valid, 0});
    }
    return maximum;
}

SoftmaxSums softmax_sums(const Tensor& logits, const Tensor& targets, const Tensor& maximum, const VocabularyShard& shard) {
    const std::int64_t rows = rows_of(logits, shard);
    expect_targets(targets, logits);
    expect_row_values(maximum, logits, "logit maximum");
    Device& device = logits.device();
    SoftmaxSums sums{device.empty({rows}, maximum.dtype(), MemoryCategory::activations, "sum of exponentials"),
                     device.empty({rows}, maximum.dtype(), MemoryCategory::activations, "target logit")};
    device.report({"softmax_sums", 3.0 * static_cast<double>(logits.elements()), total_bytes(logits, targets, maximum),
                   total_bytes(sums.exponentials, sums.target)});
    if (device.computes() && rows > 0) {
        device.kernels().softmax_sums(
            device,
            {logits, targets, maximum, {}, {}, sums.exponentials, sums.target, rows, logits.shape()[-1], shard.first, shard.valid, 0});
    }
    return sums;
}

Tensor token_losses(const SoftmaxSums& sums, const Tensor& targets) {
    expect_float(sums.exponentials, "sums of exponentials");
    expect_dtype(sums.target, sums.exponentials.dtype(), "target logits");
    expect_shape(sums.target, sums.exponentials.shape(), "target logits");
    expect_dtype(targets, Dtype::int32, "targets");
    expect_elements(targets, sums.target.elements(), "targets");
    expect_same_device(sums.exponentials, sums.target, targets);
    Device& device = sums.exponentials.device();
    Tensor losses = device.empty(sums.target.shape(), sums.target.dtype(), MemoryCategory::activations, "token losses");
    device.report({"token_losses", 2.0 * static_cast<double>(losses.elements()), total_bytes(sums.exponentials, sums.target, targets),
                   losses.bytes()});
    if (device.computes() && losses.elements() > 0) {
        device.kernels().token_losses(device, {sums.exponentials, sums.target, targets, losses, losses.elements()});
    }
    return losses;
}

void add_sum_of_losses(const Tensor& losses, const Tensor& sums, std::int64_t place) {
    expect_float(losses, "losses");
    expect_dtype(sums, Dtype::fp64, "sums of losses");
    MGPLAN_ASSERT(place >= 0 && place < sums.elements(), "the sum has a place");
    expect_same_device(losses, sums);
    Device& device = losses.device();
    const Tensor sum = sums.slice(place, place + 1);
    device.report({"sum_of_losses", static_cast<double>(losses.elements()), losses.bytes() + sum.bytes(), sum.bytes()});
    if (device.computes() && losses.elements() > 0) device.kernels().sum_of_losses(device, {losses, sum, losses.elements()});
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& maximum, const Tensor& exponentials,
                            const VocabularyShard& shard, double d_loss, double soft_cap) {
    const std::int64_t rows = rows_of(logits, shard);
    expect_targets(targets, logits);
    expect_row_values(maximum, logits, "logit maximum");
    expect_row_values(exponentials, logits, "sums of exponentials");
    Device& device = logits.device();
    device.report({"cross_entropy_backward", 4.0 * static_cast<double>(logits.elements()),
                   total_bytes(logits, targets, maximum, exponentials), logits.bytes()});
    if (device.computes() && logits.elements() > 0) {
        device.kernels().cross_entropy_backward(
            device,
            {logits, targets, maximum, exponentials, {}, {}, {}, rows, logits.shape()[-1], shard.first, shard.valid, d_loss, soft_cap});
    }
}

}  // namespace mgplan::model
