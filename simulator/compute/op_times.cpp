#include "simulator/compute/op_times.hpp"

#include <algorithm>
#include <cmath>

namespace mgplan::simulator {

double op_seconds(const model::OpRecord& record, const KernelTimes& times) {
    const auto bytes = static_cast<double>(record.bytes_read + record.bytes_written);
    if (record.name == "matmul") return times.gemm(record.product.m, record.product.n, record.product.k);
    if (record.name.starts_with("grouped_matmul")) {
        const auto side = std::max<std::int64_t>(1, std::llround(std::cbrt(record.flops / 2)));
        return std::max(times.gemm(side, side, side), times.memory_bound(bytes));
    }
    if (record.name == "attention") return times.attention_forward(record.flops, record.attention.sequence, record.attention.qk_dim);
    if (record.name == "attention_backward")
        return times.attention_backward(record.flops, record.attention.sequence, record.attention.qk_dim);
    return times.memory_bound(bytes);
}

}  // namespace mgplan::simulator
