#pragma once
// What decides how much scratch the kernels of a device want. The ops ask, so that a meta device that stands for another
// device allocates exactly what that device would.

#include <compare>
#include <cstdint>
#include <memory>

namespace mgplan::model {

enum class DeviceKind : std::uint8_t { meta, cpu, cuda };

/// Causal attention of whole sequences as one kernel of a library: bf16, arrays (places, sequences, heads, width) as
/// everywhere, statistics (sequences, heads, places) fp32.
struct FusedShape {
    std::int64_t batch = 0, heads = 0, kv_heads = 0;
    std::int64_t places = 0, key_places = 0;  ///< of queries and keys
    std::int64_t qk_dim = 0, v_dim = 0;
    bool causal = true;  ///< else every query sees every key
    bool backward = false;
    /// Queries, keys and values lie as a packed projection has them (model/ops/qkv.hpp), and so do their gradients: heads of
    /// one width, as many keys as queries.
    bool packed = false;
    auto operator<=>(const FusedShape&) const = default;
};

/// Which shapes of attention the library of a card has a kernel for: asked before anything is taken, so that what other kernels want
/// instead is predicted too. Any thread may ask.
class FusedPlans {
public:
    virtual ~FusedPlans() = default;
    /// Whether there is none for the shape within a workspace of so many bytes. The same answer each time.
    [[nodiscard]] virtual bool refuses(const FusedShape& shape, std::int64_t workspace_bytes) const = 0;
};

/// A value; the sizes that follow from it stand in model/ops/scratch.hpp.
struct KernelTraits {
    DeviceKind kind = DeviceKind::cpu;  ///< whose kernels run, never meta
    /// cuda: compute capability, 10·major + minor.
    int architecture = 90;
    /// cuda: cuDNN is there, so that attention it can do takes its workspace and not that of the separate products.
    bool fused_attention = true;
    /// cuda: the library multiplies fp8 with scales for blocks, as cuBLASLt does since CUDA 12.9.
    bool block_products = true;
    /// cuda: what refuses shapes that the rules of model/ops/fused_attention.hpp allow; nullptr: nothing does.
    std::shared_ptr<const FusedPlans> fused_plans{};
    bool operator==(const KernelTraits&) const = default;
};

}  // namespace mgplan::model
