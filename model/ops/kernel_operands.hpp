#pragma once
// What kernels read and write: addresses and types, never tensors.

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

}  // namespace mgplan::model
