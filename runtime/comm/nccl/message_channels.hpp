#pragma once
// Chooses the NCCL communicator of a group for a message between neighbours. NCCL's sends wait for their receivers, and operations
// of one communicator run in the order of the calls: in a pipeline whose last stage may have several sends to
// the first open (model/pipeline/send_depth.hpp), receives after them would wait for ever. So a member's messages go out
// on one communicator and come in on another.

#include <string_view>

namespace mgplan::runtime::cuda {

inline constexpr int kMostChannels = 3;

/// Groups whose members send to one neighbour and receive from the other, at different times: "pp" and "pp-backward".
[[nodiscard]] constexpr bool is_pipeline(std::string_view group) {
    return group.starts_with("pp");
}

/// A ring with an odd number of members needs a third, because its last member has the first one's turn.
[[nodiscard]] constexpr int message_channels(int size) {
    return size == 1 ? 0 : size % 2 == 0 ? 2 : 3;
}

[[nodiscard]] constexpr int channel_of(int sender, int size) {
    return size % 2 == 1 && sender == size - 1 ? 2 : sender % 2;
}

}  // namespace mgplan::runtime::cuda
