#pragma once
// How many microbatches of each chunk wait for their backward when an op of the schedule begins: all combinations that can
// be a peak of memory, whatever the chunks weigh.

#include <cstdint>
#include <vector>

#include "plan/schedule.hpp"

namespace mgplan::simulator {

/// The state in front of one op. As in RankSchedule::order, +k is a forward and -k a backward of chunk k-1.
struct LiveState {
    int op = 0;
    std::vector<std::int32_t> live;  ///< by chunk, of forwards done whose backward is not done
};

struct LiveStates {
    /// The states that no other state of the same op exceeds in every chunk: since a forward never leaves less behind than it
    /// found, the fullest instant is in one of them.
    std::vector<LiveState> states;
    /// Most microbatches of all chunks together in front of a forward, and of a backward.
    std::int64_t most_before_forward = 0, most_before_backward = 0;
};

/// As many microbatches as fill the pipeline, run it through whole groups and drain it, with a last group as long as asked for:
/// more of them bring no other states.
[[nodiscard]] std::int64_t enough_microbatches(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size);

/// Of a rank's schedule. `microbatches` beyond a few groups repeat what came before, so that the list and its cost do not grow
/// with them.
[[nodiscard]] LiveStates live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

}  // namespace mgplan::simulator
