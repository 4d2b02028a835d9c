#pragma once
// How many microbatches of each chunk wait for their backward when an op of the schedule begins: all combinations that can
// be a peak of memory, whatever the chunks weigh.

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace mgplan::simulator {

/// The state in front of one op. As in RankSchedule::order, +k is a forward and -k a backward of chunk k-1.
struct LiveState {
    std::int16_t op = 0;
    std::vector<std::int32_t> live;  ///< by chunk, of forwards done whose backward is not done
};

/// The states of a rank's schedule that no other state of the same op exceeds in every chunk: since a forward never leaves
/// less behind than it found, the fullest instant is in one of them. `microbatches` beyond a few groups repeat what came
/// before, so the list and its cost do not grow with them.
[[nodiscard]] std::vector<LiveState> live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

}  // namespace mgplan::simulator
