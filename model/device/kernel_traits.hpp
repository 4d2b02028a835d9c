#pragma once
// What decides how much scratch the kernels of a device want. The ops ask, so that a meta device that stands for another
// device allocates exactly what that device would.

#include <cstdint>

namespace mgplan::model {

enum class DeviceKind : std::uint8_t { meta, cpu, cuda };

/// A plain value; the sizes that follow from it stand in model/ops/scratch.hpp.
struct KernelTraits {
    DeviceKind kind = DeviceKind::cpu;  ///< whose kernels run, never meta
    /// cuda: compute capability, 10·major + minor.
    int architecture = 90;
    /// cuda: cuDNN is there, so that attention it can do takes its workspace and not that of the separate products.
    bool fused_attention = true;
    /// cuda: the library multiplies fp8 with scales for blocks, as cuBLASLt does since CUDA 12.9.
    bool block_products = true;
    bool operator==(const KernelTraits&) const = default;
};

}  // namespace mgplan::model
