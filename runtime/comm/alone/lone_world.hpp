#pragma once
// One rank of a larger world, alone: every operation is done at once, without the others, at its real size.
//
// The values used in place of the others' keep numbers of the usual size, so that a rank does its usual work:
//   all-reduce       the rank's own numbers
//   all-gather       its own part in the place of each; where its part already lies in the whole (parameters), the rest stays
//   reduce-scatter   its own numbers of its part
//   all-to-all       its own rows, again and again
//   receive          numbers between -1 and 1 (activations and gradients of other stages), zeros for integers
// Losses and gradients are therefore no model's. Copies inside the device take the time of its memory, not of a network.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/world.hpp"

namespace mgplan::runtime {

/// Returns the values that receives deliver, to be copied to the device's memory once: a block as fp64, one as fp32, one as bf16,
/// and zeros for all other types.
[[nodiscard]] std::vector<std::byte> stand_in_numbers();

/// One thread.
class LoneWorld {
public:
    /// `numbers`: stand_in_numbers() in memory of the rank's device, which outlives this.
    LoneWorld(int rank, int size, const std::byte* numbers);

    /// Its communicators share their state and may outlive this object.
    [[nodiscard]] model::World view() const;
    [[nodiscard]] const model::CollectiveCounter& traffic() const { return *traffic_; }

private:
    int rank_, size_;
    const std::byte* numbers_;
    std::shared_ptr<model::CollectiveCounter> traffic_ = std::make_shared<model::CollectiveCounter>();
};

}  // namespace mgplan::runtime
