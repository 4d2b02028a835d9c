#pragma once
// Microbatches of each chunk that wait for their backward when an op of the schedule begins: all combinations that can be a peak of memory,
// whatever the sizes of the chunks.

#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.hpp"

namespace mgplan::simulator {

/// The state before one op. +k is a forward and -k a backward of chunk k-1.
struct LiveState {
    int op = 0;
    std::vector<std::int32_t> live;  ///< by chunk: forwards done whose backward is not done
};

/// Largest number of live microbatches over all chunks of a rank before a forward, and before a backward. O(vpp).
struct MostLive {
    std::int64_t before_forward = 0, before_backward = 0;
};
[[nodiscard]] MostLive most_live(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

/// The number of microbatches that fills the pipeline, runs it through whole groups and drains it, with a last group of the original
/// length: more microbatches add no further states.
[[nodiscard]] std::int64_t enough_microbatches(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size);

/// States of a rank's schedule that no other state of the same op exceeds in every chunk. Since a forward never leaves less memory than it
/// found, the peak is in one of them. 1F1B has one state of each op; an interleaved schedule is traversed. For pipelines in which all ranks
/// together run more than 2^22 forwards and backwards, and schedules with more than 256 such states of one op, every op gets the state with
/// the most live microbatches: exact in number, but another mix of unequal chunks may take more.
[[nodiscard]] std::vector<LiveState> live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

}  // namespace mgplan::simulator
