#pragma once
// Seconds of one recorded op, by the kernel that runs it.

#include "model/device/device.hpp"
#include "simulator/compute/kernels.hpp"

namespace mgplan::simulator {

/// Rates of a GPU for one training precision.
struct OpRates {
    const KernelTimes* products = nullptr;  ///< of products whose operands are fp8, and of all else
    const KernelTimes* storage = nullptr;   ///< of products that stay in the storage type
};

/// Products and attention by their sizes; what adds into a gradient buffer as a weight gradient; grouped products as grouped kernels, of a
/// single group as a plain product; all else by the bytes read and written, at the share of the memory bandwidth that such kernels reach
/// (permutations of rows, the loss over the vocabulary). Attention that no library fuses is two batched products and a softmax over all
/// scores (its backward four products).
[[nodiscard]] double op_seconds(const model::OpRecord& record, const OpRates& rates);

/// Kernels that an eager framework issues for an op; what issuing them takes is the host's part of a pass.
[[nodiscard]] int op_kernels(const model::OpRecord& record);

}  // namespace mgplan::simulator
