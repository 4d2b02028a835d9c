#pragma once
// Planned places of the allocations of a rank whose steps are alike: the n-th take of each step has the place of the n-th in the plan.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/device/memory.hpp"

namespace mgplan::runtime {

/// One expected allocation.
struct ArenaTake {
    std::string_view name;  ///< a literal
    model::MemoryCategory category = model::MemoryCategory::activations;
    std::int64_t bytes = 0;
    std::int64_t offset = 0;  ///< in the arena; kElsewhere if its size depends on values, so that it has no planned place
    static constexpr std::int64_t kElsewhere = -1;
};

/// All of a rank's allocations up to the last step. Every step takes the same; one that ends early (values that are not
/// finite) takes the first of them.
struct ArenaScript {
    std::vector<ArenaTake> construction;  ///< before the first step
    std::vector<ArenaTake> step;
    std::int64_t bytes = 0;        ///< of the arena
    std::int64_t lower_bound = 0;  ///< the most bytes of planned tensors alive at once
    std::int64_t alignment = 256;  ///< of offsets
    /// Bytes after every planned tensor that must not be written, planned with it; 0: none, and nothing is checked.
    std::int64_t guard = 0;
    /// Returns the bytes of the arena that a tensor takes.
    [[nodiscard]] std::int64_t room_of(std::int64_t tensor_bytes) const {
        return (tensor_bytes + alignment - 1) / alignment * alignment + guard;
    }
};

/// Follows a script. Both the run and its prediction use this class.
class ArenaCursor {
public:
    /// The script outlives the cursor.
    explicit ArenaCursor(const ArenaScript& script) : script_(script), takes_(&script.construction) {}

    void begin_step();
    void end_step();

    /// The offset of the next allocation; nothing where it is not planned: its size depends on values, or it is made outside
    /// construction and steps. Such an allocation may be missing too (no bytes are no allocation). Throws RunError, naming
    /// both tensors and the rule, where the script expects another one.
    [[nodiscard]] std::optional<std::int64_t> take(std::int64_t bytes, model::MemoryCategory category, std::string_view name);

private:
    const ArenaScript& script_;
    const std::vector<ArenaTake>* takes_;  ///< the list in use; none outside construction and steps
    std::size_t next_ = 0;
};

}  // namespace mgplan::runtime
