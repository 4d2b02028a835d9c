#include "model/ops/embedding.hpp"

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {

Tensor embedding(const Tensor& ids, const Tensor& table, std::int64_t first) {
    expect_dtype(ids, Dtype::int32, "ids of embedding");
    expect_float(table, "table of embedding");
    MGPLAN_ASSERT(table.shape().rank() == 2, "the table of embedding has rows and columns");
    expect_same_device(ids, table);
    Device& device = table.device();
    const std::int64_t rows = ids.elements(), width = table.shape()[1];
    Tensor y = device.empty({rows, width}, table.dtype(), MemoryCategory::activations, "embedding output");
    device.report({"embedding", 0, ids.bytes() + y.bytes(), y.bytes()});
    if (device.computes() && y.elements() > 0) {
        device.kernels().embedding(device, {ids, table, y, rows, width, first, table.shape()[0]});
    }
    return y;
}

void embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t first, const Tensor& gradient) {
    expect_dtype(ids, Dtype::int32, "ids of embedding_backward");
    expect_accumulator(gradient, dy, "gradient of embedding_backward");
    MGPLAN_ASSERT(gradient.shape().rank() == 2, "the gradient of embedding_backward has rows and columns");
    const std::int64_t rows = ids.elements(), width = gradient.shape()[1];
    MGPLAN_ASSERT(dy.shape().rank() >= 1 && dy.shape().rows() == rows && dy.shape()[-1] == width, "dy has one row for each id");
    expect_same_device(dy, ids);
    Device& device = dy.device();
    const std::int64_t touched = rows * width * bytes_of(gradient.dtype());
    device.report({"embedding_backward", static_cast<double>(dy.elements()), total_bytes(dy, ids) + touched, touched, 7});
    const Tensor scratch = take_scratch(device, embedding_backward_scratch_bytes(device.traits(), rows), "rows by id");
    if (device.computes() && dy.elements() > 0) {
        device.kernels().embedding_backward(device, {dy, ids, gradient, rows, width, first, gradient.shape()[0], scratch});
    }
}

}  // namespace mgplan::model
