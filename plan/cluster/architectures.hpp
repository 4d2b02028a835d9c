#pragma once
// NVIDIA's architectures by compute capability times 10 (CUDA C++ Programming Guide, "Compute Capabilities"), as
// ClusterSpec::compute_capability and KernelTraits::architecture have it. What one of them brought, those above it have too.

namespace mgplan::architectures {

inline constexpr int kAda = 89;  ///< products in fp8
inline constexpr int kHopper = 90;
inline constexpr int kBlackwell = 100;  ///< products with a scale for each block of 32 values
inline constexpr int kBlackwellUltra = 103;

}  // namespace mgplan::architectures
