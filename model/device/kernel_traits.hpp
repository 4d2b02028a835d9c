#pragma once
// Properties of a device's kernels that determine their scratch. The ops read them, so that a meta device that stands for another
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
    /// Queries, keys and values have the layout of a packed projection (model/ops/qkv.hpp), and so do their gradients: heads of
    /// one width, as many keys as queries.
    bool packed = false;
    auto operator<=>(const FusedShape&) const = default;
};

/// Shapes of attention that the library of a card has a kernel for: checked before memory is taken, so that the scratch of other kernels
/// used instead is predicted too. Any thread may call it.
class FusedPlans {
public:
    virtual ~FusedPlans() = default;
    /// Returns true if there is none for the shape within a workspace of `workspace_bytes`. The result never changes.
    [[nodiscard]] virtual bool refuses(const FusedShape& shape, std::int64_t workspace_bytes) const = 0;
};

/// A value; model/ops/scratch.hpp has the sizes that follow from it.
struct KernelTraits {
    DeviceKind kind = DeviceKind::cpu;  ///< device that the kernels run on, never meta
    /// cuda: compute capability, 10·major + minor.
    int architecture = 90;
    /// cuda: cuDNN is there, so that attention it can do takes its workspace and not that of the separate products.
    bool fused_attention = true;
    /// cuda: the library multiplies fp8 with scales for blocks, as cuBLASLt does since CUDA 12.9.
    bool block_products = true;
    /// cuda: refuses some shapes that the rules of model/ops/fused_attention.hpp allow; nullptr: none is refused.
    std::shared_ptr<const FusedPlans> fused_plans{};
    bool operator==(const KernelTraits&) const = default;
};

}  // namespace mgplan::model
