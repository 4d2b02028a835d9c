#pragma once
// Categories of tensors, and bytes counted by category: plain values.

#include <array>
#include <cstdint>
#include <string_view>

namespace mgplan::model {

/// Use of an allocation (CLI.md, "Borders"): logits, temporaries and saved tensors are activations; gather and
/// staging buffers communication; GEMM and attention scratch workspace.
enum class MemoryCategory : std::uint8_t { parameters, gradients, optimizer, activations, communication, workspace };
inline constexpr int kMemoryCategories = 6;

[[nodiscard]] std::string_view to_string(MemoryCategory category);

/// Bytes by category, indexed by the enumerator.
using BytesByCategory = std::array<std::int64_t, kMemoryCategories>;

/// Bytes that an allocator holds now and held at most, as requested, without a pool's rounding.
struct MemoryUse {
    BytesByCategory current{};
    BytesByCategory high_water{};  ///< each category's own maximum
    BytesByCategory at_peak{};     ///< those alive when the sum was first at its maximum
    std::int64_t peak = 0;         ///< the largest sum, that of at_peak
    bool operator==(const MemoryUse&) const = default;
};

}  // namespace mgplan::model
