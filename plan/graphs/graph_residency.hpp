#pragma once
// Memory that a rank's CUDA graphs hold from the first capture to the end of the run, for any amount that each chunk has.
//
// Buffers that graphs write stay allocated whether or not a microbatch is in them:
//   slots     every slot is as large as the largest chunk that uses it; the number of slots is the largest number of chunks
//             alive (graph_slots.hpp). All chunks take the same hidden states, so there is one pool.
//   megatron  buffers come from pools that grow when they are empty and never shrink: they hold the largest amount that
//             was ever alive at once.

#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "plan/graphs/graph_slots.hpp"

namespace mgplan {

class GraphResidency {
public:
    /// The request must be legal (Schedule refuses others). What is alive repeats with every group of microbatches, so a
    /// shorter schedule with the same remainder stands for the whole; for slots only beyond 2^22 entries over all ranks.
    GraphResidency(const ScheduleRequest& request, int pp_rank, GraphPolicy policy);

    /// Returns the amount held of a quantity (buffers, bytes) of which each microbatch has per_chunk[c] in chunk c: never below 0. Results
    /// for other amounts are kept and shared by all threads.
    [[nodiscard]] std::int64_t held(std::span<const std::int64_t> per_chunk) const;
    /// Number of captures of each layer of a chunk: (chunk, slot) pairs, or microbatches.
    [[nodiscard]] std::int64_t copies(int chunk) const { return copies_[static_cast<std::size_t>(chunk)]; }
    /// Largest number of chunks alive at once.
    [[nodiscard]] std::int64_t peak_live() const { return peak_live_; }

private:
    std::int64_t peak_live_ = 0;
    std::vector<std::int64_t> copies_;
    /// slots: for each slot the chunks that work in it; equal slots once, with their number.
    /// megatron: what is alive of each chunk, once for each different moment.
    struct Moment {
        std::vector<std::int64_t> weight;  ///< by chunk
        std::int64_t times = 1;
        auto operator<=>(const Moment&) const = default;
    };
    std::vector<Moment> moments_;
    GraphPolicy policy_;

    /// The moments where some chunks have equal amounts, which most have: what is alive of such chunks together, without moments of which
    /// another has as much of everything. A schedule has hundreds of moments, and of these few are left.
    struct Alike {
        std::vector<std::uint8_t> group;  ///< by chunk: the number of its amount among the different ones
        std::size_t groups = 0;
        std::vector<std::int64_t> alive;  ///< of each group, one moment after another
    };
    static constexpr std::size_t kMostGrouped = 255;  ///< chunks
    /// `group`: Alike::group of the given amounts.
    [[nodiscard]] const Alike& alike(std::span<const std::uint8_t> group, std::size_t groups) const;
    mutable std::mutex mutex_;
    mutable std::list<Alike> alike_;
};

}  // namespace mgplan
