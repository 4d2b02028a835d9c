#pragma once
// Operands of kernels: addresses and types, never tensors.

#include <cstddef>
#include <cstdint>

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Values a kernel reads; nullptr where a tensor is absent or empty.
struct Input {
    Input() = default;
    Input(const Tensor& tensor) : data(tensor.data()), dtype(tensor.dtype()) {}  // NOLINT(google-explicit-constructor)
    const void* data = nullptr;
    Dtype dtype = Dtype::fp32;
};

/// Values a kernel writes, or reads and writes.
struct Output {
    Output() = default;
    Output(const Tensor& tensor) : data(tensor.data()), dtype(tensor.dtype()) {}  // NOLINT(google-explicit-constructor)
    void* data = nullptr;
    Dtype dtype = Dtype::fp32;
};

/// Returns the operand from element number `elements` on; an absent operand stays absent.
inline Input behind(Input input, std::int64_t elements) {
    if (input.data != nullptr) input.data = static_cast<const std::byte*>(input.data) + elements * bytes_of(input.dtype);
    return input;
}
inline Output behind(Output output, std::int64_t elements) {
    if (output.data != nullptr) output.data = static_cast<std::byte*>(output.data) + elements * bytes_of(output.dtype);
    return output;
}

}  // namespace mgplan::model
