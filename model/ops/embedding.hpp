#pragma once
// Looks up rows of a table by id.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// ids (rows) int32, table (n, width) holding ids [first, first + n): row of the table, or zeros for ids outside it.
[[nodiscard]] Tensor embedding(const Tensor& ids, const Tensor& table, std::int64_t first);

/// gradient (n, width) += rows of dy by id, in row order (deterministic); may be fp32.
void embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t first, const Tensor& gradient);

}  // namespace mgplan::model
