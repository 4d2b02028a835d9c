#pragma once
// Bytes of one row of a tensor: what collectives that split by rows count in.

#include <cstdint>

#include "model/device/tensor.hpp"

namespace mgplan::runtime {

/// Bytes of all elements that share an index of the first dimension.
[[nodiscard]] inline std::int64_t row_bytes(const model::Tensor& tensor) {
    std::int64_t bytes = bytes_of(tensor.dtype());
    for (int i = 1; i < tensor.shape().rank(); ++i) bytes *= tensor.shape()[i];
    return bytes;
}

}  // namespace mgplan::runtime
