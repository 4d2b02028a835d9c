#pragma once
// Plans one block of memory for all of a rank's tensors: the place of each allocation of a traced training step.
//
//   persistent | carried | slots | shared scratch
//
// persistent  never given back: parameters, gradients, optimizer state.
// carried     alive across passes without belonging to one microbatch of one chunk: messages on their way to another stage.
// slots       tensors that a chunk's forward saves for its backward; one slot for each microbatch of a chunk alive at the same time,
//             inside it the tensors in the order of taking.
// scratch     tensors that live within one pass. They also use the free part of the pass's own slot: the part that a forward has not
//             reached, or a backward is done with.
// Outside the passes no slot is in use, and tensors lie in slots and scratch as if they were one.
//
// Passes that do the same have the same offsets, relative to their slot and to the scratch: each kind of pass is planned once,
// however many microbatches there are, and a pass of a chunk in a slot finds the same addresses again.

#include <cstdint>
#include <span>
#include <vector>

#include "model/meta/meta_device.hpp"

namespace mgplan::model {

struct StepArena {
    std::vector<std::int64_t> offsets;  ///< of each record; -1 for those left out
    std::int64_t total = 0;             ///< persistent + carried + max(slots + scratch, outside)
    std::int64_t lower_bound = 0;       ///< the most bytes alive at once, without rounding and those left out: no plan needs less
    std::int64_t persistent = 0;
    std::int64_t carried = 0;
    std::int64_t slots = 0;
    std::int64_t slot_count = 0;  ///< the most microbatches of a chunk alive at once
    std::int64_t scratch = 0;
    std::int64_t outside = 0;  ///< taken of slots and scratch by the work before and after the passes
    /// Bytes of the plan beyond the bound, as a share of the bound.
    [[nodiscard]] double waste() const {
        return lower_bound == 0 ? 0 : static_cast<double>(total - lower_bound) / static_cast<double>(lower_bound);
    }
};

/// Goal of a plan.
enum class ArenaPurpose : std::uint8_t {
    least_bytes,      ///< as small as it gets
    fixed_addresses,  ///< CUDA graphs: a pass of a chunk finds the same addresses whenever it works in the same slot
};

/// Plans the trace of a rank: `records` and `ranges` of a MetaDevice that kept both. Records with left_out[i] get no place
/// (`left_out` is empty or as long as `records`). Passes are the outermost ranges named "chunk forward" and "chunk backward",
/// whose numbers are chunks; the k-th backward of a chunk belongs to its k-th forward (where it does not, tensors are carried
/// instead, so that the plan is sound for any order). `alignment`: of every tensor, a power of two. Time is linear in the
/// number of records, except for passes that are planned once.
[[nodiscard]] StepArena plan_step(std::span<const AllocationRecord> records, std::span<const RangeRecord> ranges,
                                  const std::vector<bool>& left_out = {}, std::int64_t alignment = 256,
                                  ArenaPurpose purpose = ArenaPurpose::least_bytes);

}  // namespace mgplan::model
