#pragma once
// Where tensors live and what they are for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mgplan::model {

/// What an allocation holds (CLI.md, "Borders"): logits, temporaries and saved tensors are activations; gather and
/// staging buffers communication; GEMM and attention scratch workspace.
enum class MemoryCategory : std::uint8_t { parameters, gradients, optimizer, activations, communication, workspace };
inline constexpr int kMemoryCategories = 6;

[[nodiscard]] std::string_view to_string(MemoryCategory category);

/// Bytes by category, indexed by the enumerator.
using BytesByCategory = std::array<std::int64_t, kMemoryCategories>;

/// What an allocator holds and held: bytes asked for, without what a pool rounds up.
struct MemoryUse {
    BytesByCategory current{};
    BytesByCategory high_water{};  ///< each category's own maximum
    BytesByCategory at_peak{};     ///< what lived when the sum was first at its maximum
    std::int64_t peak = 0;         ///< the largest sum, that of at_peak
    bool operator==(const MemoryUse&) const = default;
};

/// One source of memory: a pool, or later a table of planned offsets. Owned by a device, used by one thread.
class Allocator {
public:
    virtual ~Allocator() = default;

    /// Memory for `bytes` (> 0), aligned to 64 bytes, contents undefined. `name`, a literal, says in words what it is for.
    /// Throws std::bad_alloc. The meta device's allocator returns an address that only tells its allocations apart.
    [[nodiscard]] virtual std::byte* take(std::int64_t bytes, MemoryCategory category, std::string_view name) = 0;
    /// Gives back what take() returned, with the same bytes and category.
    virtual void give_back(std::byte* memory, std::int64_t bytes, MemoryCategory category) noexcept = 0;
};

}  // namespace mgplan::model
