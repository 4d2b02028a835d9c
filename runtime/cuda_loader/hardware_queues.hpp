#pragma once
// Number of hardware queues that CUDA spreads the streams of a card over. Streams that share one hold each other up: all work in a
// queue waits for the work at its head.

namespace mgplan::runtime {

inline constexpr const char* kQueuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
/// The largest number that CUDA allows, so that streams of a rank's groups do not share one; CUDA's default is 8.
inline constexpr const char* kHardwareQueues = "32";

}  // namespace mgplan::runtime
