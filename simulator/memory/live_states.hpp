#pragma once
// How many microbatches of each chunk wait for their backward when an op of the schedule begins: all combinations that can
// be a peak of memory, whatever the chunks weigh.

#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.hpp"

namespace mgplan::simulator {

/// The state in front of one op. +k is a forward and -k a backward of chunk k-1.
struct LiveState {
    int op = 0;
    std::vector<std::int32_t> live;  ///< by chunk, of forwards done whose backward is not done
};

/// Most microbatches of all chunks of a rank together in front of a forward, and of a backward. O(vpp).
struct MostLive {
    std::int64_t before_forward = 0, before_backward = 0;
};
[[nodiscard]] MostLive most_live(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

/// As many microbatches as fill the pipeline, run it through whole groups and drain it, with a last group as long as asked for:
/// more of them bring no other states.
[[nodiscard]] std::int64_t enough_microbatches(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size);

/// States of a rank's schedule that no other state of the same op exceeds in every chunk: since a forward never leaves less
/// behind than it found, the fullest instant is in one of them. 1F1B has one of each op; an interleaved schedule is walked.
/// Pipelines so vast that walking all ranks would take more than 2^22 forwards and backwards, and schedules with more than 256
/// such states of one op, are taken as if every op met the instant at which most is alive: right in number, but another mix of
/// unequal chunks may weigh more.
[[nodiscard]] std::vector<LiveState> live_states(int pp, int vpp, std::int64_t microbatches, std::int64_t group_size, int pp_rank);

}  // namespace mgplan::simulator
